"""Writes the splits of a token store (store.py)."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lightning_tfm.data.store import SIDES, id_type, path_of
from lightning_tfm.durable import sync_file


class SplitWriter:
    """Writes one split into `folder`, batch by batch. `counts`, of `flush`, appends to what was written by then."""

    def __init__(self, folder: Path, name: str, V: int, keep_text: bool, counts: dict[str, int] | None = None):
        kinds = ("ids", "offsets", "txt") if keep_text else ("ids", "offsets")
        paths = {(side, kind): path_of(folder, name, side, kind) for side in SIDES for kind in kinds}
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
