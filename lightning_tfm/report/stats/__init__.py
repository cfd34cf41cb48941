"""Statistics on arrays: they know neither runs nor models, and import nothing else of the package."""
