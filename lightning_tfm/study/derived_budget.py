"""`miniature.hold` and `miniature.seen`, as given; study/ratios.py turns them into numbers."""

import math
from dataclasses import dataclass, field
from typing import Any

from lightning_tfm.errors import UserError, nearest

HOLD, SEEN = "miniature.hold", "miniature.seen"
KINDS = ("ratios",)
FOLLOW = (
    ("training", "steps"),
    ("training", "warmup"),
    ("training", "lr_factor"),
    ("data", "pairs"),
    ("data", "share"),
    ("miniature", "steps"),
)
"""sections and fields that are derived: HOLD discards what files set before it"""


@dataclass(frozen=True)
class Held:
    """What was requested."""

    seen: float = 1.0
    where: str = ""
    given: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """of FOLLOW, what the command line gives, and files after HOLD, with their places"""

    @classmethod
    def of(cls, asked: dict[str, tuple[Any, str]], given: dict[str, tuple[Any, str]]) -> "Held | None":
        """From HOLD and SEEN with their places in files, and what is `given`. Raises UserError."""
        kind, where = asked.get(HOLD, (None, ""))
        seen, there = asked.get(SEEN, (1.0, ""))
        if kind is not None and kind not in KINDS:
            raise UserError(f"{where}: {HOLD}={kind!r}: {nearest(str(kind), KINDS)}")
        if isinstance(seen, bool) or not isinstance(seen, int | float) or not 0 < seen < math.inf:
            raise UserError(f"{there}: {SEEN}={seen!r}: expected a number above 0, 1 for the paper's budget")
        if kind is None and SEEN in asked:
            raise UserError(f"{there}: {SEEN}={seen}: scales the budget of {HOLD}=ratios: set that, too")
        return None if kind is None else cls(float(seen), where, given)
