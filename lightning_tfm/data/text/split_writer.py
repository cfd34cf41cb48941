"""Writes the splits of a token store (store.py)."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lightning_tfm.atomic_io import sync_file
from lightning_tfm.data.token_store import SIDES, id_type, path_of


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
