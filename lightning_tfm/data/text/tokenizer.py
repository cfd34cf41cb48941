"""What turns text into the ids of pieces and back: SentencePiece's, or a text that somebody else has cut into pieces.

A ready text is split at spaces and joined for scoring, for the segmentation of a published result, whose perplexity is
per its own piece. A piece that ends in `@@` continues in the next one, as subword-nmt marks it (Sennrich, Haddow and
Birch 2016). data/text/vocabulary.py makes what is opened here.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import sentencepiece

from lightning_tfm.special_tokens import BOS, EOS, PAD, UNK

PIECES = "pieces.txt"
"""of a store of ready pieces: a line for each, by id"""
SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
JOIN = re.compile("@@([ \t]+|$)")


def tabs_as_spaces(line: str) -> str:
    """`line` as the tokenizer sees it: SentencePiece keeps the tab to itself, so that a tab becomes a space."""
    return line.replace("\t", " ")


def join_pieces(line: str) -> str:
    """Words of a line of pieces: `unter@@ bro@@ chen` becomes `unterbrochen`."""
    return JOIN.sub("", line)


class Encoder(Protocol):
    """What turns text into pieces: Tokenizer or PieceTokenizer."""

    def encode(self, lines: Sequence[str], threads: int = 1) -> list[np.ndarray]: ...


class Tokenizer:
    """A trained model: text to piece ids and back."""

    ready = False

    def __init__(self, path: Path):
        model = Path(path).read_bytes()
        self.fingerprint = hashlib.sha256(model).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.V = self._processor.get_piece_size()

    def encode(self, lines: Sequence[str], threads: int = 1) -> list[np.ndarray]:
        """Piece ids (int32) of each line, without begin and end."""
        spaces = [tabs_as_spaces(line) for line in lines]
        return self._processor.encode(spaces, num_threads=threads, return_type="numpy")

    def decode(self, ids: Sequence[int]) -> str:
        """Plain text of one sentence, which is one line whatever bytes it spells; padding, begin and end vanish."""
        return self._processor.decode([int(i) for i in ids]).replace("\n", " ")

    def plain(self, line: str) -> str:
        """A line of the corpus as it is scored."""
        return line

    def piece(self, id: int) -> str:
        """The piece as SentencePiece writes it, U+2581 for a space."""
        return self._processor.id_to_piece(int(id))


class PieceTokenizer(Encoder):
    """As Tokenizer, for a text of ready pieces. `path`: PIECES of a store."""

    ready = True
    """its text is already tokenised: Moses and the like have nothing left to do"""

    def __init__(self, path: Path):
        content = Path(path).read_bytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()
        self._pieces = content.decode().split("\n")[:-1]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i not in SPECIAL}
        self.V = len(self._pieces)

    def encode(self, lines: Sequence[str], threads: int = 1) -> list[np.ndarray]:
        """Ids (int32) of the pieces of each line; UNK for those that the vocabulary lacks."""
        rows = [[self._ids.get(piece, UNK) for piece in line.replace("\t", " ").split(" ") if piece] for line in lines]
        return [np.array(row, dtype=np.int32) for row in rows]

    def decode(self, ids: Sequence[int]) -> str:
        """Words of one sentence; padding, begin and end vanish."""
        return join_pieces(" ".join(self._pieces[int(i)] for i in ids if int(i) not in (PAD, BOS, EOS)))

    def plain(self, line: str) -> str:
        """A line of the corpus as it is scored."""
        return join_pieces(line)

    def piece(self, id: int) -> str:
        """The piece as the vocabulary writes it."""
        return self._pieces[int(id)]
