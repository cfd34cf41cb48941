"""Raw text to a token store: checked, counted, encoded once, then shared by every run and worker.

A store lies in `<root>/data/<hash>/`, named by what it is made of: the fingerprints of the text and the settings of the
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
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lightning_tfm.config import Data
from lightning_tfm.data.build import PIECES, Say, build, open_tokenizer
from lightning_tfm.data.corpora import Corpus, corpus_fingerprint, make_corpus
from lightning_tfm.data.pieces import PieceTokenizer, vocabulary_fingerprint
from lightning_tfm.data.store import Split
from lightning_tfm.data.tokenizer import Tokenizer
from lightning_tfm.data.wmt.checksums import Checksums
from lightning_tfm.durable import lock, sync_file
from lightning_tfm.errors import UserError

STORE_VERSION = 1
"""Raised whenever the files of a store change their meaning"""
LATER = (
    "max_words",
    "max_ratio",
    "check_encoding",
    "check_script",
    "drop_duplicates",
    "max_types",
    "share",
    "tokenizer",
)
"""fields that came after the first stores: named only where they differ from their defaults"""
BUILDING = ".building-"
"""what the names of unfinished stores begin with"""


class Prepared:
    """A whole store, opened; what is read from it is held against its checksums first, once."""

    def __init__(self, folder: Path):
        self.folder, self._whole = folder, set[str]()
        self._checksums.check("card.json")
        self.card: dict[str, Any] = json.loads((folder / "card.json").read_text())
        """what went in and what came out: pairs read, kept and dropped by rule, pieces, lengths, hashes"""

    @property
    def _checksums(self) -> Checksums:
        return Checksums(self.folder)

    @cached_property
    def tokenizer(self) -> Tokenizer | PieceTokenizer:
        self._checksums.check("tokenizer.model")
        self._checksums.check(PIECES)
        return open_tokenizer(self.folder)

    @property
    def train_fingerprint(self) -> str:
        """sha256 over the kept training text and the tokenizer; data.max_len does not enter."""
        return self._role("train")["fingerprint"]

    def fingerprint(self, split: str) -> str:
        """sha256 over source text, references and tokenizer of a split (its name as in the Data section)."""
        return self._role(self._role_of(split))["fingerprint"]

    @property
    def train(self) -> Split:
        """What is trained on: cleaned and sampled, also where a held-out split has its name. Raises DamagedFile."""
        return self._open("train")

    def split(self, split: str) -> Split:
        """A split by its name as written in the Data section, e.g. `val`, or `train+extra`. Raises DamagedFile.

        A name that is held out as well as trained on means the held-out text, whole.
        """
        return self._open(self._role_of(split))

    def too_long(self, max_len: int) -> int:
        """Training pairs with more than `max_len` pieces on a side, the end token included."""
        pairs = self.train
        return int(np.count_nonzero(np.maximum(pairs.source_lengths, pairs.target_lengths) + 1 > max_len))

    def unknown_references(self, split: str) -> int:
        """Pieces of a split's references that the vocabulary lacks."""
        return int(self._role(self._role_of(split))["pieces"]["target"]["unknown"])

    def _open(self, role: str) -> Split:
        if role not in self._whole:
            self._checksums.check(f"{role}.")
            self._whole.add(role)
        return Split(self.folder, role, self.card["tokenizer"]["V"])

    def _role(self, role: str) -> dict[str, Any]:
        return self.card["splits"][role]

    def _role_of(self, split: str) -> str:
        for role, card in self.card["splits"].items():
            if card["name"] == split:
                return role
        names = ", ".join(card["name"] for card in self.card["splits"].values())
        raise UserError(f"there is no prepared split '{split}'; prepared: {names}")


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
                build(data, corpus, _roles(data), json.loads(key), building, say or _silent)
                if _key(data, make_corpus(data)) != key:
                    raise UserError(f"{data.corpus}: the text changed while it was read; run the same command again")
                publish(building, folder)
    return Prepared(folder)


def text_not_built(data: Data, root: Path) -> dict[str, list[str]]:
    """Role -> name and fingerprints of the text of `data` as it is now; empty where its store is there."""
    key = _key(data, make_corpus(data))
    there = (Path(root) / "data" / hashlib.sha256(key.encode()).hexdigest()[:16]).is_dir()
    return {} if there else json.loads(key)["text"]


@contextmanager
def _building(folder: Path, say: Say) -> Iterator[Path | None]:
    """The folder in which this process alone builds `folder`; None where another has just finished it.

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
