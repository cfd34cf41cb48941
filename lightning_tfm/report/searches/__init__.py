"""A search's report."""
