"""Files of weights: what they hold, whose they are, and that not a bit of them has changed.

A checkpoint or snapshot is what `torch.save` writes, a zip archive; its comment says `run=<name of the run>/<name of
the file>` and the sha256 of everything before these digits. So every program that reads torch's files reads them,
and here one that was damaged, cut short, or put in another's place is recognised.
"""

import hashlib
import io
import lzma
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from lightning_tfm.sums import DamagedFile

COMMENT = re.compile(rb"lightning_tfm run=(\S+) sha256=([0-9a-f]{64})")
LONGEST = 400
"""bytes in which a comment is looked for, from the end of the file"""
END = b"PK\x05\x06"
"""begins the last 22 bytes of a zip archive without a comment"""


def serialise(value: Any) -> io.BytesIO:
    """What `torch.save` writes, in memory: a copy of all tensors in `value`."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer


def seal(buffer: io.BytesIO, owner: str) -> memoryview:
    """The content of a file that names itself `owner`, "<run>/<name of the file>", and carries its checksum."""
    data = buffer.getbuffer()
    assert data[-22:-18] == END and data[-2:] == b"\0\0", "torch.save ends with a zip archive's end"
    start = f"lightning_tfm run={owner} sha256=".encode()
    data[-2:] = (len(start) + 64).to_bytes(2, "little")
    data.release()
    buffer.seek(0, io.SEEK_END)
    buffer.write(start)
    digest = hashlib.sha256(buffer.getbuffer()).hexdigest()
    buffer.write(digest.encode())
    return buffer.getbuffer()


def write(value: Any, path: Path) -> None:
    """`torch.save` by way of memory. Raises OSError and leaves nothing where the disk is full."""
    write_weights(serialise(value).getbuffer(), path)


def write_weights(data: memoryview, path: Path) -> None:
    """Raises OSError and leaves nothing where the disk is full."""
    try:
        path.write_bytes(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def owner_of(path: Path, run: str) -> str:
    """What a file of weights says about itself. `run`: training hash."""
    return f"{run[:16]}/{path.name}"


def verify(path: Path, run: str) -> bool:
    """Whether the file carries a checksum; False for one from an earlier version that is an intact zip.

    Raises DamagedFile if it is missing, damaged, cut short, or another's.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - LONGEST))
            comment = re.search(COMMENT.pattern + rb"\Z", file.read())
            if comment is None:
                return _whole_zip(path)
            file.seek(0)
            ours = _hash_of(file, size - 64)
    except OSError as error:
        raise DamagedFile(f"{path}: {error.strerror}") from None
    if ours != comment[2].decode():
        raise DamagedFile(f"{path}: damaged: its checksum does not match its content")
    if comment[1].decode() != owner_of(path, run):
        raise DamagedFile(f"{path}: another run's or another step's file: it calls itself {comment[1].decode()}")
    return True


def load(path: Path, run: str) -> Any:
    """The content of a file of weights, on the CPU, verified. Raises DamagedFile."""
    verify(path, run)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, KeyError) as error:
        raise DamagedFile(f"{path}: damaged: {str(error).splitlines()[0]}") from error


def _whole_zip(path: Path) -> bool:
    """False; raises DamagedFile unless every part of the archive has the CRC-32 that it was written with."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError) as error:
        raise DamagedFile(f"{path}: damaged or cut short ({error})") from None
    if broken is not None:
        raise DamagedFile(f"{path}: damaged: {broken} has another checksum")
    return False


def _hash_of(file: io.BufferedReader, count: int) -> str:
    """sha256 of the next `count` bytes."""
    digest, block = hashlib.sha256(), memoryview(bytearray(1 << 20))
    while count and (read := file.readinto(block[: min(count, len(block))])):
        digest.update(block[:read])
        count -= read
    return digest.hexdigest()
