"""Synthetic studies (see synthetic.py)."""

from collections.abc import Callable, Iterator

import pytest

from tests.report.synthetic import Generator


@pytest.fixture
def generator(tmp_path) -> Callable[..., Generator]:
    def make(rows, seeds, name="made"):
        return Generator(tmp_path, rows, seeds, name)

    return make


@pytest.fixture(autouse=True, scope="module")
def few_seeds() -> Iterator[None]:
    """Two seeds are enough for a verdict, so that studies are small; the rule has tests of its own, in test_verdict."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning_tfm.report.statistics.LEAST", 2)
        yield
