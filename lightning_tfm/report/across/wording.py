"""What analyses of several studies say alike: differences, intervals and the sentence on top."""

import math
from textwrap import wrap
from typing import Any

import pandas as pd

from lightning_tfm.metrics import METRICS
from lightning_tfm.plural_words import interval as ends
from lightning_tfm.plural_words import plural
from lightning_tfm.plural_words import signed as with_sign
from lightning_tfm.report.across.long_table import Studies
from lightning_tfm.report.blocks import NOTHING, Cell, Column
from lightning_tfm.report.charts.forest import clause, in_two_lines
from lightning_tfm.report.serialize import rounded
from lightning_tfm.report.stats.statistics import LEAST
from lightning_tfm.report.wording.verdict_words import WORDS, Shift, Verdict

ROW, P, VERDICT = Column("row", words=True), Column("p (BH)", lines="p\n(BH)"), Column("verdict", words=True)
DIFFERENCE = Column("difference", lines="differ-\nence")
NO_INFORMATION = "no information"
TIMES, POINTS = 10, 100
"""an interval says nothing that reaches beyond so many times base's score or below its so manieth part; of what is not
tested as a logarithm, beyond so many points"""


def signed(metric: str, value: float) -> str:
    """A difference with its sign, in percent without the sign of percent; a dash for NaN."""
    return (
        NOTHING if math.isnan(value) else with_sign(METRICS[metric].in_units(value), METRICS[metric].difference_digits)
    )


def informative(metric: str, low: float, high: float) -> bool:
    """Whether an interval as tested says anything."""
    return max(-low, high) < (math.log(TIMES) if METRICS[metric].log else POINTS)


def interval(metric: str, low: float, high: float) -> str:
    """[lower, upper]; empty where there is none."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return ends(low, high, lambda end: signed(metric, end)) if informative(metric, low, high) else NO_INFORMATION


def unit(metric: str) -> str:
    """Of a table of differences."""
    return f"dev {METRICS[metric].label} to base{', %' * METRICS[metric].log}"


def verdict_cell(verdict: str) -> Cell:
    """A word with its mark, or why there is none."""
    return Cell(verdict, word=verdict if verdict in WORDS else "")


def narrow(head: str) -> str:
    """A name over a column of numbers, in lines."""
    return "\n".join(wrap(head, 9, break_long_words=True))


def records(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """For JSON and CSV, each number at ten significant digits, None for NaN."""
    return [rounded(dict(zip(lines.columns, line, strict=True))) for line in lines.itertuples(index=False)]


def finding(changes: pd.DataFrame, studies: Studies, first: str, other: str) -> tuple[str, str]:
    """(which rows' differences to base change most from one study to the other, in a sentence; how many do what).

    `changes`: row, difference (of the two) and verdict, in the metric that decides.
    """
    both = changes[changes.difference.notna()]
    if both.empty:
        return f"Nothing in {other} can be compared with {first}.", ""
    both = both.reindex(both.difference.abs().sort_values(ascending=False, kind="stable").index)
    rows = {word: [studies.called(row) for row in both[both.verdict == word].row] for word in Shift}
    tested, every = sum(map(len, rows.values())), list(map(studies.called, both.row))

    def sentence(most: int) -> str:
        if not tested:
            ways = ("differs", "differ")
            return f"{clause(every[:most], len(every), ways)} between {first} and {other}, but nothing is tested."
        parts = [clause(rows[word][:most], len(rows[word]), word.clause) for word in Shift if word.found and rows[word]]
        if not parts:
            return f"No change is shown to do more or less in {other} than in {first}."
        return "; ".join(parts) + f" from {first} to {other}."

    counts = [f"{len(of)} {word.clause[len(of) > 1]}" for word, of in rows.items() if of]
    return in_two_lines(sentence), f"Of {plural(tested, 'change')} {'; '.join(counts)}." if tested else ""


def seeds_missing(changes: pd.DataFrame, first: str, other: str) -> str:
    """Which of two studies has too few seeds for a test, in a sentence; empty where none has."""
    untested = changes[changes.verdict == Verdict.UNTESTABLE]
    few = {study: int(n.max()) for study, n in ((first, untested.n_1), (other, untested.n)) if (n < LEAST).any()}
    listed = " and ".join(f"{study} has {n}" for study, n in few.items())
    return f"A verdict takes {LEAST} seeds in each; {listed}." if few else ""
