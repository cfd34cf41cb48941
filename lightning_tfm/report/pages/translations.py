"""The same sentences in the translation of every row, side by side."""

from dataclasses import dataclass

import numpy as np

from lightning_tfm.report.pages.provenance import quality, translated
from lightning_tfm.report.pages.shared import Parts, compared, excerpt
from lightning_tfm.report.records import Cells

CONTESTED = 4
"""sentences on which the rows differ most"""
SPREAD = 8
"""sentences evenly over the text"""
MOST = 1200
"""translations on a page"""


@dataclass(frozen=True)
class Translation:
    """Of one row; `parts`: (words, whether the reference has them there)."""

    row: str
    quality: float
    """provenance.quality, percent"""
    parts: Parts


@dataclass(frozen=True)
class Sentence:
    """One line of the dev text."""

    line: int
    source: str
    reference: str
    why: str
    rows: list[Translation]


def translations(cells: Cells) -> list[Sentence]:
    """In the order of the text; empty where the texts are not here, as with runs out of an archive."""
    if not cells.references:
        return []
    found = {row.name: lines for row in cells.study.rows if (lines := translated(cells, row.name)) is not None}
    if not found:
        return []
    scores = {row: quality(cells.of(row)) for row in found}
    spread = np.std(np.array(list(scores.values())), axis=0)
    room = max(3, MOST // len(found))
    contested = [int(i) for i in np.argsort(-spread, kind="stable")[: min(CONTESTED, room)] if spread[i] > 0]
    count = min(SPREAD, room - len(contested))
    even = [int(i) for i in np.unique(np.linspace(0, len(spread) - 1, max(count, 1)).round())]
    return [
        Sentence(
            line=i + 1,
            source=excerpt(cells.sources[i]),
            reference=excerpt(cells.references[i]),
            why="the rows differ most" if i in contested else "evenly over the text",
            rows=[
                Translation(row, 100 * float(scores[row][i]), compared(excerpt(lines[i]), cells.references[i]))
                for row, lines in found.items()
            ],
        )
        for i in sorted({*contested, *even})
    ]
