"""What the page's script draws of the attention that `report --collect` wrote into the runs' folders.

A weight is one character, 0 to 63 in 63rds, so that a hundred runs fit into a page: exact to 0.008.
"""

import math
import string
from collections.abc import Sequence
from typing import Any

from lightning_tfm.report.pages import provenance
from lightning_tfm.report.records import Cells, FilledCell

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
MOST = 2_500_000
"""characters of all weights in a page"""
KINDS = ("encoder", "decoder", "cross")


def attention(cells: Cells, most: int = MOST) -> dict[str, Any]:
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
        record = provenance.collected(cell, "attention")
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
