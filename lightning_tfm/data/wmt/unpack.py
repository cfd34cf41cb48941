"""Files out of archives that strangers made: only the requested members, only plain files, under our names."""

import gzip
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from lightning_tfm.archives import BROKEN, fault
from lightning_tfm.atomic_io import replacing
from lightning_tfm.errors import UserError

TARS = (".tgz", ".tar.gz", ".tar", ".tar.xz")


def check_archive(path: Path, name: str) -> str:
    """What is wrong with the archive in `path` (called `name`), read to its end; "" if nothing, or no archive."""
    try:
        if name.endswith(TARS):
            with tarfile.open(path) as tar:
                for member in tar:
                    if wrong := fault(member):
                        return wrong
        if name.endswith((".gz", ".tgz")):  # to the end of the stream, where its checksum is: tarfile stops before
            with gzip.open(path) as file:
                while file.read(1 << 20):
                    pass
    except BROKEN as error:
        return f"not a complete archive ({error})"
    return ""


def extract(archive: Path, members: dict[str, Path]) -> None:
    """Write members of a tar, or the file itself where it is not one, to the paths given: each whole or absent.

    Raises UserError where a member is missing or not a regular file, or where the archive holds names that lead out
    of a folder.
    """
    if not archive.name.endswith(TARS):
        (path,) = members.values()
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open("rb") as stream, replacing(path) as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        return
    try:
        _extract(archive, dict(members))
    except BROKEN as error:
        raise UserError(
            f"{archive} is not a complete archive ({error}): remove it, and it will be fetched again"
        ) from error


def _extract(archive: Path, missing: dict[str, Path]) -> None:
    listed = []
    with tarfile.open(archive) as tar:
        for member in tar:
            if wrong := fault(member):
                raise UserError(f"{archive}: {wrong}; nothing was unpacked")
            name = str(PurePosixPath(member.name))
            listed.append(name)
            if name not in missing:
                continue
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is None:
                raise UserError(f"{archive}: '{name}' is not a regular file")
            path = missing.pop(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            if not missing:
                return
    if missing:
        names = ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
        raise UserError(f"{archive} lacks {', '.join(missing)}; it holds: {names or 'nothing'}")
