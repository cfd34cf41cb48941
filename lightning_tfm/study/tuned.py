"""What the two sides of a tuned study, its making (cli/tuned.py) and its report (report/tuning.py), have in common."""

from collections.abc import Sequence
from typing import Any

FILE = "tuning.json"
"""in the study's folder: what was tried for each row, what was taken, and what it cost"""


def at_edge(value: Any, values: Sequence[Any]) -> bool:
    """Whether a number is the least or the greatest that was tried, so that a better one may lie beyond."""
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return len(numbers) == len(values) and value in (min(numbers), max(numbers))
