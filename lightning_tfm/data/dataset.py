"""A token store that was made (data/prepare.py), opened: all that a run sees of its text."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lightning_tfm.data.text.tokenizer import PIECES, PieceTokenizer, Tokenizer
from lightning_tfm.data.token_store import EncodedText, Split
from lightning_tfm.errors import UserError
from lightning_tfm.sums import check_recorded


class Text(Protocol):
    """What can be scored: Prepared, adhoc_split.TextSet, length_buckets.LongText."""

    @property
    def tokenizer(self) -> Tokenizer | PieceTokenizer: ...

    def split(self, name: str, /) -> Split | EncodedText: ...

    def fingerprint(self, split: str, /) -> str: ...


class Prepared:
    """A whole store, opened; what is read from it is held against its checksums first, once."""

    def __init__(self, folder: Path):
        self.folder, self._whole = folder, set[str]()
        check_recorded(folder, "card.json")
        self.card: dict[str, Any] = json.loads((folder / "card.json").read_text())
        """what went in and what came out: pairs read, kept and dropped by rule, pieces, lengths, hashes"""

    @cached_property
    def tokenizer(self) -> Tokenizer | PieceTokenizer:
        check_recorded(self.folder, "tokenizer.model")
        check_recorded(self.folder, PIECES)
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
            check_recorded(self.folder, f"{role}.")
            self._whole.add(role)
        return Split(self.folder, role, self.card["tokenizer"]["V"])

    def _role(self, role: str) -> dict[str, Any]:
        return self.card["splits"][role]

    def _role_of(self, split: str) -> str:
        for role, card in self.card["splits"].items():
            if card["name"] == split:
                return role
        names = ", ".join(card["name"] for card in self.card["splits"].values())
        raise UserError(f"no prepared split '{split}'; prepared: {names}")


def open_tokenizer(folder: Path) -> Tokenizer | PieceTokenizer:
    """The one of a store."""
    if (folder / PIECES).is_file():
        return PieceTokenizer(folder / PIECES)
    return Tokenizer(folder / "tokenizer.model")
