"""The words of verdicts, each with all that is needed to print it. What they mean exactly: verdict.py."""

from enum import StrEnum
from typing import Any, Self

DISC = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"


class VerdictWord(StrEnum):
    """A word, with all that is needed to print it. In the order in which words are counted and listed."""

    clause: tuple[str, str]
    """of one row, of several"""
    means: str
    """the rule in a sentence"""
    style: str
    """its colour on the page, which nothing else has: good, bad, found, apart; open and untested are grey"""
    mark: str
    """a path around (0, 0), filled by the even-odd rule; no two are alike, as no word depends on its colour"""
    latex: str
    found: bool
    """whether it rests on a difference that was found"""
    shown: str
    """the words that people see, at most 20 letters; the value is the key in JSON and CSV"""

    def __new__(cls, text: str, *traits: Any) -> Self:
        word = str.__new__(cls, text)
        word._value_ = text
        names = ("clause", "means", "style", "mark", "latex", "found", "shown")
        vars(word).update(zip(names, (*traits, *(False, text)[len(traits) - 5 :]), strict=True))
        return word


class Verdict(VerdictWord):
    """Of a row against base."""

    REPRODUCED = (
        "reproduced",
        ("is reproduced", "are reproduced"),
        "differs in the paper, significant here with the same sign, and compatible in size with an error of at most "
        "half of it",
        "good",
        DISC,
        r"$\bullet$",
        True,
    )
    SAME_DIRECTION = (
        "same direction",
        ("goes in the same direction", "go in the same direction"),
        "differs in the paper, significant here with the same sign; beside it our difference over the published one, "
        "or that the size is unclear",
        "found",
        "M-3.6-4.8 4.8 0-3.6 4.8z",
        r"$\triangleright$",
        True,
    )
    CONTRADICTED = (
        "contradicted",
        ("is contradicted", "are contradicted"),
        "differs in the paper, significant here with the opposite sign",
        "bad",
        "M-4.8-3-3-4.8 0-1.8 3-4.8 4.8-3 1.8 0 4.8 3 3 4.8 0 1.8-3 4.8-4.8 3-1.8 0z",
        r"$\times$",
        True,
    )
    DIFFERS = (
        "differs where the paper shows none",
        ("is found only here", "are found only here"),
        "within noise in the paper, significant here, and our interval is outside the noise around the published "
        "difference",
        "apart",
        "M-4.5-4.5h9v9h-9zM-1.2-3h2.4v6h-2.4z",
        r"$\otimes$",
        True,
        "found only here",
    )
    UNCLEAR = (
        "found here, paper unclear",
        ("is significant where the paper is within noise", "are significant where the paper is within noise"),
        "within noise in the paper, significant here",
        "found",
        "M-4-4h8v8h-8z",
        r"$\diamond$",
        True,
        "paper within noise",
    )
    SMALLER = (
        "smaller than printed",
        ("is smaller here", "are smaller here"),
        "only at full size: differs in the paper, not significant here, below half of it by a one-sided test at 1 %",
        "open",
        DISC + "M0-3a3 3 0 0 1 0 6z",
        r"$<$",
        False,
        "smaller here",
    )
    NEITHER = (
        "no difference, as in the paper",
        ("is equal, as published", "are equal, as published"),
        "within noise in the paper, and ours is inside the noise of its single runs by two one-sided tests at 5 %",
        "good",
        "M-4.5-3.4h9v2.4h-9zM-4.5 1h9v2.4h-9z",
        r"$\approx$",
        False,
        "equal, as published",
    )
    BETTER = (
        "better",
        ("is better", "are better"),
        "significant, for a row without published numbers",
        "found",
        "M0-5 5 3.8H-5z",
        r"$\uparrow$",
        True,
    )
    WORSE = (
        "worse",
        ("is worse", "are worse"),
        "significant, for a row without published numbers",
        "apart",
        "M0 5 5-3.8H-5z",
        r"$\downarrow$",
        True,
    )
    EQUAL = (
        "practically equal",
        ("is practically equal", "are practically equal"),
        "for a row without published numbers: inside the noise of full-size single runs by two one-sided tests at 5 %",
        "open",
        "M-3.4-4.5h2.4v9h-2.4zM1-4.5h2.4v9h-2.4z",
        "$=$",
    )
    SUPPORTED = (
        "supported",
        ("is supported", "are supported"),
        "of a claim: what it says of every one of its rows is found",
        "good",
        "M-4.8 0-1.8 3.6 4.8-3.4 3.4-4.8-1.8.2-3.4-1.4z",
        r"$\surd$",
        True,
    )
    UNDECIDED = (
        "undecided",
        ("is undecided", "are undecided"),
        "all else, with the number of seeds that would be needed if the difference is as estimated",
        "open",
        DISC + "M-2.7 0a2.7 2.7 0 1 0 5.4 0a2.7 2.7 0 1 0-5.4 0z",
        r"$\circ$",
    )
    UNTESTABLE = (
        "not testable",
        ("cannot be tested", "cannot be tested"),
        "too few seeds of the row or of what it is compared with",
        "untested",
        "M-4-1.1h8v2.2h-8z",
        "--",
    )
    DIVERGED = (
        "diverged",
        ("diverged in some of its seeds", "diverged in some of their seeds"),
        "so many of its seeds diverged: no mean of the others is formed, and nothing is tested",
        "untested",
        "M-1.3-5h2.6v6.2h-2.6zM-1.3 2.6h2.6v2.4h-2.6z",
        r"$\infty$",
    )
    INCOMPARABLE = (
        "not comparable",
        ("cannot be compared", "cannot be compared"),
        "a perplexity over another vocabulary than the row it would be compared with",
        "untested",
        "M-4.4 3.4 3.4-4.4 4.4-3.4-3.4 4.4z",
        r"$\ast$",
    )


class Shift(VerdictWord):
    """Of a row's difference to base, from one study to another, or from one scale to another."""

    TURNS = (
        "changes sign",
        ("changes sign", "change sign"),
        "the corrected p of the change is below 5 %, and the intervals lie on different sides of zero",
        "bad",
        Verdict.CONTRADICTED.mark,
        r"$\times$",
        True,
    )
    GROWS = (
        "grows",
        ("grows", "grow"),
        "the corrected p of the change is below 5 %, and the difference is larger in size than in the first",
        "apart",
        Verdict.BETTER.mark,
        r"$\uparrow$",
        True,
    )
    SHRINKS = (
        "shrinks",
        ("shrinks", "shrink"),
        "the corrected p of the change is below 5 %, and the difference is smaller in size than in the first",
        "found",
        Verdict.WORSE.mark,
        r"$\downarrow$",
        True,
    )
    HOLDS = (
        "holds",
        ("holds", "hold"),
        "the 95 % interval of the change is within half of the difference in the first",
        "good",
        Verdict.NEITHER.mark,
        r"$\approx$",
    )
    CANNOT_TELL = (
        "cannot tell",
        ("is unclear", "are unclear"),
        "all else",
        "open",
        Verdict.UNDECIDED.mark,
        r"$\circ$",
    )


WORDS: dict[str, VerdictWord] = {word.value: word for kind in (Verdict, Shift) for word in kind}
OPEN = (Verdict.UNDECIDED, Verdict.UNTESTABLE)


def phrase(verdict: str, beside: str) -> str:
    """A word with what belongs beside it."""
    shown = WORDS[verdict].shown
    return f"{shown} ({beside})" if verdict == Verdict.DIVERGED else ", ".join(filter(None, [shown, beside]))


def brief_phrase(verdict: str, beside: str) -> str:
    """Of what belongs beside it only how many seeds diverged, or would decide it."""
    kept = verdict in (Verdict.DIVERGED, Verdict.UNDECIDED)
    return phrase(verdict, beside.replace("about ", "~") if kept else "")
