"""A scored text by the length of its lines, if that is its purpose (data/sources/length_buckets.py)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lightning_tfm.bleu import bleu
from lightning_tfm.data.sources.length_buckets import CLASSES, FARTHEST, PER_LIMIT, class_of
from lightning_tfm.runs.record import ByLength, LengthClass
from lightning_tfm.training.evaluate import Line, perplexity


def by_length(
    lines: list[Line],
    hypotheses: list[str],
    references: list[str],
    lengths: tuple[np.ndarray, np.ndarray],
    limit: int,
    tokenize: str,
) -> ByLength:
    """The score of each class of lengths that has lines: by the longer side, by the source's and by the target's.

    And of all lines from half a training length to a whole one, and of all beyond, as two classes of the side `both`.
    `lengths`: of sources and targets, in pieces with the end token. A text without a source has no hypotheses.
    """
    sides = {"longer": np.maximum(*lengths), "source": lengths[0], "target": lengths[1]}
    texts = lines, hypotheses, references, tokenize
    buckets = []
    for side, of_lines in sides.items():
        classes = class_of(of_lines, limit)
        for i in range(CLASSES):
            there = np.flatnonzero(classes == i).tolist()
            if there:
                buckets.append(_class(there, side, i / PER_LIMIT, (i + 1) / PER_LIMIT, *texts))
    for above, upto in ((1 / PER_LIMIT, 1), (1, FARTHEST)):
        there = np.flatnonzero((sides["longer"] > above * limit) & (sides["longer"] <= upto * limit)).tolist()
        buckets.append(_class(there, "both", float(above), float(upto), *texts))
    return ByLength(limit=limit, classes=buckets)


def _class(
    there: Sequence[int],
    side: str,
    above: float,
    upto: float,
    lines: list[Line],
    hypotheses: list[str],
    references: list[str],
    tokenize: str,
) -> LengthClass:
    lines = [lines[i] for i in there]
    total = perplexity(lines)
    of_translations: dict[str, Any] = {}
    if hypotheses:
        pieces = [len(line.pieces or []) + 1 for line in lines]
        scored = bleu([hypotheses[i] for i in there], [references[i] for i in there], tokenize).value
        early = sum(2 * made_of < line.tokens for made_of, line in zip(pieces, lines, strict=True))
        of_translations = {"bleu": scored, "pieces": sum(pieces), "early": early}
    named: dict[str, Any] = {"side": side, "above": above, "upto": upto, "sentences": len(lines)}
    return LengthClass(**named, nll=total.nll, tokens=total.tokens, **of_translations)
