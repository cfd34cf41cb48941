"""What a corpus is, and how parallel files are read."""

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from lightning_tfm.errors import UserError


class Corpus(ABC):
    """Parallel text. Attributes: `source` and `target`, the language codes."""

    source: str
    target: str

    @abstractmethod
    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        """Raw pairs of a split, in order, without line ends.

        Bytes that are not UTF-8 come as surrogates (`errors="surrogateescape"`); `prepare` reports them.
        """

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """Text that changes whenever `lines(split)` would: cheap, for it is asked for on every start.

        The source of a class of your own is added by `corpus_fingerprint`; name what lies outside: files, a seed.
        """

    @abstractmethod
    def name(self, split: str, language: str) -> str:
        """What errors call one side of a split, e.g. the path of its file."""


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Lines of two files, plain or gzip, by line. Raises UserError where one is empty or they differ in length."""
    counts = [0, 0]
    for pair in zip_longest(_read(source), _read(target)):
        for side in (0, 1):
            counts[side] += pair[side] is not None
        if None not in pair:
            yield pair
    for path, count in zip((source, target), counts, strict=True):
        if not count:
            raise UserError(f"{path} is empty: give it one sentence per line, line n of both languages together")
    if counts[0] != counts[1]:
        raise UserError(
            f"{source} has {counts[0]} lines, {target} has {counts[1]}: "
            "line n of both files must belong together; was one truncated, or split at more than line feeds?"
        )


def _read(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file):
                text = line.decode("utf-8-sig" if number == 0 else "utf-8", errors="surrogateescape")
                yield text.removesuffix("\n").removesuffix("\r")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file ({error}): fetch or compress it again") from error
