"""What a file was when it was first used: sizes and checksums, checked ever after."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning_tfm.durable import locked, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.sums import DamagedFile, sha256

NAME = "checksums.json"


class Checksums:
    """`checksums.json` of a folder: file name relative to the folder -> {"sha256", "bytes", …}."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / NAME

    def read(self) -> dict[str, dict[str, Any]]:
        """All records. Raises UserError where the file is damaged."""
        try:
            return json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise UserError(f"{self.path} is damaged ({error}): put back a good copy, or remove it") from error

    def add(self, name: str, **facts: Any) -> None:
        """Record `name`, in one step; what other processes recorded stays."""
        with locked(self.folder / ".checksums.lock"):
            write_atomic(self.path, (json.dumps(self.read() | {name: facts}, indent=1, sort_keys=True) + "\n").encode())

    def find(self, name: str) -> dict[str, Any] | None:
        return self.read().get(name)

    def whole(self, name: str) -> bool:
        """Whether `name` is recorded and lies there in its recorded size. Raises UserError where the size differs."""
        record, path = self.find(name), self.folder / name
        if record is None or not path.is_file():
            return False
        if path.stat().st_size != record["bytes"]:
            raise UserError(
                f"{path} has {path.stat().st_size} bytes, but {record['bytes']} when it was first used: "
                "it was changed or truncated; remove it, and it will be fetched again"
            )
        return True

    def check(self, prefix: str) -> None:
        """Raise DamagedFile unless the recorded files whose names begin with `prefix` are as they were recorded."""
        for name, record in self.read().items():
            if name.startswith(prefix):
                path, expected = self.folder / name, record.get("sha256") if isinstance(record, dict) else None
                if not path.is_file() or sha256(path) != expected:
                    what = (
                        f"damaged: not what {NAME} says of it" if path.is_file() else f"missing, though {NAME} lists it"
                    )
                    raise DamagedFile(f"{path}: {what}: remove {self.folder}; it will be made again")

    def verify(self) -> Iterator[tuple[str, str]]:
        """(name, what is wrong with it) for every recorded file: "" for nothing, "absent" where it is not there."""
        for name, record in self.read().items():
            path = self.folder / name
            if not path.is_file():
                yield name, "absent"
            elif path.stat().st_size != record["bytes"]:
                yield name, f"{path.stat().st_size} bytes, {record['bytes']} expected"
            else:
                found = sha256(path)
                yield name, "" if found == record["sha256"] else f"sha256 {found}, {record['sha256']} expected"


def record_all(folder: Path) -> None:
    """Record every file of a finished folder."""
    paths = sorted(path for path in folder.iterdir() if path.name != NAME)
    records = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in paths}
    write_atomic(folder / NAME, (json.dumps(records, indent=1) + "\n").encode())
