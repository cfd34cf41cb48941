"""Footnote 4 of the paper over the rows of a study: how far softmaxes saturate with d_k, scaled and not."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lightning_tfm.report.blocks import Block, Figures, Notes, Section, Table, Text, columns
from lightning_tfm.report.charts.chart import SMALL, Axis, Chart, Point, Series, draw
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Spread, Summary
from lightning_tfm.report.tables.columns import name_cell, row_labels

KINDS = ("encoder", "decoder", "cross")
ALL = "all"
MOMENTS = ("start", "end")
SHOWN = {
    "entropy": "entropy over ln n (1: uniform)",
    "saturated": "share of saturated softmaxes",
    "gradient": "their share of the gradient",
}
CLASSES = {"scaled": "g3", "unscaled": "g1", "additive": "g2", "cosine": "g4"}


@dataclass(frozen=True)
class SoftmaxRow:
    """Of one row, at one moment, of one kind of attention."""

    row: str
    scores: str
    d_k: int
    """that was trained"""
    n: int
    """runs"""
    when: str
    """start or end of the training"""
    kind: str
    """encoder, decoder, cross, or all of them"""
    alone: bool = field(metadata={"key": ""})
    """it changes only scores and d_k"""
    entropy: Spread
    """over ln of the number of keys"""
    saturated: Spread
    """share of softmaxes"""
    gradient: Spread
    """share of the gradient at the scores that passes saturated ones"""


@dataclass(frozen=True)
class SoftmaxSummary:
    """Whether softmaxes saturate."""

    saturated_below: float
    """of Σ p (1 - p)"""
    lines: int
    """of the dev text"""
    rows: list[SoftmaxRow]

    @property
    def varied(self) -> bool:
        """Whether rows differ in scores or d_k, so that there is something to compare."""
        return len({(row.scores, row.d_k) for row in self.rows}) > 1

    def drawn(self) -> list[SoftmaxRow]:
        """Those that change nothing else, all attention together."""
        return [row for row in self.rows if row.alone and row.kind == ALL]


def find(cells: Cells, report: Summary) -> SoftmaxSummary | None:
    """None where nothing was collected (inference/weight_records.py says what is counted)."""
    rows: list[SoftmaxRow] = []
    facts: tuple[float, int] | None = None
    by_name = {row.name: row for row in cells.study.rows}
    for name, records in cells.collected("softmax").items():
        row, facts = by_name[name], (records[0]["threshold"], records[0]["lines"])
        model = cells.study.exact(row).model
        alone = set(row.change) <= {"model.scores", "model.d_k"}
        for when in MOMENTS:
            for kind in (ALL, *KINDS):
                shares = [share for r in records if (share := _shares(r[when], kind))]
                if shares:
                    spreads = [Spread.of([share[i] for share in shares]) for i in range(3)]
                    rows.append(SoftmaxRow(row.name, model.scores, model.d_k, len(shares), when, kind, alone, *spreads))
    return SoftmaxSummary(*facts, rows) if facts else None


def _shares(record: Mapping[str, Any], kind: str) -> tuple[float, float, float] | None:
    """Mean entropy, share of saturated softmaxes, their share of the gradient."""
    kinds = [kind] if kind != ALL else KINDS
    heads = [head for name in kinds for layer in record[name] for head in layer]
    if not heads:
        return None
    count, entropy, saturated, gradient, passed = np.array(heads).sum(0).tolist()
    return entropy / count, saturated / count, passed / gradient if gradient else 0.0


def _chart(drawn: Sequence[SoftmaxRow], which: str, what: str) -> Chart:
    """A line for each kind of scores, of the start of the training dashed and without a name."""
    series = []
    for when, scores in itertools.product(MOMENTS, dict.fromkeys(r.scores for r in drawn)):
        line = []
        for r in sorted((r for r in drawn if (r.scores, r.when) == (scores, when)), key=lambda r: r.d_k):
            spread = getattr(r, which)
            ends = f"{spread.lowest:.3g} to {spread.highest:.3g}, n {r.n}"
            tip = f"{r.row}, d_k {r.d_k}, {when}: {spread.mean:.3g} ({ends})"
            line.append(Point(r.d_k, spread.mean, tip, spread.lowest, spread.highest))
        class_ = CLASSES.get(scores, "g5") + " base" * (when == "start")
        name = f"{scores}, {when}"
        end = scores if when == "end" else ""
        series.append(Series(name, line, class_, end, name, marked=True, bars=True, r=3.6, of="line"))
    highest = max(getattr(r, which).highest for r in drawn)
    return Chart(
        f"{what} over d_k, by kind of scores",
        Axis("d_k", log=True, words={float(d): str(d) for d in sorted({r.d_k for r in drawn})}),
        Axis(what, ends=(0.0, 1.0 if which == "entropy" else max(1.05 * highest, 1e-3))),
        series,
        (420, 330),
    )


FOOTNOTE = (
    "“We suspect that for large values of d_k, the dot products grow large in magnitude, pushing the softmax function "
    "into regions where it has extremely small gradients.” (3.2.1 of the paper; footnote 4 has the variance of a "
    "product, d_k.)"
)


def lead(summary: SoftmaxSummary, report: Summary) -> list[str]:
    """How many softmaxes each kind of scores leaves saturated, by d_k."""
    if not summary.varied:
        return []
    by_scores: dict[str, list[SoftmaxRow]] = {}
    for row in summary.drawn():
        if row.when == "end":
            by_scores.setdefault(row.scores, []).append(row)
    parts = []
    for scores, rows in by_scores.items():
        rows.sort(key=lambda row: row.d_k)
        ends = rows if len(rows) == 1 else [rows[0], rows[-1]]
        parts.append(f"{scores} {' and '.join(f'{100 * r.saturated.mean:.2g} % at d_k {r.d_k}' for r in ends)}")
    return [f"Softmaxes saturated at the end of the training: {'; '.join(parts)}."] * bool(parts)


def sections(summary: SoftmaxSummary, report: Summary) -> list[Section]:
    """None where no rows with other scores or d_k were collected."""
    if not summary.varied:
        return []
    called = row_labels(report.rows)
    lines = "Solid: at the end of the training; dashed: with the weights it began with. Bars span the seeds."
    drawn = summary.drawn()
    pictures = [(draw(_chart(drawn, which, what), SMALL), lines) for which, what in SHOWN.items() if drawn]
    heads = [f"{what}, {when}" for when in MOMENTS for what in ("entropy", "saturated, %", "gradient, %")]
    every = [r for r in summary.rows if r.kind == ALL]
    rows = [
        [name_cell(a.row, called), a.scores, str(a.d_k), str(a.n), *_cells(a), *_cells(b)]
        for a in every
        for b in every
        if (a.row, a.when, b.when) == (b.row, *MOMENTS)
    ]
    notes = [
        "A softmax with weights p over n ≥ 2 keys is saturated where Σ p (1 − p), the trace of its Jacobian, is below "
        f"{summary.saturated_below:g}: about where one weight is above 0.99. Entropy is divided by ln n",
        "gradient: the share that passes saturated softmaxes of Σ |∂L/∂score|, L the summed NLL",
        f"all heads of all attention, {summary.lines} sentences of the dev set with the reference as prefix, mean "
        "over n seeds; lines join rows that change only scores and d_k",
    ]
    table = Table("", columns("row", "scores", "d_k", "n", *heads, words=["scores"]), rows)
    blocks: list[Block] = [Text([FOOTNOTE]), Figures(pictures, small=True), table, Notes(notes)]
    return [Section("softmax", "How far softmaxes saturate", blocks)]


def _cells(row: SoftmaxRow) -> list[str]:
    return [f"{row.entropy.mean:.3f}", f"{100 * row.saturated.mean:.3g}", f"{100 * row.gradient.mean:.3g}"]


ANALYSIS = Analysis(key="softmax", find=find, sections=sections, lead=lead)
