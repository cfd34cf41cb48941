"""A prepared corpus in one file, for machines without internet: the store, and what a run there needs.

A tar of `bundle.json` (what is in it, with checksums), `store/…`, and `corpus/…`: of a fetched corpus its checksums and
test sets, of `files` the texts themselves, whose bytes name the store.
"""

import hashlib
import io
import json
import os
import tarfile
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from lightning_tfm.archives import fault
from lightning_tfm.config import Data
from lightning_tfm.data.corpora import FilesCorpus, make_corpus
from lightning_tfm.data.prepare import BUILDING, publish
from lightning_tfm.data.prepared import Prepared
from lightning_tfm.data.wmt.checksums import Checksums
from lightning_tfm.data.wmt.official import OfficialCorpus, folder_of, text_name
from lightning_tfm.data.wmt.unpack import BROKEN
from lightning_tfm.durable import replacing, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.sums import RECORDED, sha256

VERSION = 1


def pack(data: Data, prepared: Prepared, to: Path) -> dict[str, Any]:
    """Write the bundle `to`, whole or not at all; returns its index."""
    files = {f"store/{path.name}": path for path in sorted(prepared.folder.iterdir())}
    files |= {f"corpus/{name}": path for name, path in _corpus_files(data).items()}
    index = {
        "version": VERSION,
        "corpus": data.corpus,
        "store": prepared.folder.name,
        "files": {name: {"sha256": sha256(path), "bytes": path.stat().st_size} for name, path in files.items()},
    }
    with replacing(to) as file, tarfile.open(fileobj=file, mode="w") as tar:
        _add(tar, "bundle.json", json.dumps(index, indent=1).encode())
        for name, path in files.items():
            tar.add(path, name, filter=_anonymous)
    return index


def unpack(bundle: Path, data: Data, root: Path) -> Path:
    """Put a bundle's store under `root` and its texts where `data` looks for them; returns the store's folder.

    Raises UserError where the bundle is truncated, changed or hostile; then nothing of it is in place.
    """
    if not bundle.is_file():
        raise UserError(f"{bundle}: no such file")
    (root / "data").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{BUILDING}bundle-", dir=root / "data") as temporary:
        index = _extract(bundle, Path(temporary))
        if index["corpus"] != data.corpus:
            raise UserError(f"{bundle} holds the corpus '{index['corpus']}', not '{data.corpus}'")
        corpus = Path(temporary) / "corpus"
        for path in sorted(path for path in corpus.rglob("*") if path.is_file()):
            _place(path, path.relative_to(corpus).as_posix(), index, folder_of(data))
        folder = root / "data" / index["store"]
        publish(Path(temporary) / "store", folder)
    return folder


def _corpus_files(data: Data) -> dict[str, Path]:
    corpus, folder = make_corpus(data), folder_of(data)
    languages = (data.source, data.target)
    if isinstance(corpus, OfficialCorpus):
        splits = [split for split in (data.dev, data.test) if split]
        parts = [part for split in splits for part in corpus.parts(split)]
        names = [text_name(part, language) for part in parts for language in languages]
        return {name: folder / name for name in (RECORDED, *names)}
    if isinstance(corpus, FilesCorpus):
        splits = [*data.train.split("+"), *(split for split in (data.dev, data.test) if split)]
        paths = [Path(corpus.name(split, language)) for split in splits for language in languages]
        return {path.name: path for path in paths}
    return {}


def _extract(bundle: Path, folder: Path) -> dict[str, Any]:
    """Unpack exactly what the index names, each with its checksum."""
    try:
        with tarfile.open(bundle, "r:") as tar:  # as `pack` writes it: nothing in it is larger than the bundle
            first = tar.next()
            stream = tar.extractfile(first) if first is not None and first.name == "bundle.json" else None
            if stream is None:
                raise UserError(f"{bundle} is not a bundle made by `data pack`")
            index = json.load(stream)
            if index["version"] != VERSION:
                raise UserError(f"{bundle}: version {index['version']}, this program reads version {VERSION}")
            missing = dict(index["files"])
            for member in islice(tar, 1, None):
                record = missing.pop(member.name, None)
                if record is None or not member.isreg() or fault(member):
                    raise UserError(f"{bundle} holds '{member.name}', which is not in its index or not a regular file")
                if member.size != record["bytes"]:
                    raise UserError(
                        f"{bundle}: {member.name} has {member.size} bytes, its index says {record['bytes']}"
                    )
                _write(tar, member, folder / member.name, record["sha256"], bundle)
    except (*BROKEN, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{bundle} is damaged ({error}): copy it again") from error
    if missing:
        raise UserError(f"{bundle} is incomplete: it lacks {', '.join(sorted(missing)[:5])}; copy it again")
    if os.sep in index["store"] or index["store"].startswith("."):
        raise UserError(f"{bundle}: '{index['store']}' is not the name of a store")
    return index


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, expected: str, bundle: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream, digest = tar.extractfile(member), hashlib.sha256()
    assert stream is not None, "it is a plain file"
    with path.open("wb") as file:
        while block := stream.read(1 << 20):
            file.write(block)
            digest.update(block)
    if digest.hexdigest() != expected:
        raise UserError(f"{bundle}: {member.name} is damaged (sha256 {digest.hexdigest()}, {expected} expected)")


def _place(path: Path, name: str, index: dict[str, Any], folder: Path) -> None:
    """One file of the corpus to its place; checksums are joined with those that are there."""
    if name == RECORDED and index["corpus"] != "files":
        for key, record in json.loads(path.read_bytes()).items():
            known = Checksums(folder).find(key)
            if known is not None and known["sha256"] != record["sha256"]:
                raise UserError(
                    f"{folder / key}: recorded here with sha256 {known['sha256']}, in the bundle with a different one"
                )
            folder.mkdir(parents=True, exist_ok=True)
            Checksums(folder).add(key, **record)
        return
    target = folder / name
    if target.is_file() and sha256(target) != index["files"][f"corpus/{name}"]["sha256"]:
        raise UserError(f"{target} already exists and differs; choose another --data.folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, path.read_bytes())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
