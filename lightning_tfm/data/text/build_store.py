"""How a store is made, in stages that each leave their product in the building folder: an interrupted build resumes.

1. inspect: read the text once; check, clean, hash, count the words. Leaves inspected.json, keep.bin and words.tsv.
2. train the tokenizer from the word counts. Leaves tokenizer.model.
3. encode: read the text again, write ids. Leaves the arrays.

Of the text nothing stays in memory but the words' counts, 8-byte hashes where duplicates are dropped, one byte for each
pair, and the held-out sources.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from lightning_tfm.atomic_io import TEMPORARY, write_atomic
from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.dataset import open_tokenizer
from lightning_tfm.data.parallel import check_unchanged
from lightning_tfm.data.text.cleaning import Rules, Seen, flaw
from lightning_tfm.data.text.tokenizer import PIECES, PieceTokenizer, Tokenizer
from lightning_tfm.data.text.vocabulary import count_words, read_vocabulary, table, train_tokenizer, vocabulary_path
from lightning_tfm.data.text.word_encoder import WordEncoder
from lightning_tfm.data.token_store import SIDES, Split, SplitWriter
from lightning_tfm.errors import UserError
from lightning_tfm.special_tokens import UNK
from lightning_tfm.sums import record_all

BATCH = 8192
"""pairs inspected or encoded at once"""
SAID = 64
"""batches between two lines of progress"""
SHOWN = 5
"""line numbers that an error shows"""
WORK = ("inspected.json", "keep.bin", "words.tsv")
"""files of the building folder that a finished store lacks"""

Say = Callable[[str], None]
Pair = tuple[str, str]


def build(data: Data, corpus: Corpus, roles: dict[str, str], made_of: dict[str, Any], folder: Path, say: Say) -> None:
    """Make or finish the store of `data` in `folder`. Raises UserError where the text is broken."""
    if not (folder / "inspected.json").is_file():
        _inspect(data, corpus, roles, folder, say)
    inspected = json.loads((folder / "inspected.json").read_bytes())
    if (vocabulary := vocabulary_path(data, corpus)) is not None:
        write_atomic(folder / PIECES, table(read_vocabulary(vocabulary)))
    elif not (folder / "tokenizer.model").is_file():
        began = time.perf_counter()
        model = train_tokenizer(_read_counts(folder / "words.tsv"), data)
        write_atomic(folder / "tokenizer.model", model)
        say(f"tokenizer: {data.vocab_size} tokens from {inspected['types']} words, {time.perf_counter() - began:.0f} s")
    tokenizer = open_tokenizer(folder)
    keep = np.fromfile(folder / "keep.bin", dtype=bool)
    splits = {
        role: _encode(_Reader(corpus, role, name), role, inspected["splits"][role], keep, tokenizer, data, folder, say)
        for role, name in roles.items()
    }
    card = {
        "corpus": data.corpus,
        "languages": [corpus.source, corpus.target],
        "tokenizer": {"V": tokenizer.V, "sha256": tokenizer.fingerprint, "sentencepiece": sentencepiece.__version__},
        "splits": splits,
        "made_of": made_of,
    }
    for path in (*(folder / name for name in WORK), *folder.glob(f".*{TEMPORARY}")):
        path.unlink(missing_ok=True)
    write_atomic(folder / "card.json", (json.dumps(card, indent=1) + "\n").encode())
    record_all(folder)


class _Reader:
    """The raw pairs of a split, one part after another; knows its place."""

    def __init__(self, corpus: Corpus, role: str, name: str):
        self.corpus, self.name = corpus, name
        self.parts = name.split("+") if role == "train" else [name]
        self.part, self.number = self.parts[0], 0
        """name of the part, and pairs of it that were given out"""

    def batches(self) -> Iterator[tuple[Pair, ...]]:
        """Tuples of at most BATCH pairs; none spans two parts."""
        for part in self.parts:
            self.part, self.number = part, 0
            for batch in _batches(self.corpus.lines(part), BATCH):
                yield batch
                self.number += len(batch)


def _raw(pairs: Iterable[Pair]) -> bytes:
    """What a split's text_sha256 is the hash of."""
    return "".join(f"{source}\n{target}\n" for source, target in pairs).encode(errors="surrogateescape")


def _batches(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    items = iter(items)
    while batch := tuple(islice(items, size)):
        yield batch


# --- stage 1 ---


def _inspect(data: Data, corpus: Corpus, roles: dict[str, str], folder: Path, say: Say) -> None:
    words: Counter[str] = Counter()
    held_out: dict[str, set[str]] = {}
    splits = {}
    for role, name in roles.items():
        inspection = _Inspection(data, corpus, role, name, held_out)
        if role == "train":
            inspection.run(words, say)
            inspection.keep.tofile(folder / "keep.bin")
        else:
            held_out[role] = inspection.run(None, say)
        splits[role] = inspection.card()
    _write_counts(folder / "words.tsv", words)
    content = {"splits": splits, "types": len(words)}
    write_atomic(folder / "inspected.json", json.dumps(content).encode())


class _Inspection:
    """One split, read once: which pairs are kept, and a hash of them."""

    def __init__(self, data: Data, corpus: Corpus, role: str, name: str, held_out: dict[str, set[str]]):
        self._reader, self._held_out, self._corpus = _Reader(corpus, role, name), held_out, corpus
        self._train, self._known_by = role == "train", int(not corpus.source)
        self._drop = self._train and data.bad_lines == "drop"
        self._rules = Rules(data) if self._train else None
        self._duplicates = Seen() if self._train and data.drop_duplicates else None
        self._kept: list[np.ndarray] = []
        self._dropped: Counter[str] = Counter()
        self._where: dict[str, list[str]] = {}
        self._bad: dict[tuple[str, int], list[int]] = {}
        self._bad_count: Counter[tuple[str, int]] = Counter()
        self._seen: Counter[str] = Counter()
        self._sha256 = hashlib.sha256()

    @property
    def keep(self) -> np.ndarray:
        """bool [pairs]"""
        return np.concatenate(self._kept) if self._kept else np.zeros(0, dtype=bool)

    def run(self, words: Counter[str] | None, say: Say) -> set[str]:
        """Read it all; returns the sources of a held-out split. Raises UserError naming broken lines."""
        sources: set[str] = set()
        reader, began, read, part = self._reader, time.perf_counter(), 0, ""
        for batch in reader.batches():
            if reader.part != part:
                self._complain(part)
                part = reader.part
            good = self._good(batch)
            if words is not None:
                for pair in good:
                    count_words(pair, words)
                for other, theirs in self._held_out.items():
                    self._seen[other] += sum(pair[self._known_by] in theirs for pair in good)
            else:
                sources.update(pair[self._known_by] for pair in good)
            self._sha256.update(_raw(good))
            read += len(batch)
            if len(self._kept) % SAID == 0:
                say(f"{reader.name}: {read} pairs read, {read / (time.perf_counter() - began):.0f} a second")
        self._complain(part)
        if not self.keep.any():
            source = self._corpus.name(reader.part, self._corpus.source)
            raise UserError(f"{source}: " + (f"none of {read} pairs are left" if read else "it is empty"))
        return sources

    def card(self) -> dict[str, Any]:
        keep = self.keep
        pairs = {"read": len(keep), "kept": int(keep.sum()), "dropped": dict(self._dropped)}
        card = {"text_sha256": self._sha256.hexdigest(), "pairs": pairs, "source_also_in": dict(self._seen)}
        return card | ({"dropped_first": self._where} if self._where else {})

    def _good(self, batch: tuple[Pair, ...]) -> list[Pair]:
        """The pairs that are kept."""
        keep = np.ones(len(batch), dtype=bool)
        rules = self._rules if self._rules is not None and self._rules.any else None
        for i, pair in enumerate(batch):
            if wrong := flaw(pair, bool(self._corpus.source)):
                keep[i] = False
                self._bad_count[wrong] += 1
                lines = self._bad.setdefault(wrong, [])
                if len(lines) <= SHOWN:
                    lines.append(self._reader.number + i + 1)
                self._note(wrong[0], i)
            elif rules is not None and (rule := rules.broken_rule(pair)):
                keep[i] = False
                self._note(rule, i)
        if self._duplicates is not None:
            left = np.flatnonzero(keep)
            for i in left[~self._duplicates.new([batch[i] for i in left])]:
                keep[i] = False
                self._note("duplicate", int(i))
        self._kept.append(keep)
        return list(compress(batch, keep))

    def _note(self, rule: str, i: int) -> None:
        self._dropped[rule] += 1
        where = self._where.setdefault(rule, [])
        if len(where) < SHOWN:
            where.append(f"{self._reader.part}:{self._reader.number + i + 1}")

    def _complain(self, part: str) -> None:
        """Raise UserError where the part that ends has broken lines that may not be dropped."""
        bad, counts = self._bad, self._bad_count
        self._bad, self._bad_count = {}, Counter()
        if not bad or self._drop:
            return
        languages = (self._corpus.source, self._corpus.target)
        broken = [
            f"{self._corpus.name(part, languages[side])}: {counts[rule, side]} broken lines ({rule}): "
            + ", ".join(map(str, lines[:SHOWN]))
            + (", …" if len(lines) > SHOWN else "")
            for (rule, side), lines in bad.items()
        ]
        train = "correct them, or leave these pairs out of training with data.bad_lines=drop"
        raise UserError(
            "\n".join([*broken, train if self._train else "correct them: held-out pairs are never dropped"])
        )


def _write_counts(path: Path, counts: Counter[str]) -> None:
    with path.open("wb") as file:
        for some in _batches(counts.items(), 1 << 16):
            file.write("".join(f"{count}\t{word}\n" for word, count in some).encode())


def _read_counts(path: Path) -> Iterator[tuple[str, int]]:
    with path.open("rb") as file:
        for line in file:
            count, _, word = line.decode().partition("\t")
            yield word.removesuffix("\n"), int(count)


# --- stage 3 ---


def _encode(
    reader: _Reader,
    role: str,
    inspected: dict[str, Any],
    keep: np.ndarray,
    tokenizer: Tokenizer | PieceTokenizer,
    data: Data,
    folder: Path,
    say: Say,
) -> dict[str, Any]:
    """Write the ids of a split; returns its part of the card."""
    held_out, text, unknown = role != "train", hashlib.sha256(), [0, 0]
    encoder = WordEncoder(tokenizer, len(os.sched_getaffinity(0)), data.normalization)
    read, written, began = 0, 0, time.perf_counter()
    with closing(SplitWriter(folder, role, tokenizer.V, held_out)) as writer:
        for number, batch in enumerate(reader.batches(), 1):
            pairs = batch if held_out else tuple(compress(batch, keep[read : read + len(batch)]))
            read, written = read + len(batch), written + len(pairs)
            text.update(_raw(pairs))
            for side, lines in enumerate(zip(*pairs, strict=True)):
                ids, lengths = encoder.encode(lines)
                unknown[side] += int(np.count_nonzero(ids == UNK))
                writer.write(SIDES[side], map(tokenizer.plain, lines), ids, lengths)
            if number % SAID == 0 and not held_out:
                say(f"{reader.name}: {read} pairs encoded, {read / (time.perf_counter() - began):.0f} a second")
    if read != inspected["pairs"]["read"]:
        raise UserError(
            f"split '{reader.name}' changed while it was read: {inspected['pairs']['read']} pairs, then {read}"
        )
    check_unchanged(text.hexdigest(), inspected["text_sha256"], f"split '{reader.name}'")
    split = Split(folder, role, tokenizer.V)
    sides = (split.source_lengths, split.target_lengths)
    digest = hashlib.sha256(f"{inspected['text_sha256']} {tokenizer.fingerprint}".encode())
    return {
        "name": reader.name,
        "fingerprint": digest.hexdigest(),
        **inspected,
        "pieces": {side: _lengths(sides[i], unknown[i]) for i, side in enumerate(SIDES)},
    }


def _lengths(values: np.ndarray, unknown: int) -> dict[str, Any]:
    quantiles = {f"{q}%": int(np.percentile(values, q, method="higher")) for q in (50, 90, 99)}
    mean = round(float(values.mean()), 2)
    return {"total": int(values.sum()), "unknown": unknown, "mean": mean, **quantiles, "longest": int(values.max())}
