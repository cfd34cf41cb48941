"""Numbers with their nouns, for people."""


def plural(n: int, noun: str) -> str:
    """1 run, 2 runs, 10,000 runs."""
    return f"{n:,} {noun}{'s' * (n != 1)}"
