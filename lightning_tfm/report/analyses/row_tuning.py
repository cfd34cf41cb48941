"""Which value every row of a tuned study took (`sweep --tune`), of how many, and what the choice cost."""

import math
from dataclasses import replace
from typing import Any

from lightning_tfm.report import selection_error
from lightning_tfm.report.analysis import Analysis
from lightning_tfm.report.blocks import NOTHING, Block, Notes, Section, Table, Text, columns
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Summary
from lightning_tfm.study.row_tuning import TuningSummary, at_edge


def find(cells: Cells, report: Summary) -> TuningSummary | None:
    """With how open every choice is, by the noise of the table's rows."""
    tuning, rows = cells.tuning, [*report.rows, *(report.hidden or [])]
    if tuning is None:
        return None
    choices = selection_error.row_choices(
        tuning, {row.name: [math.log(x) for x in row.ppl.by_seed.values()] for row in rows}
    )
    return replace(
        tuning, rows=[replace(r, other=choices[r.row].other) if r.row in choices else r for r in tuning.rows]
    )


def notes(tuning: TuningSummary, report: Summary) -> list[str]:
    tried, seeds = ", ".join(map(str, tuning.values)), ", ".join(map(str, tuning.seeds))
    return [
        f"tuned: every row at its best {tuning.key} of {len(tuning.values)} ({tried}), chosen by dev PPL at seed "
        f"{seeds}, apart from the seeds shown; {cost(tuning)}",
        "tuned: " + "; ".join(f"{value} for {', '.join(names)}" for value, names in _rows_by_value(tuning).items()),
        *_how_sure(tuning),
    ]


def _how_sure(tuning: TuningSummary) -> list[str]:
    """Which choices are open, and what intervals and p hold of it."""
    if all(row.other is None for row in tuning.rows):
        return []
    is_open = [
        f"{row.row} ({100 * row.other:.0f} %)" for row in tuning.rows if row.other and row.other > selection_error.OPEN
    ]
    certainty = (
        f"uncertain for {', '.join(is_open)}, the estimated chance that other seeds would choose otherwise"
        if is_open
        else "clear"
    )
    return [f"tuned: the choice is {certainty}; its error is part of intervals and p of the differences"]


def cost(tuning: TuningSummary) -> str:
    """Of the choice, in words."""
    if tuning.runs is None or tuning.seconds is None or tuning.flops is None:
        return f"its runs are from the study {tuning.study}"
    return f"the choice took {tuning.runs} runs, {tuning.seconds:,.0f} s and {tuning.flops:.2e} FLOPs ({tuning.study})"


def _rows_by_value(tuning: TuningSummary) -> dict[str, list[str]]:
    """Value in words -> the rows that took it."""
    rows_by_value: dict[str, list[str]] = {}
    for value in tuning.values:
        names = [row.row for row in tuning.rows if row.value == value]
        if names:
            edge = " (at the edge of what was tried)" * at_edge(value, tuning.values)
            rows_by_value[f"{value}{edge}"] = names
    return rows_by_value


def best_of(tuning: TuningSummary, row: str) -> Any:
    """The value that a row took; None where the row joined later."""
    return next((tuned.value for tuned in tuning.rows if tuned.row == row), None)


def sections(tuning: TuningSummary, report: Summary) -> list[Section]:
    about = [
        "mean over the tuning seeds",
        "the cost covers every value tried for every row, before the first of the seeds that are shown",
    ]
    blocks: list[Block] = [Text(notes(tuning, report)), table(tuning), Notes(about)]
    return [Section("tuning", "How every row was tuned", blocks, after="verdicts")]


def table(tuning: TuningSummary) -> Table:
    """Mean dev PPL of every row at every value."""
    ppl = [[row.ppl.get(str(value)) for value in tuning.values] for row in tuning.rows]
    rows = [
        [f"{row.row}: {row.value}", *(NOTHING if value is None else f"{value:.4g}" for value in line)]
        for row, line in zip(tuning.rows, ppl, strict=True)
    ]
    title = f"Dev PPL by row and its choice (down) and {tuning.key} (across), seed {', '.join(map(str, tuning.seeds))}"
    return Table(title, columns("", *map(str, tuning.values)), rows)


ANALYSIS = Analysis(key="tuning", find=find, sections=sections, notes=notes, brief=notes, without_tests=True)
