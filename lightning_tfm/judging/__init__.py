"""Verdicts on scores that somebody else made: one line per run in a file, or a DataFrame. Which file does what:

scores           a file, records or a DataFrame to runs (row, seed, metrics), with what is wrong named by its line
logs             the versions of Lightning's CSVLogger to the same
verdicts         runs to verdicts, by report/stats; what Python sees, `lightning_tfm.judge`
presentation     verdicts to blocks, for every format
gate             one row's verdict for a program; looks declared beforehand; a budget for many candidates
scores_callback  Lightning's trainer writes its scores
"""
