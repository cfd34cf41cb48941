"""What a file was when it was first used: sizes and checksums, checked ever after."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import locked, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.sums import RECORDED, recorded, sha256


class Checksums:
    """`checksums.json` of a folder: file name relative to the folder -> {"sha256", "bytes", …}."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / RECORDED

    def add(self, name: str, **facts: Any) -> None:
        """Record `name`, in one step; what other processes recorded stays."""
        with locked(self.folder / ".checksums.lock"):
            write_atomic(
                self.path, (json.dumps(recorded(self.folder) | {name: facts}, indent=1, sort_keys=True) + "\n").encode()
            )

    def find(self, name: str) -> dict[str, Any] | None:
        return recorded(self.folder).get(name)

    def whole(self, name: str) -> bool:
        """Whether `name` is recorded and exists in its recorded size. Raises UserError if the size differs."""
        record, path = self.find(name), self.folder / name
        if record is None or not path.is_file():
            return False
        if path.stat().st_size != record["bytes"]:
            raise UserError(
                f"{path} has {path.stat().st_size} bytes, but {record['bytes']} when it was first used: "
                "it was changed or truncated; remove it, and it will be fetched again"
            )
        return True

    def verify(self) -> Iterator[tuple[str, str]]:
        """(name, what is wrong with it) for every recorded file: "" for nothing, "absent" where it is not there."""
        for name, record in recorded(self.folder).items():
            path = self.folder / name
            if not path.is_file():
                yield name, "absent"
            elif path.stat().st_size != record["bytes"]:
                yield name, f"{path.stat().st_size} bytes, {record['bytes']} expected"
            else:
                digest = sha256(path)
                yield name, "" if digest == record["sha256"] else f"sha256 {digest}, {record['sha256']} expected"
