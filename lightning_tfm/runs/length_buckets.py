"""A scored text by the length of its lines, if that is its purpose (data/sources/length_buckets.py)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_tfm.bleu import bleu
from lightning_tfm.data.sources.length_buckets import CLASSES, FARTHEST, PER_LIMIT, class_of
from lightning_tfm.runs.record import ByLength, LengthClass
from lightning_tfm.training.evaluate import Line, perplexity


@dataclass(frozen=True)
class Scored:
    """What a model made of a text, line by line."""

    lines: list[Line]
    hypotheses: list[str]
    """none for a text without a source"""
    references: list[str]
    source_lengths: np.ndarray
    """pieces with the end token, as are `target_lengths`"""
    target_lengths: np.ndarray


def by_length(made: Scored, limit: int, tokenize: str) -> ByLength:
    """The score of each class of lengths that has lines: by the longer side, by the source's and by the target's.

    And of all lines from half a training length to a whole one, and of all beyond, as two classes of the side `both`.
    """
    sides = {"longer": np.maximum(made.source_lengths, made.target_lengths)}
    sides |= {"source": made.source_lengths, "target": made.target_lengths}
    buckets = []
    for side, lengths in sides.items():
        classes = class_of(lengths, limit)
        for i in range(CLASSES):
            there = np.flatnonzero(classes == i).tolist()
            if there:
                buckets.append(_class(made, there, (side, i / PER_LIMIT, (i + 1) / PER_LIMIT), tokenize))
    for above, upto in ((1 / PER_LIMIT, 1), (1, FARTHEST)):
        there = np.flatnonzero((sides["longer"] > above * limit) & (sides["longer"] <= upto * limit)).tolist()
        buckets.append(_class(made, there, ("both", float(above), float(upto)), tokenize))
    return ByLength(limit=limit, classes=buckets)


def _class(made: Scored, there: Sequence[int], named: tuple[str, float, float], tokenize: str) -> LengthClass:
    side, above, upto = named
    lines = [made.lines[i] for i in there]
    total = perplexity(lines)
    of_translations: dict[str, Any] = {}
    if made.hypotheses:
        pieces = [len(line.pieces or []) + 1 for line in lines]
        hypotheses, references = [made.hypotheses[i] for i in there], [made.references[i] for i in there]
        early = sum(2 * made_of < line.tokens for made_of, line in zip(pieces, lines, strict=True))
        of_translations = {"bleu": bleu(hypotheses, references, tokenize).value, "pieces": sum(pieces), "early": early}
    return LengthClass(
        side=side,
        above=above,
        upto=upto,
        sentences=len(lines),
        nll=total.nll,
        tokens=total.tokens,
        **of_translations,
    )
