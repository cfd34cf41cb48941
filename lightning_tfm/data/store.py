"""Piece ids on disk: per split and side one flat array and the offsets of its sentences, memory-mapped.

Every worker on a machine shares the pages. Nothing is read until it is asked for.
"""

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np

from lightning_tfm.durable import sync_file
from lightning_tfm.errors import UserError

SIDES = ("source", "target")


def id_type(V: int) -> type[np.generic]:
    """The smallest integer type that holds V ids."""
    return np.uint16 if V < 65536 else np.int32


class Split:
    """One split of a store: pairs of id arrays without begin and end, and the raw text where it was kept.

    Training pairs above data.max_len are here too; the batch plan leaves them out.
    """

    def __init__(self, folder: Path, name: str, V: int):
        self._folder, self._name = folder, name
        self._offsets = [_open(_path(folder, name, side, "offsets"), np.int64) for side in SIDES]
        self._ids = [_open(_path(folder, name, side, "ids"), id_type(V)) for side in SIDES]
        for side, ids, offsets in zip(SIDES, self._ids, self._offsets, strict=True):
            if not len(offsets) or len(ids) != offsets[-1] or len(offsets) != len(self._offsets[0]):
                path = _path(folder, name, side, "ids")
                raise UserError(f"{path} and its offsets do not match: remove {folder}; it will be made again")

    def __len__(self) -> int:
        return len(self._offsets[0]) - 1

    @cached_property
    def source_lengths(self) -> np.ndarray:
        """int64 [pairs]: source pieces without the end token."""
        return np.diff(self._offsets[0])

    @cached_property
    def target_lengths(self) -> np.ndarray:
        """int64 [pairs]: target pieces without the end token."""
        return np.diff(self._offsets[1])

    def source(self, i: int) -> np.ndarray:
        return self._ids[0][self._offsets[0][i] : self._offsets[0][i + 1]]

    def target(self, i: int) -> np.ndarray:
        return self._ids[1][self._offsets[1][i] : self._offsets[1][i + 1]]

    def source_text(self) -> list[str]:
        """Raw source lines (not kept for training)."""
        return self._text("source")

    def target_text(self) -> list[str]:
        """Raw target lines, the references (not kept for training)."""
        return self._text("target")

    def _text(self, side: str) -> list[str]:
        return _path(self._folder, self._name, side, "txt").read_bytes().decode().split("\n")[:-1]


class SplitWriter:
    """Writes one split into `folder`, batch by batch. `counts`, of `flush`, appends to what was written by then."""

    def __init__(self, folder: Path, name: str, V: int, keep_text: bool, counts: dict[str, int] | None = None):
        kinds = ("ids", "offsets", "txt") if keep_text else ("ids", "offsets")
        paths = {(side, kind): _path(folder, name, side, kind) for side in SIDES for kind in kinds}
        if counts is not None:
            for (side, kind), path in paths.items():
                os.truncate(path, counts[f"{side}.{kind}"])
        self._files = {key: path.open("wb" if counts is None else "ab") for key, path in paths.items()}
        self._type, self._keep_text = id_type(V), keep_text
        self._ends = {side: counts[f"{side}.ids"] // self._type().itemsize if counts else 0 for side in SIDES}
        if counts is None:
            for side in SIDES:
                self._files[side, "offsets"].write(np.zeros(1, dtype=np.int64).tobytes())

    def write(self, side: str, lines: Iterable[str], ids: np.ndarray, lengths: np.ndarray) -> None:
        """Append sentences to one side: their raw text (where kept), their ids in a row, and how many each has."""
        ends = self._ends[side] + np.cumsum(lengths, dtype=np.int64)
        self._ends[side] += len(ids)
        self._files[side, "offsets"].write(ends.tobytes())
        self._files[side, "ids"].write(ids.astype(self._type).tobytes())
        if self._keep_text:
            self._files[side, "txt"].write("".join(f"{line}\n" for line in lines).encode())

    def flush(self) -> dict[str, int]:
        """Bytes of every file, which now survive a loss of power."""
        for file in self._files.values():
            file.flush()
            sync_file(Path(file.name))
        return {f"{side}.{kind}": file.tell() for (side, kind), file in self._files.items()}

    def close(self) -> None:
        self.flush()
        for file in self._files.values():
            file.close()


def _path(folder: Path, name: str, side: str, kind: str) -> Path:
    return folder / f"{name}.{side}.{kind}"


def _open(path: Path, kind: type[np.generic]) -> np.ndarray:
    try:
        if not path.stat().st_size:
            return np.zeros(0, dtype=kind)
        return np.memmap(path, dtype=kind, mode="r").view(np.ndarray)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): remove {path.parent}; it will be made again") from error
