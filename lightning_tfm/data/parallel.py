"""How parallel files are read, and held to the checksums that they were named by."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError


def read_pairs(source: Path, target: Path, named: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Lines of two files, plain or gzip, by line. Raises UserError where one is empty or they differ in length.

    And, at the end, where the bytes that were read are not those of `named`, sha256 of both files.
    """
    with _HashedFile(source) as source_file, _HashedFile(target) as target_file:
        counts = [0, 0]
        for pair in zip_longest(_read(source_file), _read(target_file)):
            for side in (0, 1):
                counts[side] += pair[side] is not None
            if None not in pair:
                yield pair
        for file, expected in zip((source_file, target_file), named, strict=False):
            check_unchanged(file.sha256.hexdigest(), expected, str(file.path))
    for path, count in zip((source, target), counts, strict=True):
        if not count:
            raise UserError(f"{path} is empty: give it one sentence per line, line n of both languages together")
    if counts[0] != counts[1]:
        raise UserError(
            f"{source} has {counts[0]} lines, {target} has {counts[1]}: "
            "line n of both files must belong together; was one truncated, or split at more than line feeds?"
        )


def read_lines(path: Path, expected: str = "") -> Iterator[str]:
    """Lines of one file, plain or gzip. Raises UserError where its bytes are not those of `expected`, their sha256."""
    with _HashedFile(path) as file:
        yield from _read(file)
        if expected:
            check_unchanged(file.sha256.hexdigest(), expected, str(path))


def check_unchanged(found: str, expected: str, what: str) -> None:
    """Raise UserError where what was read is not what the store is named by."""
    if found != expected:
        raise UserError(
            f"{what} changed while it was read (sha256 {expected[:12]}… when it was named, {found[:12]}… when it was "
            "read): run the same command again when nothing writes to it"
        )


class _HashedFile(io.RawIOBase):
    """A file open for reading; `sha256` is that of the bytes that were read."""

    def __init__(self, path: Path):
        self.path, self.sha256, self._file = path, hashlib.sha256(), path.open("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:count])
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _read(hashed: _HashedFile) -> Iterator[str]:
    path, raw = hashed.path, io.BufferedReader(hashed, 1 << 17)
    try:
        for number, line in enumerate(gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw):
            text = line.decode("utf-8-sig" if number == 0 else "utf-8", errors="surrogateescape")
            yield text.removesuffix("\n").removesuffix("\r")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file ({error}): fetch or compress it again") from error
