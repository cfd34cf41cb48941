"""The score of translations by the length of the reference."""

import numpy as np

from lightning_tfm.metrics import OF_TEXT, PPL
from lightning_tfm.plural_words import signed
from lightning_tfm.report.blocks import Section, Table, Text, columns
from lightning_tfm.report.records import Cells, score_of
from lightning_tfm.report.summary import Analysis, Summary
from lightning_tfm.report.tables.columns import name_cell, row_labels

BINS = 5
Lengths = tuple[list[str], dict[str, list[float]]]
"""(bins of the reference's length in pieces, row -> score of each bin, pooled over seeds)"""


def sections(scores: Lengths, report: Summary) -> list[Section]:
    """Of what rows are compared with, then of each how far it is from that, shaded."""
    heads, by_row = scores
    to = by_row.get(report.against.name, []) if report.against else []
    gaps = {row: [a - b for a, b in zip(values, to, strict=True)] for row, values in by_row.items()} if to else {}
    most = max((abs(gap) for row in gaps.values() for gap in row), default=0.0) or 1.0
    called, rows, shades = row_labels(report.rows), [], []
    for row, values in by_row.items():
        own = gaps.get(row) if report.against is None or row != report.against.name else None
        rows.append([name_cell(row, called), *(map(signed, own) if own else (f"{value:.1f}" for value in values))])
        shades.append([0, *(round(40 * gap / most) for gap in own or [0.0] * len(values))])
    beside = f" Rows beside {report.to}: the difference to it." * bool(to)
    about = Text([f"By tokens of the reference, pooled over seeds.{beside}"])
    table = Table("", columns("row", *heads), rows, shades=shades)
    return [Section("lengths", f"{OF_TEXT.label} by length", [about, table], after="architecture")]


def find(cells: Cells, report: Summary) -> Lengths | None:
    some = next(iter(cells.filled.values()), None)
    if some is None or any(OF_TEXT.name not in cell.sums for cell in cells.filled.values()):
        return None
    tokens = some.sums[PPL.name][:, 1]
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, BINS + 1)))
    where = np.clip(np.searchsorted(edges, tokens, side="left") - 1, 0, max(len(edges) - 2, 0))
    used = [b for b in range(max(len(edges) - 1, 1)) if (where == b).any()]
    heads = [f"{int(tokens[where == b].min())}–{int(tokens[where == b].max())}" for b in used]
    scores = {}
    for name in (row.name for row in report.rows if not row.diverged):
        if runs := cells.of(name):
            total = [sum(c.sums[OF_TEXT.name][where == b].sum(0) for c in runs) for b in used]
            scores[name] = [float(score_of(OF_TEXT)(np.asarray(sums))) for sums in total]
    return (heads, scores) if scores else None


ANALYSIS = Analysis(key="lengths", find=find, sections=sections, json=False)
