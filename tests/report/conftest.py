"""Synthetic studies (see synthetic.py)."""

from collections.abc import Callable

import pytest

from tests.report.synthetic import Generator


@pytest.fixture
def generator(tmp_path) -> Callable[..., Generator]:
    def make(rows, seeds, name="made"):
        return Generator(tmp_path, rows, seeds, name)

    return make
