"""Commands that follow what runs: status, dashboard, runs, study."""
