"""Studies that nobody trained (tests/helpers/studies.py), judged by two seeds."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pytest

from lightning_tfm.corpus_metrics import Bleu
from tests.helpers.studies import Generator


@pytest.fixture
def generator(tmp_path) -> Callable[..., Generator]:
    def make(rows, seeds, name="made"):
        return Generator(tmp_path, rows, seeds, name)

    return make


@pytest.fixture(autouse=True, scope="module")
def few_seeds() -> Iterator[None]:
    """Two seeds are enough for a verdict, so that studies are small; the rule has tests of its own, in test_verdict."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning_tfm.report.stats.statistics.LEAST", 2)
        yield


@pytest.fixture(autouse=True, scope="module")
def counted_once() -> Iterator[None]:
    """The studies of a module share most translations: all its counters of one text remember what one has counted."""
    begin = Bleu.__init__

    @cache
    def counter(references: tuple[str, ...], tokenize: str) -> Bleu:
        made = Bleu.__new__(Bleu)
        begin(made, references, tokenize)
        return made

    def share(self: Bleu, references: Sequence[str], tokenize: str) -> None:
        self.__dict__ = counter(tuple(references), tokenize).__dict__

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bleu, "__init__", share)
        yield
