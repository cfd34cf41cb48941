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
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from lightning_tfm.config import UNK, Data
from lightning_tfm.data.corpora import Corpus, corpus_fingerprint, make_corpus
from lightning_tfm.data.store import SIDES, Split, SplitWriter, sync_and_close
from lightning_tfm.data.tokenizer import Tokenizer, count_words, train_tokenizer
from lightning_tfm.errors import UserError

STORE_VERSION = 1
"""Raised whenever the files of a store change their meaning"""
BATCH = 8192
"""pairs encoded at once"""
BUILDING = ".building-"
"""what the names of unfinished stores begin with"""
SHOWN = 5
"""line numbers that an error shows"""


class Prepared:
    """A whole store, opened."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.card: dict[str, Any] = json.loads((folder / "card.json").read_text())
        """what went in and what came out: pairs read, kept and dropped by rule, pieces, lengths, hashes"""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.folder / "tokenizer.model")

    @property
    def train_fingerprint(self) -> str:
        """sha256 over the kept training text and the tokenizer; data.max_len does not enter."""
        return self._role("train")["fingerprint"]

    def fingerprint(self, split: str) -> str:
        """sha256 over source text, references and tokenizer of a split (its name as in the Data section)."""
        return self._role(self._role_of(split))["fingerprint"]

    def split(self, split: str) -> Split:
        """A split by its name as written in the Data section, e.g. `val`, or `train+extra`."""
        return Split(self.folder, self._role_of(split), self.card["tokenizer"]["V"])

    def too_long(self, split: str, max_len: int) -> int:
        """Pairs of a split with more than `max_len` pieces on a side, the end token included."""
        pairs = self.split(split)
        return int(np.count_nonzero(np.maximum(pairs.source_lengths, pairs.target_lengths) + 1 > max_len))

    def _role(self, role: str) -> dict[str, Any]:
        return self.card["splits"][role]

    def _role_of(self, split: str) -> str:
        for role, card in self.card["splits"].items():
            if card["name"] == split:
                return role
        names = ", ".join(card["name"] for card in self.card["splits"].values())
        raise UserError(f"there is no prepared split '{split}'; prepared: {names}")


def prepare(data: Data, root: Path) -> Prepared:
    """The store of `data` under `root`, made if it is not there. Raises UserError where the text is broken."""
    corpus = make_corpus(data)
    key = _key(data, corpus)
    folder = Path(root) / "data" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f"{BUILDING}{folder.name}-", dir=folder.parent))
        try:
            _build(data, corpus, key, building)
            _publish(building, folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return Prepared(folder)


def _roles(data: Data) -> dict[str, str]:
    """Role to split name: held-out splits first, so that training text can be held against them."""
    return {role: name for role, name in (("dev", data.dev), ("test", data.test), ("train", data.train)) if name}


def _parts(role: str, name: str) -> list[str]:
    return name.split("+") if role == "train" else [name]


def _key(data: Data, corpus: Corpus) -> str:
    text = {
        role: [name, *(corpus_fingerprint(corpus, part) for part in _parts(role, name))]
        for role, name in _roles(data).items()
    }
    settings = {k: getattr(data, k) for k in ("vocab_size", "normalization", "byte_fallback", "bad_lines")}
    languages = [corpus.source, corpus.target]
    return json.dumps({"version": STORE_VERSION, "text": text, "languages": languages, **settings}, sort_keys=True)


def _build(data: Data, corpus: Corpus, key: str, folder: Path) -> None:
    checked = {role: _Checked(corpus, role, name, data.bad_lines) for role, name in _roles(data).items()}
    held_out, counts = {}, Counter()
    for role, text in checked.items():
        lines = set()
        for pair in text:
            if role == "train":
                count_words(pair, counts)
                for other, sources in held_out.items():
                    text.seen[other] += pair[0] in sources
            else:
                lines.add(pair[0])
        if role != "train":
            held_out[role] = lines
    _write(folder / "tokenizer.model", train_tokenizer(counts, data))
    tokenizer = Tokenizer(folder / "tokenizer.model")
    splits = {role: _encode(text, role, tokenizer, folder) for role, text in checked.items()}
    card = {
        "corpus": data.corpus,
        "languages": [corpus.source, corpus.target],
        "tokenizer": {"V": tokenizer.V, "sha256": tokenizer.fingerprint, "sentencepiece": sentencepiece.__version__},
        "splits": splits,
        "made_of": json.loads(key),
    }
    _write(folder / "card.json", (json.dumps(card, indent=1) + "\n").encode())


def _publish(building: Path, folder: Path) -> None:
    """Move a finished store to its name; another process may have been faster, then that one's stays."""
    building.chmod(0o755)
    try:
        os.rename(building, folder)
    except OSError:
        if not folder.is_dir():
            raise
    descriptor = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        sync_and_close(file)


def flaw(pair: tuple[str, str]) -> tuple[str, int] | None:
    """What is wrong with a pair and on which side, if anything."""
    for side, line in enumerate(pair):
        if not line or line.isspace():
            return "empty", side
        if "\0" in line:
            return "NUL byte", side
        if "\n" in line:
            return "line break", side
        if not line.isascii() and any("\ud800" <= c <= "\udfff" for c in line):
            return "not UTF-8", side
    return None


class _Checked:
    """The good pairs of a split, as often as they are asked for; the first pass checks, counts and hashes them."""

    def __init__(self, corpus: Corpus, role: str, name: str, bad_lines: str):
        self.name, self.read, self.kept = name, 0, 0
        self.dropped: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        """by held-out role: training pairs whose source stands there too"""
        self.sha256 = hashlib.sha256()
        self._corpus, self._role = corpus, role
        self._drop = role == "train" and bad_lines == "drop"
        self._first_pass = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        first_pass, self._first_pass = self._first_pass, False
        for part in _parts(self._role, self.name):
            bad: dict[tuple[str, int], list[int]] = {}
            for number, pair in enumerate(self._corpus.lines(part), 1):
                wrong = flaw(pair)
                if first_pass:
                    self.read += 1
                    self.kept += wrong is None
                if wrong is not None:
                    bad.setdefault(wrong, []).append(number)
                    continue
                if first_pass:
                    self.sha256.update(f"{pair[0]}\n{pair[1]}\n".encode())
                yield pair
            if bad and not self._drop:
                raise UserError(self._complaint(part, bad))
            if first_pass:
                self.dropped.update({rule: len(lines) for (rule, _), lines in bad.items()})
        if first_pass and not self.kept:
            raise UserError(f"{self._corpus.name(part, self._corpus.source)}: no pair is left of {self.read}")

    def _complaint(self, part: str, bad: dict[tuple[str, int], list[int]]) -> str:
        languages = (self._corpus.source, self._corpus.target)
        found = [
            f"{self._corpus.name(part, languages[side])}: {len(lines)} broken lines ({rule}): "
            + ", ".join(map(str, lines[:SHOWN]))
            + (", …" if len(lines) > SHOWN else "")
            for (rule, side), lines in bad.items()
        ]
        train = "correct them, or leave these pairs out of training with data.bad_lines=drop"
        return "\n".join([*found, train if self._role == "train" else "correct them: held-out pairs are never dropped"])


def _encode(text: _Checked, role: str, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Write the ids of a split; returns its part of the card."""
    writer = SplitWriter(folder, role, tokenizer.V, keep_text=role != "train")
    pairs, unknown, threads = iter(text), [0, 0], len(os.sched_getaffinity(0))
    while batch := list(islice(pairs, BATCH)):
        for side, lines in enumerate(zip(*batch, strict=True)):
            ids = tokenizer.encode(lines, threads)
            unknown[side] += sum(int(np.count_nonzero(row == UNK)) for row in ids)
            writer.write(SIDES[side], lines, ids)
    lengths = writer.close()
    if len(lengths["source"]) != text.kept:
        raise UserError(
            f"split '{text.name}' changed while it was read: {text.kept} pairs, then {len(lengths['source'])}"
        )
    digest = hashlib.sha256(f"{text.sha256.hexdigest()} {tokenizer.fingerprint}".encode())
    return {
        "name": text.name,
        "fingerprint": digest.hexdigest(),
        "text_sha256": text.sha256.hexdigest(),
        "pairs": {"read": text.read, "kept": text.kept, "dropped": dict(text.dropped)},
        "source_also_in": dict(text.seen),
        "pieces": {side: _lengths(lengths[side], unknown[i]) for i, side in enumerate(SIDES)},
    }


def _lengths(values: np.ndarray, unknown: int) -> dict[str, Any]:
    quantiles = {f"{q}%": int(np.percentile(values, q, method="higher")) for q in (50, 90, 99)}
    mean = round(float(values.mean()), 2)
    return {"total": int(values.sum()), "unknown": unknown, "mean": mean, **quantiles, "longest": int(values.max())}
