"""Numbers with their nouns, lists, intervals and columns of letters, for people."""

import sys
from collections.abc import Callable, Sequence
from unicodedata import east_asian_width


def plural(n: int, noun: str) -> str:
    """1 run, 2 runs, 10,000 runs."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def several(name: str) -> bool:
    """Whether a name speaks of several things, as its main noun's ending says: four heads, keys of half the width."""
    noun = name.partition(" of ")[0].split(" ")[-1]
    return len(noun) > 3 and noun.endswith("s") and not noun.endswith(("ss", "us", "is"))


MINUS = "\N{MINUS SIGN}"


def numeral(value: float, spec: str) -> str:
    """As a format says, with a real minus."""
    return format(value, spec).replace("-", MINUS)


def signed(value: float, digits: int = 1) -> str:
    """With a sign, a real minus; what rounds to nothing has none."""
    text = numeral(value, f"+z.{digits}f")
    return text[1:] if not text.strip("+0.") else text


def interval(lower: float | None, upper: float | None, written: Callable[[float], str]) -> str:
    """[a, b], each end as `written`; empty where an end is missing."""
    return "" if lower is None or upper is None else f"[{written(lower)}, {written(upper)}]"


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def p_value(p: float | None) -> str:
    """Two digits, four below 0.01 and where two would hide which side of 0.05 it lies on; empty for None and NaN."""
    if p is None or p != p:
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 or f"{p:.2f}" == "0.05" else f"{p:.2f}"


FILLER = "\uffff"
"""no letter: names, which are printable, cannot hold it"""
LETTERS = "letters"
"""how a standard output that knows only few letters treats others (cli/terminal.py)"""


def by_columns(text: str) -> str:
    """With a FILLER behind each letter that takes two columns of a terminal, such as 가 and 🦆, so that len() counts
    columns; other letters where standard output lacks them, which may be wider."""
    if getattr(sys.stdout, "errors", None) == LETTERS:
        text = text.encode(sys.stdout.encoding, LETTERS).decode(sys.stdout.encoding)
    return "".join(letter + FILLER * (east_asian_width(letter) in "WF") for letter in text)


def without_filler(text: str) -> str:
    """What `by_columns` was given, after it has been wrapped and aligned."""
    return text.replace(FILLER, "")
