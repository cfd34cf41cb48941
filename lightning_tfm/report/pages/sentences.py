"""Single sentences on a page: in the translation of every row, side by side; and the attention over them that
`report --collect` wrote into the runs' folders, which the page's script draws.
"""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_tfm.report.pages.provenance import quality, translated
from lightning_tfm.report.pages.shared import Parts, compared, excerpt
from lightning_tfm.report.records import Cells, FilledCell

CONTESTED = 4
"""sentences on which the rows differ most"""
SPREAD = 8
"""sentences evenly over the text"""
TRANSLATIONS = 1200
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
    room = max(3, TRANSLATIONS // len(found))
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


# --- attention: a weight is one character, 0 to 63 in 63rds, so that a hundred runs fit into a page: exact to 0.008 ---

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
WEIGHTS = 2_500_000
"""characters of all weights in a page"""
KINDS = ("encoder", "decoder", "cross")


def attention(cells: Cells, most: int = WEIGHTS) -> dict[str, Any]:
    """`sentences` (source, target_in) and `runs` (row, what people call it, seed, of each sentence its place and its
    weights).

    The first seed of every row comes first; runs beyond `most` characters are left out, and counted in `left_out`.
    Empty where nothing was collected.
    """
    sentences: list[dict[str, list[str]]] = []
    runs: list[dict[str, Any]] = []
    used, left_out = 0, 0
    called = {row.name: row.label or row.name for row in cells.study.rows}
    for cell in _by_seed(cells):
        record = cell.collected("attention")
        if not record:
            continue
        shown = [_sentence(sentence, sentences) for sentence in record["sentences"]]
        size = sum(
            len(head) for sentence in shown for kind in KINDS for layer in sentence[kind] for head in layer["heads"]
        )
        if runs and used + size > most:
            left_out += 1
            continue
        used += size
        runs.append({"row": cell.row, "called": called[cell.row], "seed": cell.seed, "sentences": shown})
    if not runs:
        return {}
    order = {row.name: i for i, row in enumerate(cells.study.rows)}
    runs.sort(key=lambda run: (order[run["row"]], run["seed"]))
    return {"alphabet": ALPHABET, "sentences": sentences, "runs": runs, "left_out": left_out}


def _by_seed(cells: Cells) -> list[FilledCell]:
    """The first run of every row, base's first, then the second ones."""
    place = {row.name: i for i, row in enumerate(cells.study.rows)}
    every = [
        (i, row != cells.study.base_row, place[row], cell) for row in place for i, cell in enumerate(cells.of(row))
    ]
    return [cell for *_, cell in sorted(every, key=lambda entry: entry[:3])]


def _sentence(record: dict[str, Any], known: list[dict[str, list[str]]]) -> dict[str, Any]:
    """Its place among the sentences, and of each kind and layer the heads' weights and entropies in bit."""
    words = {"source": record["source"], "target_in": record["target_in"]}
    if words not in known:
        known.append(words)

    def letters(head: Sequence[Sequence[int]]) -> str:
        """Thousandths [query][key], row after row."""
        return "".join(ALPHABET[min(63, max(0, round(w * 63 / 1000)))] for row in head for w in row)

    kinds = {
        kind: [{"heads": list(map(letters, layer)), "bits": list(map(_bits, layer))} for layer in record[kind]]
        for kind in KINDS
    }
    return {"at": known.index(words)} | kinds


def _bits(head: Sequence[Sequence[int]]) -> float:
    """Mean entropy of a query's weights."""
    total = -sum(w / 1000 * math.log2(w / 1000) for row in head for w in row if w > 0)
    return round(total / max(len(head), 1), 2)
