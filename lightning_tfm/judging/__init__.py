"""Verdicts on scores that somebody else made: one line per run in a file, or a DataFrame. Which file does what:

scores           a file, records, a DataFrame or Lightning's logs to runs (row, seed, metrics); errors name the line
verdicts         runs to verdicts, by report/stats; what Python sees, `lightning_tfm.judge`
presentation     verdicts to blocks, for every format
gate             one row's verdict for a program; looks declared beforehand; a budget for many candidates
scores_callback  Lightning's trainer writes its scores
"""
