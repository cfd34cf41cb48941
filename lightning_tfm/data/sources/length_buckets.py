"""The lines that are scored by their length beyond the training length, of any split of any corpus.

Lengths are in pieces with the end token, as `data.max_len` cuts them, and in multiples of the training length: CLASSES
classes of half a training length each, by the longer side, the last of them up to five times. LINES lines of each are
scored, evenly spread over the split; a split that has fewer gives all. Longer lines are left out.
"""

import hashlib
from functools import cached_property

import numpy as np

from lightning_tfm.config import Data, Experiment
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.token_store import EncodedText, Split
from lightning_tfm.errors import UserError
from lightning_tfm.registry import SCHEMES

FARTHEST = 5
"""times the training length: as chains.FARTHEST, whose file nothing that reads a text needs"""
PER_LIMIT = 2
"""classes to a training length"""
CLASSES = FARTHEST * PER_LIMIT
LINES = 50
"""of each class"""


def class_of(lengths: np.ndarray, limit: int) -> np.ndarray:
    """Numbers of the classes, from 0: class i holds lengths above i / PER_LIMIT limits, up to (i + 1) / PER_LIMIT."""
    return -(-PER_LIMIT * np.asarray(lengths) // limit) - 1


def sample_by_length(source_lengths: np.ndarray, target_lengths: np.ndarray, limit: int) -> np.ndarray:
    """Numbers of the lines to score, in order. Lengths with the end token."""
    classes = class_of(np.maximum(source_lengths, target_lengths), limit)
    chosen = []
    for i in range(CLASSES):
        there = np.flatnonzero(classes == i)
        count = min(LINES, len(there))
        chosen.append(there[np.arange(count) * len(there) // max(count, 1)])
    return np.sort(np.concatenate(chosen))


class LongText:
    """As `dataset.Prepared`, with the lines of `data.long` that are scored by length as its one split."""

    def __init__(self, prepared: Prepared, data: Data):
        self.tokenizer, self.limit = prepared.tokenizer, data.training_length
        self._prepared, self._name = prepared, data.long

    @cached_property
    def lines(self) -> np.ndarray:
        """Numbers of the lines in the split. Raises UserError where none is long or there is none to compare with."""
        split, limit = self._prepared.split(self._name), self.limit
        chosen = sample_by_length(split.source_lengths + 1, split.target_lengths + 1, limit)
        longer = np.maximum(split.source_lengths, split.target_lengths)[chosen] + 1
        within = (longer <= limit) & (PER_LIMIT * longer > limit)
        for there, words in ((longer > limit, "above"), (within, "from half to the whole of")):
            if not there.any():
                raise UserError(
                    f"data.long={self._name}: no line of it is {words} the training length of {limit} tokens (up to "
                    f"{FARTHEST} times of it are scored): set data.long_from, or data.max_len, or name another split"
                )
        return chosen

    def split(self, name: str) -> EncodedText:
        return self._prepared.split(self._name).take(self.lines)

    def fingerprint(self, name: str) -> str:
        """sha256 over the text and which of its lines are scored, in which classes."""
        which = hashlib.sha256(self.lines.astype("<i8").tobytes()).hexdigest()
        text = f"{self._prepared.fingerprint(self._name)} by length {self.limit} {PER_LIMIT} {which}"
        return hashlib.sha256(text.encode()).hexdigest()


def check_reach(experiment: Experiment, prepared: Prepared, name: str) -> None:
    """Raise UserError where learned positions end before a line to be scored does.

    They are not made longer by themselves: `model.max_positions` is a part of the model and its name. Beyond the
    training length their vectors are there, as they were drawn, and nothing has trained them. Of `data.long` the table
    has to reach a translation of the longest length, too, lest it be cut where other schemes' are not.
    """
    m, data = experiment.model, experiment.data
    ends_at = SCHEMES.traits(m.positions).ends_at
    if not ends_at:
        return
    texts: list[tuple[str, Split | EncodedText, int]] = []
    texts += [(split, prepared.split(split), 0) for split in (data.dev, data.test) if split]
    if data.long:
        texts.append((data.long, LongText(prepared, data).split(data.long), experiment.evaluation.extra_len))
    for split, text, extra in texts:
        source, target = text.source_lengths + 1, text.target_lengths + 1
        longest = max(int(source.max()) + extra, int(target.max()))
        if m.one_stack:
            longest = max(2 * int(source.max()) + extra, int((source + target).max()))
        if longest > getattr(m, ends_at):
            more = f" with evaluation.extra_len={extra} tokens for the translation" if extra else ""
            raise UserError(
                f"{name}: the longest line of '{split}' takes {longest} positions{more}, and model.positions="
                f"{m.positions} has vectors for {getattr(m, ends_at)}: set model.{ends_at} to {longest} or more for "
                "all rows"
            )
