"""The suite for users' corpora: a sound one passes, and every check fails on a corpus that breaks what it is about."""

from unittest import SkipTest

import pytest

from lightning_tfm.config import Data
from lightning_tfm.errors import UserError
from lightning_tfm.testing import CorpusSuite
from tests.testing import corpora

DATA = Data(pairs=300, vocab_size=40)


class TestNumbers(CorpusSuite):
    corpus, data = "tests.testing.corpora.Numbers", DATA


def run(corpus: type, check: str) -> None:
    suite = type("TestOne", (CorpusSuite,), {"corpus": f"{corpora.__name__}.{corpus.__name__}", "data": DATA})
    getattr(suite(), check)()


BROKEN = [
    (corpora.HasTriples, "test_pairs", "val, pair 1|train, pair 1: expected a tuple of two strings"),
    (corpora.IsEmpty, "test_pairs", "train has no pair"),
    (corpora.HasLineBreaks, "test_no_line_is_broken", "train, pair 1: line break"),
    (corpora.HasLineEnds, "test_no_line_is_broken", "train, pair 1: a line end"),
    (corpora.NamesOneSide, "test_languages_and_names", "call both sides of train"),
    (corpora.TranslatesIntoItself, "test_languages_and_names", "source and target are"),
    (corpora.KnowsEverySplit, "test_an_unknown_split_is_refused_in_words", "gives 300 pairs"),
    (corpora.NamesNoSplit, "test_an_unknown_split_is_refused_in_words", "does not name the split"),
    (corpora.ReadsOnce, "test_the_second_reading_is_the_first", "train read again is a different text"),
    (corpora.ShufflesAnew, "test_the_second_reading_is_the_first", "train read again is a different text"),
    (corpora.HasOneHandle, "test_readings_do_not_disturb_each_other", "two readings alternate"),
    (corpora.ReadsASet, "test_another_process_reads_the_same", "a different text in another process"),
    (corpora.TakesTheTimeForAFingerprint, "test_the_fingerprint_stays", "changes by itself"),
    (corpora.LosesTrackOfItsText, "test_the_fingerprint_follows_the_text", "same fingerprint"),
    (corpora.TrainsOnHeldOutText, "test_held_out_text_is_not_trained_on", "20 held-out pairs"),
    (corpora.LosesAPairAtTheSecondReading, "test_it_can_be_prepared", "changed while it was read"),
]


@pytest.mark.parametrize(("corpus", "check", "words"), BROKEN)
def test_a_broken_corpus_is_caught(corpus, check, words):
    with pytest.raises((AssertionError, UserError), match=words):
        run(corpus, check)


def test_every_check_is_seen_to_fail():
    assert {check for _, check, _ in BROKEN} == {name for name in dir(CorpusSuite) if name.startswith("test_")}


def test_a_fingerprint_that_cannot_be_checked_is_skipped_and_says_so():
    with pytest.raises(SkipTest, match=r"override altered\(\)"):
        run(corpora.IsAlwaysTheSame, "test_the_fingerprint_follows_the_text")
