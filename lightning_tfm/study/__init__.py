"""What to run. Which file belongs to which theme:

an experiment        settings, meant, kinds, classes, mistakes, cost, command
rows                 rows, ties, solve, ratios, held, row_data
studies              study, cell, looks, tuned
searches             sweeps (of tables, too), space, trials, gains
"""
