"""Where a queue lives: Optuna's journal file, or a database."""
