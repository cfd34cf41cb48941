"""What a number may be said to show: verdicts, headline, notes, claims."""
