"""The processes of one run: its attempt, ranks, threads."""
