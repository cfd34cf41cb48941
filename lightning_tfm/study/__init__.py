"""What to run. Which file belongs to which theme:

an experiment        settings, file_kind, user_classes, preflight, command
rows                 rows, expressions, ratios
studies              study, study_file, cell, sequential, row_tuning
searches             search, sweeps, space, trials
"""
