"""One shape for each verdict, the same in tables, keys and pictures: no word hangs on its colour."""

from markupsafe import Markup

from lightning_tfm.report.claims import SUPPORTED
from lightning_tfm.report.svg import number, tag
from lightning_tfm.report.verdict import (
    BETTER,
    CONTRADICTED,
    INCOMPARABLE,
    NEITHER,
    REPRODUCED,
    SMALLER,
    UNCLEAR,
    UNDECIDED,
    UNTESTABLE,
    WORSE,
)

VERDICT_CLASS = {
    REPRODUCED: "good",
    CONTRADICTED: "bad",
    UNCLEAR: "found",
    SMALLER: "less",
    NEITHER: "good",
    BETTER: "found",
    WORSE: "found",
    UNDECIDED: "open",
    UNTESTABLE: "untested",
    INCOMPARABLE: "untested",
    SUPPORTED: "good",
}
"""style of a verdict's mark; the word always stands beside it"""

DISC = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"
SHAPES = {
    REPRODUCED: DISC,
    SUPPORTED: DISC,
    CONTRADICTED: "M-4.8-3-3-4.8 0-1.8 3-4.8 4.8-3 1.8 0 4.8 3 3 4.8 0 1.8-3 4.8-4.8 3-1.8 0z",
    UNCLEAR: "M-4-4h8v8h-8z",
    SMALLER: DISC + "M0-3a3 3 0 0 1 0 6z",
    NEITHER: "M-4.5-3.4h9v2.4h-9zM-4.5 1h9v2.4h-9z",
    BETTER: "M0-5 5 3.8H-5z",
    WORSE: "M0 5 5-3.8H-5z",
    UNDECIDED: DISC + "M-2.7 0a2.7 2.7 0 1 0 5.4 0a2.7 2.7 0 1 0-5.4 0z",
    UNTESTABLE: "M-4-1.1h8v2.2h-8z",
    INCOMPARABLE: "M-4.4 3.4 3.4-4.4 4.4-3.4-3.4 4.4z",
}
"""paths around (0, 0): filled, by the even-odd rule"""


def at(word: str, x: float, y: float) -> str:
    """The mark of a word in a picture."""
    return tag("path", d=SHAPES[word], transform=f"translate({number(x)} {number(y)})", class_="mark")


def icon(word: str) -> Markup:
    """The mark of a word beside it in a text; its colour is the text's."""
    return Markup(tag("svg", tag("path", d=SHAPES[word], class_="mark"), **ICON))


ICON = {"viewBox": "-5.5 -5.5 11 11", "width": "11", "height": "11", "class_": "icon", "aria_hidden": "true"}
