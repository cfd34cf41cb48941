"""Searches on the queue: samplers, pruners, results."""
