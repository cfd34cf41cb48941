"""Analyses of one study beside its table."""
