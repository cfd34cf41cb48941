"""Blocks (report/blocks.py) in each format; nothing else writes a table in one."""
