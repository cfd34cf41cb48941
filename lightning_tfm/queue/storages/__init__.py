"""Where a queue lives: Optuna's journal file or a database, and what is exchanged without shared files."""
