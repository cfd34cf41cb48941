"""Studies that nobody trained (tests/helpers/studies.py), judged by two seeds."""

from collections.abc import Callable, Iterator

import pytest

from tests.helpers.studies import Generator


@pytest.fixture
def generator(tmp_path) -> Callable[..., Generator]:
    def make(rows, seeds, name="made"):
        return Generator(tmp_path, rows, seeds, name)

    return make


@pytest.fixture(autouse=True, scope="module")
def few_seeds(counted_once: None) -> Iterator[None]:
    """Two seeds are enough for a verdict, so that studies are small; the rule has tests of its own, in test_verdict."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning_tfm.report.stats.statistics.LEAST", 2)
        yield
