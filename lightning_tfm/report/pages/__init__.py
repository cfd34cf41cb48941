"""HTML pages and what stands on them beside tables."""
