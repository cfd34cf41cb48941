"""What reports and the dashboard have in common: how templates are read, and texts beside each other. Without numpy."""

from difflib import SequenceMatcher
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from lightning_tfm.plural_words import signed

LONGEST = 400
"""characters of a sentence that a page shows"""
Parts = list[tuple[str, bool]]
"""words of a text in runs, and whether another text has them in that place"""


def templates(package: str) -> Environment:
    """Those of a package; a name that is not known in one of them raises jinja2.UndefinedError."""
    found = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    found.filters |= {"signed": signed, "key": _key}
    return found


def _key(value: Any) -> str:
    """By which a script sorts a cell."""
    return "" if value is None else str(value)[:80]


def four_digits(value: Any) -> str:
    """A number without an exponent where it is large: 4.921, 211,000; whatever is no float as it is."""
    if not isinstance(value, float):
        return str(value)
    return f"{float(f'{value:.4g}'):,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def excerpt(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def compared(text: str, other: str) -> Parts:
    """The words of `text` beside those of `other`."""
    words, known = text.split(), other.split()
    parts: Parts = []
    at = 0
    for block in SequenceMatcher(None, words, known, autojunk=False).get_matching_blocks():
        parts += [(" ".join(words[at : block.a]), False)] * (block.a > at)
        parts += [(" ".join(words[block.a : block.a + block.size]), True)] * (block.size > 0)
        at = block.a + block.size
    return parts
