"""The main figure as data: each change's difference to base, how sure it is, and what was published beside it.

Rows of a study (study_forest.py) or anybody's scores make a `Forest`; forest_text.py draws it in a terminal,
forest_picture.py as SVG. Nothing here knows runs or models.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lightning_tfm.plural_words import listed, plural, several, signed
from lightning_tfm.report.wording.verdict_words import WORDS, Shift, Verdict, VerdictWord, brief_phrase

SHARE, SHORTER = 0.1, 3.0
"""of the changes that may be beyond an axis's edge, but always one, where the axis is so many times as short then"""


@dataclass(frozen=True)
class Entry:
    """One change in one metric, in the axis's unit."""

    estimate: float
    """the difference to base"""
    lower: float | None = None
    upper: float | None = None
    """its interval; None where seeds are too few for one"""
    verdict: str = ""
    """a verdict_words.Verdict; empty: nothing was tested"""
    beside: str = ""
    """what is printed beside the verdict: about how many seeds would decide it"""
    published: float | None = None
    """the same difference as it was published"""
    by_seed: Sequence[float] = ()
    """each seed's own difference to base"""
    dots: Sequence[tuple[str, float]] = ()
    """(name, estimate) of what ours is the mean of: corpora"""
    outer: tuple[float, float] | None = None
    """a wider interval around the other one, a thin line"""
    tip: Sequence[str] = ()
    """more lines when it is pointed at"""

    @property
    def word(self) -> VerdictWord | None:
        return WORDS[self.verdict] if self.verdict else None

    @property
    def found(self) -> bool:
        """Whether the verdict rests on a difference that was found."""
        return self.word is not None and self.word.found

    @property
    def decided(self) -> bool:
        """Whether the verdict is an answer; without one an estimate stands for itself."""
        alike = (Verdict.NEITHER, Verdict.EQUAL, Verdict.SMALLER, Shift.HOLDS)
        return self.found or self.verdict in ("", Verdict.UNTESTABLE, *alike)

    @property
    def style(self) -> str:
        """The colour of its verdict, a class of the style sheet."""
        return self.word.style if self.word else "plain"

    @property
    def spans_zero(self) -> bool:
        """Whether there is an interval, and zero is in it."""
        return self.lower is not None and self.upper is not None and self.lower <= 0.0 <= self.upper

    @property
    def sure(self) -> str:
        """The verdict's words, with the seeds that would decide it."""
        return brief_phrase(self.verdict, self.beside) if self.verdict else ""


@dataclass(frozen=True)
class Line:
    """One change."""

    name: str
    """in plain words"""
    entries: Sequence[Entry | None]
    """one for each axis"""
    code: str = ""
    """its short name in tables and files, where `name` is not that"""
    about: str = ""
    """what it changes, when it is pointed at"""

    @property
    def row(self) -> str:
        """Its name in tables and files."""
        return self.code or self.name


@dataclass(frozen=True)
class Axis:
    """One metric."""

    name: str
    """over the panel"""
    percent: bool = False
    """whether differences are in percent"""
    lower_is_better: bool = False
    digits: int = 1
    """of a difference"""
    prose: str = ""
    """its name within a sentence, where that is not `name`"""

    def number(self, value: float, unit: bool = True) -> str:
        """A difference as it is printed: +37 %, −0.3 %, −12.6."""
        digits = 0 if self.percent and abs(value) >= 9.95 else self.digits
        return signed(value, digits) + " %" * (self.percent and unit)


@dataclass(frozen=True)
class Forest:
    """Lines in the order in which they are drawn, on one axis for each metric, the one that decides first."""

    title: str
    """what was found, in a sentence"""
    scope: str
    """for what it holds"""
    axes: Sequence[Axis]
    lines: Sequence[Line]
    seeds: str = ""
    """of a line, in words: 5 seeds"""
    level: str = "95"
    """of the intervals, in percent"""
    published: str = ""
    """whose the published differences are; empty: there are none"""
    to: str = "base"
    """what all differences are to"""
    more: str = ""
    """where nothing is tested: how to get verdicts, in a line"""
    brief: str = ""
    """the title in at most three lines of a narrow picture; empty: `title`"""
    asks: str = "Is it sure?"
    """over the verdicts"""
    here: str = ""
    """what our mark is, in the legend; empty: a mean of seeds"""
    beside: str = ""
    """what the diamond is; empty: one published run"""
    dots: str = ""
    """what the dots are"""
    outer: str = ""
    """what the thin line is"""

    @property
    def tested(self) -> bool:
        return any(entry.verdict not in ("", Verdict.UNTESTABLE) for _, entry in self.entries(0))

    @property
    def classes(self) -> dict[str, str]:
        """row -> class of its verdict's colour in the metric that decides; empty where nothing is tested."""
        return {line.row: entry.style for line, entry in self.entries(0)} if self.tested else {}

    @property
    def heading(self) -> str:
        """Over the first panel."""
        return f"{self.axes[0].name} against {self.to}"

    def entries(self, axis: int) -> Iterator[tuple[Line, Entry]]:
        return ((line, found) for line in self.lines if (found := line.entries[axis]) is not None)

    def ends(self, axis: int) -> tuple[float, float]:
        """Of the axis: around all estimates, intervals, published differences and zero.

        A few estimates are left beyond its edge where that makes it much shorter (`SHORTER`).
        """
        spans = []
        for _, entry in self.entries(axis):
            own = [v for v in (entry.estimate, entry.lower, entry.upper, *(entry.outer or ())) if v is not None]
            own += [v for _, v in entry.dots]
            spans.append((min(own), max(own)))
            if entry.published is not None:
                spans.append((entry.published, entry.published))
        spans.sort(key=lambda span: max(abs(span[0]), abs(span[1])))
        whole = _around(spans)
        for k in range(1, min(max(1, round(SHARE * len(self.lines))), len(self.lines) - 2) + 1):
            inner = _around(spans[:-k])
            if inner[1] - inner[0] < (whole[1] - whole[0]) / SHORTER:
                return inner
        return whole


def _around(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    low, high = min([0.0, *(low for low, _ in spans)]), max([0.0, *(high for _, high in spans)])
    return (low, high) if high > low else (-1.0, 1.0)


# --- the sentences over it ---

UNTESTED = "nothing is tested yet; by the estimates alone "
NAMED, ROOM, BRIEF = 3, 150, 95
"""changes that a title names, and its letters at most: two lines of a terminal, three of a narrow picture"""
SIDES = ((("costs", "cost"), "worse"), (("gains", "gain"), "better"))
"""verbs of the changes that are furthest on a side, and what those are that are alone there"""


def finding(axes: Sequence[Axis], lines: Sequence[Line], to: str = "base", lead: str = "", room: int = ROOM) -> str:
    """The largest differences found in the first metric, in a sentence that begins with `lead`: where there are none,
    those in the next; where nothing is tested, the largest whose interval, if there is one, excludes zero: one odd seed
    of three makes any estimate."""
    compared = [(line, entry) for line in lines if (entry := line.entries[0])]
    significant = [(line, entry) for line, entry in compared if entry.found]
    if not compared:
        return f"Nothing is compared with {to} yet."
    if any(entry.verdict not in ("", Verdict.UNTESTABLE) for _, entry in compared) and not significant:
        return _nothing_in_the_first(axes, lines, f"{lead}no change differs significantly from {to}", room)
    candidates = significant or [(line, entry) for line, entry in compared if entry.estimate and not entry.spans_zero]
    if not candidates:
        return sentence_case(f"{lead}nothing is tested yet, and no interval excludes zero.")
    sign = 1 if axes[0].lower_is_better else -1
    sides = [
        sorted((p for p in candidates if p[1].estimate * sign * side > 0), key=lambda p: -abs(p[1].estimate))
        for side in (1, -1)
    ]

    def sentence(most: int) -> str:
        parts = [
            clause([line.name for line, _ in side[: most if i == 0 else max(1, most - 2)]], len(side), *words)
            for i, (side, words) in enumerate(zip(sides, SIDES, strict=True))
            if side
        ]
        return lead + ("" if significant else UNTESTED) + "; ".join(parts) + "."

    return in_two_lines(sentence, room, [f"{line.name} " for line in lines if not line.code])


def _nothing_in_the_first(axes: Sequence[Axis], lines: Sequence[Line], nothing: str, room: int) -> str:
    """With the changes that differ in the next metric."""
    found = [(-abs(e.estimate), line.name) for line in lines for e in line.entries[1:2] if e and e.found]
    if not found:
        return sentence_case(f"{nothing}.")
    names, (first, second) = [name for _, name in sorted(found)], [axis.prose or axis.name for axis in axes[:2]]
    return in_two_lines(
        lambda most: f"{nothing} in {first}; {clause(names[:most], len(names), ('differs', 'differ'))} in {second}.",
        room,
    )


def in_two_lines(sentence: Callable[[int], str], room: int = ROOM, typed: Sequence[str] = ()) -> str:
    """The sentence that names as many changes as there is room for, at least one. Where it begins with one of `typed`,
    that stays as it is."""
    sentences = [sentence(most) for most in (NAMED, 2, 1)]
    sentences = [text if text.startswith(tuple(typed)) else sentence_case(text) for text in sentences]
    return next((short for short in sentences if len(short) <= room), sentences[-1])


def sentence_case(sentence: str) -> str:
    """With a capital letter, but where it begins with a setting."""
    return sentence if "=" in sentence.split(" ")[0] else sentence[:1].upper() + sentence[1:]


def clause(names: Sequence[str], of: int, verbs: tuple[str, str], alone: str = "") -> str:
    """These of so many changes with their verb, singular or plural; where they are all, they are `alone`."""
    many = len(names) > 1 or several(names[0])
    if alone and of == len(names):
        return f"{listed(names)} {('is', 'are')[many]} {alone}"
    return f"{listed(names)} {verbs[many]}" + " most" * (of > len(names))


def tally(lines: Sequence[Line], seeds: str, published: str, diverged: Sequence[str] = ()) -> str:
    """How many changes go which way, and which ones, without a place in the picture, `diverged`; empty where nothing is
    tested, and nothing diverged."""
    counted = _tested_tally(lines, seeds, published)
    if not diverged:
        return counted
    more = [f"{len(diverged) - NAMED} more"] * (len(diverged) > NAMED)
    return f"{counted} Diverged in some seeds: {listed([*diverged[:NAMED], *more])}.".strip()


def _tested_tally(lines: Sequence[Line], seeds: str, published: str) -> str:
    verdicts = [entry.verdict for line in lines if (entry := line.entries[0])]
    verdicts = [verdict for verdict in verdicts if verdict not in ("", Verdict.UNTESTABLE)]
    counts = {word: verdicts.count(word) for word in Verdict if word in verdicts}
    changes = plural(len(verdicts), "change")
    same, against = sum(counts.pop(word, 0) for word in AS_PUBLISHED), counts.pop(Verdict.CONTRADICTED, 0)
    parts = []
    if same + against:
        parts = [f"{same} {'go' if same != 1 else 'goes'} the way of {published}, {against or 'none'} against it"]
        if alone := counts.pop(Verdict.DIFFERS, 0) + counts.pop(Verdict.UNCLEAR, 0):
            parts.append(f"{alone} {'are' if alone > 1 else 'is'} found only here")
    clauses = {
        w: w.clause[n > 1] + f" with {seeds}" * bool(w == Verdict.UNDECIDED and seeds) for w, n in counts.items()
    }
    if len(counts) == 1 and not parts:
        return f"{'All ' * (len(verdicts) > 1)}{changes} {next(iter(clauses.values()))}."
    parts += [f"{n} {clauses[word]}" for word, n in counts.items()]
    return f"Of {changes} {'; '.join(parts)}." if parts else ""


AS_PUBLISHED = (Verdict.REPRODUCED, Verdict.SAME_DIRECTION, Verdict.NEITHER)
