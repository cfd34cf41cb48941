"""Synthetic studies (see synthetic.py)."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Generator


@pytest.fixture
def generator(tmp_path) -> Callable[..., Generator]:
    def make(rows, seeds, name="made"):
        return Generator(tmp_path, rows, seeds, name)

    return make
