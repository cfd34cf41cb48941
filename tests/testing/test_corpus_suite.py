"""The suite for a corpus of the user's own passes what is right and finds what is broken."""

import random
import time
from collections.abc import Iterator
from unittest import SkipTest

import pytest

from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.errors import UserError
from lightning_tfm.testing import CorpusSuite


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


DATA = Data(pairs=300, vocab_size=40)


class TestNumbers(CorpusSuite):
    corpus, data = f"{__name__}.Numbers", DATA


def run(corpus: type, check: str) -> None:
    suite = type("TestOne", (CorpusSuite,), {"corpus": f"{__name__}.{corpus.__name__}", "data": DATA})
    getattr(suite(), check)()


BROKEN = [
    (HasTriples, "test_pairs", "val, pair 1|train, pair 1: expected a tuple of two strings"),
    (IsEmpty, "test_pairs", "train has no pair"),
    (HasLineBreaks, "test_no_line_is_broken", "train, pair 1: line break"),
    (HasLineEnds, "test_no_line_is_broken", "train, pair 1: a line end"),
    (NamesOneSide, "test_languages_and_names", "call both sides of train"),
    (TranslatesIntoItself, "test_languages_and_names", "source and target are"),
    (KnowsEverySplit, "test_an_unknown_split_is_refused_in_words", "gives 300 pairs"),
    (NamesNoSplit, "test_an_unknown_split_is_refused_in_words", "does not name the split"),
    (ReadsOnce, "test_the_second_reading_is_the_first", "train read again is a different text"),
    (ShufflesAnew, "test_the_second_reading_is_the_first", "train read again is a different text"),
    (HasOneHandle, "test_readings_do_not_disturb_each_other", "two readings alternate"),
    (ReadsASet, "test_another_process_reads_the_same", "a different text in another process"),
    (TakesTheTimeForAFingerprint, "test_the_fingerprint_stays", "changes by itself"),
    (LosesTrackOfItsText, "test_the_fingerprint_follows_the_text", "same fingerprint"),
    (TrainsOnHeldOutText, "test_held_out_text_is_not_trained_on", "20 held-out pairs"),
    (LosesAPairAtTheSecondReading, "test_it_can_be_prepared", "changed while it was read"),
]


@pytest.mark.parametrize(("corpus", "check", "words"), BROKEN)
def test_a_broken_corpus_is_caught(corpus, check, words):
    with pytest.raises((AssertionError, UserError), match=words):
        run(corpus, check)


def test_every_check_is_seen_to_fail():
    assert {check for _, check, _ in BROKEN} == {name for name in dir(CorpusSuite) if name.startswith("test_")}


def test_a_fingerprint_that_cannot_be_checked_is_skipped_and_says_so():
    with pytest.raises(SkipTest, match=r"override altered\(\)"):
        run(IsAlwaysTheSame, "test_the_fingerprint_follows_the_text")
