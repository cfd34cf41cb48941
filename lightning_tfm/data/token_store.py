"""Piece ids on disk: per split and side one flat array and the offsets of its sentences, memory-mapped.

Every worker on a machine shares the pages. Nothing is read until it is needed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from lightning_tfm.atomic_io import sync_file
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
        self._offsets = [_open(path_of(folder, name, side, "offsets"), np.int64) for side in SIDES]
        self._ids = [_open(path_of(folder, name, side, "ids"), id_type(V)) for side in SIDES]
        for side, ids, offsets in zip(SIDES, self._ids, self._offsets, strict=True):
            if not len(offsets) or len(ids) != offsets[-1] or len(offsets) != len(self._offsets[0]):
                path = path_of(folder, name, side, "ids")
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

    def take(self, lines: Iterable[int]) -> "EncodedText":
        """These lines, in this order (not of training, whose text was not kept)."""
        numbers, text = list(lines), list(zip(self.source_text(), self.target_text(), strict=True))
        sources, targets = ([side(i) for i in numbers] for side in (self.source, self.target))
        return EncodedText(sources, targets, [text[i] for i in numbers])

    def _text(self, side: str) -> list[str]:
        return path_of(self._folder, self._name, side, "txt").read_bytes().decode().split("\n")[:-1]


def path_of(folder: Path, name: str, side: str, kind: str) -> Path:
    """The file that holds the ids, offsets or txt of one side of a split."""
    return folder / f"{name}.{side}.{kind}"


def _open(path: Path, kind: type[np.generic]) -> np.ndarray:
    try:
        if not path.stat().st_size:
            return np.zeros(0, dtype=kind)
        return np.memmap(path, dtype=kind, mode="r").view(np.ndarray)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): remove {path.parent}; it will be made again") from error


class SplitWriter:
    """Writes one split into `folder`, batch by batch."""

    def __init__(self, folder: Path, name: str, V: int, keep_text: bool):
        kinds = ("ids", "offsets", "txt") if keep_text else ("ids", "offsets")
        self._files = {(side, kind): path_of(folder, name, side, kind).open("wb") for side in SIDES for kind in kinds}
        self._type, self._keep_text = id_type(V), keep_text
        self._ends = dict.fromkeys(SIDES, 0)
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

    def close(self) -> None:
        """Files that survive a loss of power."""
        for file in self._files.values():
            file.flush()
            sync_file(Path(file.name))
            file.close()


@dataclass(frozen=True)
class EncodedText:
    """As `Split`, in memory: pairs of id arrays and the raw text."""

    sources: list[np.ndarray]
    targets: list[np.ndarray]
    pairs: list[tuple[str, str]]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def source_lengths(self) -> np.ndarray:
        return np.array([len(row) for row in self.sources], dtype=np.int64)

    @property
    def target_lengths(self) -> np.ndarray:
        return np.array([len(row) for row in self.targets], dtype=np.int64)

    def source(self, i: int) -> np.ndarray:
        return self.sources[i]

    def target(self, i: int) -> np.ndarray:
        return self.targets[i]

    def source_text(self) -> list[str]:
        return [pair[0] for pair in self.pairs]

    def target_text(self) -> list[str]:
        return [pair[1] for pair in self.pairs]
