"""Analyses across studies: comparison, meta-analysis over corpora, scaling."""
