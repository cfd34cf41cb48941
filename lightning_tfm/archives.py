"""Archives that strangers made: only plain files, under names that lead nowhere else, of the stated sizes."""

import gzip
import lzma
import tarfile
import zlib
from pathlib import PurePosixPath

BROKEN = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, OverflowError, RecursionError)
"""what reading a damaged archive raises; the last two where its headers hold absurd numbers or never end"""
LONGEST = 255
"""bytes of a part of a name that file systems hold"""
RATIO, SPARE, MOST = 100, 1 << 20, 1 << 30
"""how large a packed file may become: RATIO times its size (our own grow tenfold) + SPARE bytes, at most MOST"""
MEMORY = 128 << 20
"""bytes of memory that unpacking may ask for: `xz -9` needs 65 MiB"""


def fault(member: tarfile.TarInfo) -> str:
    """Why a member of a tar must not be unpacked; "" for a plain file and a folder."""
    parts = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in parts:
        return f"the archive holds the path '{member.name[:LONGEST]}', which leads out of its folder"
    if not member.name.isprintable() or any(len(part.encode()) > LONGEST for part in parts):
        return f"the archive holds the name {ascii(member.name)[:LONGEST]}, which no file has"
    if member.issym() or member.islnk():
        return f"the archive holds the link '{member.name}' -> '{member.linkname}'"
    if member.issparse() or not (member.isreg() or member.isdir()):
        return f"the archive holds '{member.name}', which is neither file nor folder"
    return f"the archive holds '{member.name}' of {member.size} bytes" if member.size < 0 else ""


def decompress(packed: bytes) -> bytes:
    """The content of an xz file. Raises LZMAError where it is damaged, too large, or needs too much memory."""
    most = min(RATIO * len(packed) + SPARE, MOST)
    machine = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY)
    content = machine.decompress(packed, max_length=most + 1)
    if len(content) > most:
        raise lzma.LZMAError(f"it grows beyond {most / 2**20:.0f} MiB, {RATIO} times its size")
    if not machine.eof:
        raise lzma.LZMAError("it is truncated")
    return content
