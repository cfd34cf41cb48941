"""The user's own modules: found, loaded, and identified by their code."""
