"""A results folder in the browser while it grows: studies, searches and runs, read only."""
