"""Parallel text made for a test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_tfm.config import Data

WORDS = "ein Haus am See steht still und der Wind weht leise durch das alte Tor".split()


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Data]:
    """Writes a folder of parallel files and returns the Data that reads it; named files replace the good ones."""

    def make(replaced: dict[str, bytes] | None = None, **settings: object) -> Data:
        folder = tmp_path / "text"
        folder.mkdir(exist_ok=True)
        for split, count, mark in (("train", 40, "nah"), ("val", 8, "laut"), ("test", 6, "leer")):
            for language, shift in (("en", 1), ("de", 2)):
                lines = [" ".join(WORDS[(i * shift) % 9 : (i * shift) % 9 + 4]) + f" {mark} {i}" for i in range(count)]
                (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
        for name, content in (replaced or {}).items():
            (folder / name).write_bytes(content)
        return Data(corpus="files", folder=str(folder), **{"vocab_size": 60, **settings})

    return make
