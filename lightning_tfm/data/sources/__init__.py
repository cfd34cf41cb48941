"""Corpora beside the built-in ones: files, lines of one language, SCAN; sentences by length."""
