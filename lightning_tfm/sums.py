"""Checksums: a damaged file is refused by name, and never read as something else.

Records (JSON) carry the sha256 of all else in them under `sha256`; files beside a record are in it under `files`,
name -> sha256. Files written before there were checksums have neither and are read unchecked.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import write_atomic
from lightning_tfm.errors import UserError

KEY = "sha256"
RECORDED = "checksums.json"
"""of a folder of files that are written once: name -> {"sha256", "bytes", …}"""


class DamagedFile(UserError):
    """A file is not what was written; the message names it."""


def sha256(path: Path) -> str:
    """Of a file, 64 hex digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """Name -> sha256 of those of the files that are there."""
    return {path.name: sha256(path) for path in paths if path.is_file()}


def with_checksum(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a record with its checksum."""
    return {**plain, KEY: _digest(plain)}


def intact(plain: Any) -> bool:
    """Whether the content of a record is what was signed; also where it was written before there were checksums."""
    if not isinstance(plain, dict) or KEY not in plain:
        return not has_checksum(plain)
    return plain[KEY] == _digest(plain)


def has_checksum(plain: Any) -> bool:
    """Whether the content of a record is of a version that writes checksums: its own, and those of files beside it."""
    return isinstance(plain, dict) and bool(KEY in plain or plain.get("files"))


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise DamagedFile unless the files of `folder` are those of a record: name -> sha256. Absent ones pass."""
    for name, expected in files.items():
        if (folder / name).is_file() and sha256(folder / name) != expected:
            raise DamagedFile(f"{folder / name}: damaged: its content is not what its run wrote (by its checksum)")


def recorded(folder: Path) -> dict[str, dict[str, Any]]:
    """The content of its RECORDED. Raises UserError where that is damaged."""
    path = folder / RECORDED
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): put back a good copy, or remove it") from error


def check_recorded(folder: Path, prefix: str) -> None:
    """Raise DamagedFile unless the recorded files whose names begin with `prefix` are as they were recorded."""
    for name, record in recorded(folder).items():
        if name.startswith(prefix):
            path, expected = folder / name, record.get("sha256") if isinstance(record, dict) else None
            if not path.is_file() or sha256(path) != expected:
                there = f"damaged: not what {RECORDED} says of it"
                what = there if path.is_file() else f"missing, though {RECORDED} lists it"
                raise DamagedFile(f"{path}: {what}: remove {folder}; it will be made again")


def _digest(plain: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in plain.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def record_all(folder: Path) -> None:
    """Record every file of a finished folder."""
    paths = sorted(path for path in folder.iterdir() if path.name != RECORDED)
    records = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in paths}
    write_atomic(folder / RECORDED, (json.dumps(records, indent=1) + "\n").encode())
