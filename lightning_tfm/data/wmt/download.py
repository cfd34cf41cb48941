"""Downloads that survive cut connections, wrong servers and full disks; a file is whole or absent.

Bytes go to `NAME.part`, whose `NAME.part.json` says which version at which address they belong to; the next attempt
asks for the rest (RFC 9110: Range with If-Range), and starts over where the server's file has changed. Only a file that
is complete, opens as an archive, and fits its published or recorded checksum gets its name.
"""

import errno
import hashlib
import http.client
import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from lightning_tfm.atomic_io import locked, sync_file, write_atomic
from lightning_tfm.data.wmt.checksums import Checksums
from lightning_tfm.data.wmt.unpack import check_archive
from lightning_tfm.errors import UserError

BLOCK = 1 << 20
TRIES = 6
"""attempts at one address that bring nothing new before the next address is asked"""
TIMEOUT = 60.0
"""seconds without a byte"""
PAUSE = 1.0
"""seconds before the first new attempt; doubled before each further one"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Remote:
    """A file to be had at any of `urls`. `md5` and `sha256` are empty where its publisher names none."""

    name: str
    urls: tuple[str, ...]
    md5: str = ""
    sha256: str = ""


class _Refused(Exception):
    """This address cannot give the file; the next one may."""


class _Cut(Exception):
    """The connection ended early: resume from what arrived."""


def fetch(remote: Remote, folder: Path, say: Say) -> Path:
    """`folder/remote.name`, downloaded unless it is there whole. Raises UserError naming each address and its fault."""
    path, records = folder / remote.name, Checksums(folder)
    if records.whole(remote.name):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with locked(lock, waiting=lambda: say(f"{remote.name}: another process is fetching it; waiting")):
        if records.whole(remote.name):
            return path
        if path.is_file():  # put there by hand
            try:
                _accept(remote, path, records, "put there by hand")
            except _Refused as fault:
                raise UserError(f"{path}: {fault}; remove it, and it will be fetched again") from fault
            return path
        faults = []
        for url in remote.urls:
            try:
                _download(url, path, say)
                _accept(remote, _part(path), records, url)
            except _Refused as fault:
                faults.append(f"  {url}: {fault}")
                say(f"{remote.name}: {url}: {fault}")
                continue
            _state(path).unlink(missing_ok=True)
            return path
    raise UserError(
        f"{remote.name} cannot be fetched:\n"
        + "\n".join(faults)
        + f"\nput the file at {path} by hand, or try again later"
    )


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _state(path: Path) -> Path:
    return path.with_name(f"{path.name}.part.json")


def _accept(remote: Remote, candidate: Path, records: Checksums, url: str) -> None:
    """Give a complete, correct file its name and record it. Otherwise raises _Refused, and a downloaded one is gone."""
    path = records.folder / remote.name
    try:
        sha256, md5 = _digests(candidate)
        record = records.find(remote.name)
        expected = {"sha256": remote.sha256 or (record["sha256"] if record else ""), "md5": remote.md5}
        for kind, digest in (("sha256", sha256), ("md5", md5)):
            if expected[kind] and digest != expected[kind]:
                whose = "published" if getattr(remote, kind) else "recorded at first use"
                raise _Refused(f"{kind} {digest}, {whose}: {expected[kind]}")
        if fault := check_archive(candidate, remote.name):
            raise _Refused(fault)
    except _Refused:
        if candidate != path:
            candidate.unlink()
            _state(path).unlink(missing_ok=True)
        raise
    size = candidate.stat().st_size
    candidate.replace(path)
    records.add(remote.name, sha256=sha256, md5=md5, bytes=size, url=url, first_used=time.strftime("%Y-%m-%d"))


def _digests(path: Path) -> tuple[str, str]:
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            sha256.update(block)
            md5.update(block)
    return sha256.hexdigest(), md5.hexdigest()


def _download(url: str, path: Path, say: Say) -> None:
    """Fill NAME.part from `url`. Raises _Refused where the server cannot or will not."""
    fruitless, pause, last = 0, PAUSE, ""
    while fruitless < TRIES:
        before = _size(_part(path))
        try:
            _attempt(url, path, say)
            return
        except (_Cut, OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UserError(
                    f"{_part(path)}: no space left after {_size(_part(path))} bytes; make room and run the same again, "
                    "it resumes from there"
                ) from error
            last = str(error) or type(error).__name__
        if _size(_part(path)) > before:
            fruitless, pause = 0, PAUSE
        else:
            fruitless += 1
        say(f"{path.name}: {last}; {_size(_part(path))} bytes are here; resuming")
        sleep(pause)
        pause = min(2 * pause, 30.0)
    raise _Refused(f"no answer after {TRIES} attempts ({last})")


def _attempt(url: str, path: Path, say: Say) -> None:
    part, state = _part(path), _read_state(_state(path))
    here = _size(part) if state["url"] == url and state["version"] else 0
    headers = {"User-Agent": "lightning_tfm", "Accept-Encoding": "identity"}
    if here:
        headers |= {"Range": f"bytes={here}-", "If-Range": state["version"]}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # our part is longer than the file: it is another file
            part.unlink(missing_ok=True)
            raise _Cut("the server's file is shorter than the part already fetched; starting over") from error
        if error.code in (408, 429) or error.code >= 500:
            raise _Cut(f"HTTP {error.code}") from error
        raise _Refused(f"HTTP {error.code} {error.reason}") from error
    except ValueError as error:
        raise _Refused(str(error)) from error
    with answer:
        resumed = answer.status == 206
        here = here if resumed else 0
        if resumed and not (answer.headers["Content-Range"] or "").startswith(f"bytes {here}-"):
            part.unlink(missing_ok=True)
            raise _Cut(f"the server sent a different range from the one requested ({answer.headers['Content-Range']})")
        length = answer.headers["Content-Length"]
        total = None if length is None else here + int(length)
        _check_space(part, total, here)
        if not resumed:
            part.unlink(missing_ok=True)
            version = answer.headers["ETag"] or answer.headers["Last-Modified"] or ""
            weak = version.startswith("W/")  # not good for ranges
            write_atomic(_state(path), json.dumps({"url": url, "version": "" if weak else version}).encode())
            say(f"{path.name}: {url}" + (f", {total / 2**20:.1f} MiB" if total else ""))
        else:
            say(f"{path.name}: resuming at {here / 2**20:.1f} MiB")
        _copy(answer, part, "ab" if resumed else "wb")
    if total is not None and _size(part) < total:
        raise _Cut(f"the connection was cut at {_size(part)} of {total} bytes")


def _copy(answer: Any, part: Path, mode: str) -> None:
    file = part.open(mode)
    try:
        with file:
            while block := answer.read1(BLOCK):
                file.write(block)
    finally:
        sync_file(part)


def _check_space(part: Path, total: int | None, here: int) -> None:
    free = shutil.disk_usage(part.parent).free + (_size(part) if not here else 0)
    if total is not None and total - here > free:
        raise OSError(errno.ENOSPC, f"{total - here} bytes are needed, {free} are free")


def _read_state(path: Path) -> dict[str, str]:
    try:
        state = json.loads(path.read_bytes())
        return {"url": state["url"], "version": state["version"]}
    except (OSError, ValueError, KeyError, TypeError):  # without it the part is worth nothing: start over
        return {"url": "", "version": ""}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
