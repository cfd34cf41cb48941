"""The one exception for what a user can fix: the command line prints it without a traceback and exits with code 2."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 60
"""valid words that a message lists; an experiment has fewer fields"""


class UserError(Exception):
    """Wrong input: a key, a file, a value. The message names it, says where it was written and what would work."""


class NotHere(UserError):
    """What another machine may have and this one lacks: a GPU, cores, the text. `plan` continues without it."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """A clause that names the valid word closest to `word`, or lists the valid ones, the first of many."""
    valid = sorted(valid)
    close = get_close_matches(word, valid, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    more = f" and {len(valid) - MOST} more" if len(valid) > MOST else ""
    return f"valid: {', '.join(valid[:MOST])}{more}"
