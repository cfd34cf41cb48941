"""The table of a study, its columns and formats of its own."""
