"""Raw text to a token store: checked, counted, encoded once, then shared by every run and worker.

A store is in `<root>/data/<hash>/`, named by what it is made of: the fingerprints of the text and the settings of the
tokenizer. It is built beside under another name and moved there in one step, so that a store is whole or absent, and
processes that build the same one at once end with one.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_tfm.atomic_io import lock, sync_file
from lightning_tfm.config import Data
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.sources.files import Corpus, corpus_fingerprint, make_corpus
from lightning_tfm.data.text.build_store import Say, build
from lightning_tfm.data.text.vocabulary import vocabulary_fingerprint
from lightning_tfm.errors import UserError

STORE_VERSION = 1
"""Raised whenever the files of a store change their meaning"""
LATER = (
    "max_words",
    "max_ratio",
    "check_encoding",
    "drop_duplicates",
    "share",
    "tokenizer",
)
"""fields that came after the first stores: named only where they differ from their defaults"""
BUILDING = ".building-"
"""what the names of unfinished stores begin with"""


def prepare(data: Data, root: Path, say: Say | None = None) -> Prepared:
    """The store of `data` under `root`, made if it does not exist. Raises UserError where the text is broken.

    A build that was interrupted resumes. Of processes that want the same store one builds, the others wait. `say` is
    given lines of progress.
    """
    corpus = make_corpus(data)
    key = _key(data, corpus)
    folder = Path(root) / "data" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _building(folder, say or _silent) as building:
            if building is not None:
                (say or _silent)(f"reading {data.corpus}")
                build(data, corpus, _roles(data), json.loads(key), building, say or _silent)
                if _key(data, make_corpus(data)) != key:
                    raise UserError(f"{data.corpus}: the text changed while it was read; run the same command again")
                publish(building, folder)
    prepared = Prepared(folder)
    if say is not None:
        for line in _remarks(prepared, data.max_len):
            say(line)
    return prepared


def _remarks(prepared: Prepared, max_len: int) -> Iterator[str]:
    """What makes scores of a text say something else than they seem to."""
    splits, train = prepared.card["splits"], prepared.card["splits"]["train"]
    known_by = "source" if prepared.card["languages"][0] else "text"
    for role, count in train["source_also_in"].items():
        if count:
            yield f"{count:,} of {train['pairs']['kept']:,} training pairs have a {known_by} that {role} has too"
    for role, split in splits.items():
        target = split["pieces"]["target"]
        if role != "train" and target["unknown"]:
            share = f"{target['unknown']:,} of {target['total']:,} tokens"
            yield f"{share} of {role}'s references are unknown, which lowers perplexity"
    if left_out := prepared.too_long(max_len):
        yield f"data.max_len={max_len} leaves out {left_out:,} of {len(prepared.train):,} training pairs"


def text_not_built(data: Data, root: Path) -> dict[str, list[str]]:
    """Role -> name and fingerprints of the present text of `data`; empty if its store exists."""
    key = _key(data, make_corpus(data))
    there = (Path(root) / "data" / hashlib.sha256(key.encode()).hexdigest()[:16]).is_dir()
    return {} if there else json.loads(key)["text"]


def target_pieces(data: Data, root: Path) -> tuple[int, int]:
    """(target pieces to train on, end tokens counted, without pairs above data.max_len; pieces of the vocabulary)."""
    prepared = prepare(data, root)
    source, target = (lengths + 1 for lengths in (prepared.train.source_lengths, prepared.train.target_lengths))
    return int(target[(source <= data.max_len) & (target <= data.max_len)].sum()), prepared.tokenizer.V


@contextmanager
def _building(folder: Path, say: Say) -> Iterator[Path | None]:
    """The folder in which only this process builds `folder`; None if another has just finished it.

    What a killed builder left is found there again. After an error of the user's it is removed.
    """
    path = folder.with_name(f"{BUILDING}{folder.name}")
    while not folder.is_dir():
        path.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            try:
                shared = lock(descriptor, waiting=lambda: say(f"{folder}: another process is preparing it; waiting"))
            except OSError:  # no such locks on this file system: each process builds its own
                shared = False
            if shared and not _is_at(descriptor, path):  # published or removed while we waited
                continue
            building = path if shared else Path(tempfile.mkdtemp(prefix=f"{path.name}-", dir=path.parent))
            try:
                yield building
            except UserError:
                shutil.rmtree(building, ignore_errors=True)
                raise
            finally:
                if building != path:
                    shutil.rmtree(building, ignore_errors=True)
            return
        finally:
            os.close(descriptor)
    yield None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _silent(line: str) -> None:
    pass


def _roles(data: Data) -> dict[str, str]:
    """Role to split name: held-out splits first, so that training text can be checked against them."""
    long = "" if data.long in (data.dev, data.test) else data.long
    roles = (("dev", data.dev), ("test", data.test), ("long", long), ("train", data.train))
    return {role: name for role, name in roles if name}


def parts_of(role: str, name: str) -> list[str]:
    return name.split("+") if role == "train" else [name]


def _key(data: Data, corpus: Corpus) -> str:
    text = {
        role: [name, *(corpus_fingerprint(corpus, part) for part in parts_of(role, name))]
        for role, name in _roles(data).items()
    }
    settings = {k: getattr(data, k) for k in ("vocab_size", "normalization", "byte_fallback", "bad_lines")}
    settings |= {k: getattr(data, k) for k in LATER if getattr(data, k) != getattr(Data, k)}
    if vocabulary := vocabulary_fingerprint(data, corpus):
        settings["vocabulary"] = vocabulary
    languages = [corpus.source, corpus.target]
    return json.dumps({"version": STORE_VERSION, "text": text, "languages": languages, **settings}, sort_keys=True)


def publish(building: Path, folder: Path) -> None:
    """Move a finished store to its name; if another process was faster, its store stays."""
    building.chmod(0o755)
    try:
        os.rename(building, folder)
    except OSError:
        if not folder.is_dir():
            raise
    sync_file(folder.parent)
