"""A sound corpus, and corpora that each break one rule. Without torch: other processes read them too."""

import random
import time
from collections.abc import Iterator

from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.errors import UserError


class Numbers(Corpus):
    """A sound corpus of a user's own: numbers and their digits in words."""

    source, target = "digits", "words"
    words = "null eins zwei drei vier fünf sechs sieben acht neun".split()
    first = {"train": 100, "val": 5000, "test": 7000}  # noqa: RUF012

    def __init__(self, data: Data):
        self.counts = {"train": data.pairs, "val": 20, "test": 20}

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        if split not in self.first:
            raise UserError(f"there is no split '{split}'")
        for number in range(self.first[split], self.first[split] + self.counts[split]):
            yield " ".join(str(number)), " ".join(self.words[int(digit)] for digit in str(number))

    def fingerprint(self, split: str) -> str:
        return f"{split} {self.counts}"

    def name(self, split: str, language: str) -> str:
        return f"numbers, {split}.{language}"


class HasTriples(Numbers):
    def lines(self, split):
        yield from ((*pair, split) for pair in super().lines(split))


class IsEmpty(Numbers):
    def lines(self, split):
        yield from list(super().lines(split))[:0]


class HasLineBreaks(Numbers):
    def lines(self, split):
        yield from ((source, f"{target}\nnull") for source, target in super().lines(split))


class HasLineEnds(Numbers):
    def lines(self, split):
        yield from ((source, f"{target}\r") for source, target in super().lines(split))


class NamesOneSide(Numbers):
    def name(self, split, language):
        return split


class TranslatesIntoItself(Numbers):
    target = Numbers.source


class KnowsEverySplit(Numbers):
    def lines(self, split):
        return super().lines(split if split in self.first else "train")


class NamesNoSplit(Numbers):
    def lines(self, split):
        if split not in self.first:
            raise UserError("no such split")
        return super().lines(split)


class ReadsOnce(Numbers):
    """What was read is gone."""

    def __init__(self, data):
        super().__init__(data)
        self.left = {}

    def lines(self, split):
        return self.left.setdefault(split, super().lines(split))


class ShufflesAnew(Numbers):
    def lines(self, split):
        pairs = list(super().lines(split))
        random.shuffle(pairs)
        yield from pairs


class HasOneHandle(Numbers):
    """Readings share the place at which they are."""

    at = 0

    def lines(self, split):
        pairs, self.at = list(super().lines(split)), 0
        while self.at < len(pairs):
            self.at += 1
            yield pairs[self.at - 1]


class ReadsASet(Numbers):
    def lines(self, split):
        yield from set(super().lines(split))


class LosesTrackOfItsText(Numbers):
    def fingerprint(self, split):
        return split


class TakesTheTimeForAFingerprint(Numbers):
    def fingerprint(self, split):
        return f"{time.monotonic_ns()}"


class TrainsOnHeldOutText(Numbers):
    first = Numbers.first | {"val": 150}


class LosesAPairAtTheSecondReading(Numbers):
    readings = 0

    def lines(self, split):
        self.readings += 1
        yield from list(super().lines(split))[: -1 if self.readings > 3 else None]


class IsAlwaysTheSame(Numbers):
    def __init__(self, data):
        super().__init__(Data())
