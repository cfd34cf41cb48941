"""Text that somebody else has cut into pieces: split at spaces, numbered by a vocabulary file, joined for scoring.

For the segmentation of a published result, whose perplexity is per piece of its own. A piece that ends in `@@` goes on
in the next one, as subword-nmt marks it (Sennrich, Haddow and Birch 2016).
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from lightning_tfm.config import BOS, EOS, PAD, UNK, Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.word_encoder import Encoder
from lightning_tfm.errors import UserError
from lightning_tfm.sums import sha256

FILE = "pieces.txt"
"""of a store: a line for each piece, by id"""
SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
JOIN = re.compile("@@( |$)")


def joined(line: str) -> str:
    """Words of a line of pieces: `unter@@ bro@@ chen` becomes `unterbrochen`."""
    return JOIN.sub("", line)


def vocabulary_path(data: Data, corpus: Corpus) -> Path | None:
    """The vocabulary file of data.tokenizer=pieces, None for other tokenizers. Raises UserError where there is none."""
    if data.tokenizer != "pieces":
        return None
    found = getattr(corpus, "vocabulary", None)
    if data.vocabulary:
        named = Path(data.vocabulary).expanduser()
        found = named if named.is_absolute() or not data.folder else Path(data.folder).expanduser() / named
    if found is None:
        raise UserError("data.tokenizer=pieces needs data.vocabulary: a file with one piece a line, in data.folder")
    if not found.is_file():
        raise UserError(f"{found} is missing: data.tokenizer=pieces needs it, a file with one piece a line")
    return found


def vocabulary_fingerprint(data: Data, corpus: Corpus) -> str:
    """sha256 of the vocabulary file, which need not be here where the corpus has recorded it; "" where none is used."""
    known = getattr(corpus, "vocabulary_sha256", None)
    if data.tokenizer == "pieces" and not data.vocabulary and known is not None:
        return str(known)
    path = vocabulary_path(data, corpus)
    return "" if path is None else sha256(path)


def read_vocabulary(path: Path) -> list[str]:
    """The pieces of a file, in its order; a count after a piece and the special pieces are left out.

    Raises UserError where a line is empty, repeats a piece, or is not UTF-8.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason})") from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
        piece = line.removesuffix("\r").partition(" ")[0].partition("\t")[0]
        if not piece:
            raise UserError(f"{path}:{number}: an empty line; expected a piece")
        if piece in found:
            raise UserError(f"{path}:{number}: '{piece}' is already in line {found[piece]}")
        found[piece] = number
    pieces = [piece for piece in found if piece not in SPECIAL.values()]
    if not pieces:
        raise UserError(f"{path}: holds no pieces")
    return pieces


def table(pieces: Iterable[str]) -> bytes:
    """The content of FILE."""
    return "".join(f"{piece}\n" for piece in (*SPECIAL.values(), *pieces)).encode()


class PieceTokenizer(Encoder):
    """As `tokenizer.Tokenizer`, for a text of ready pieces. `path`: FILE of a store."""

    ready = True
    """its text is tokenised as it stands: Moses and the like have nothing left to do"""

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
        return joined(" ".join(self._pieces[int(i)] for i in ids if int(i) not in (PAD, BOS, EOS)))

    def plain(self, line: str) -> str:
        """A line of the corpus as it is scored."""
        return joined(line)

    def piece(self, id: int) -> str:
        """The piece as the vocabulary writes it."""
        return self._pieces[int(id)]
