"""What to run. Which file belongs to which theme:

an experiment        settings, suggestions, file_kind, user_classes, preflight, command
rows                 rows, expressions, match_compute, ratios, derived_budget, data_rows
studies              study, cell, sequential, row_tuning
searches             sweeps, space, trials, improvement
"""
