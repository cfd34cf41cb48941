"""Text without a source, for a language model: plain files, or the target side of the built-in language.

A text is what one row of a batch holds: lines of one document after one another, as many as have at most
`data.max_words` words together, joined by a space. A longer line is cut between words; an empty line ends a document.
With `data.max_words` 0 every line is a separate text. The lines of `data.long` are packed to lengths from a quarter of
the training length up to FARTHEST times it, in words: a word is at least one piece, so they reach as far in pieces.
"""

from collections.abc import Iterable, Iterator
from itertools import cycle, repeat

from lightning_tfm.config import Data
from lightning_tfm.data.chains import FARTHEST
from lightning_tfm.data.parallel import read_lines
from lightning_tfm.data.sources.files import BuiltinCorpus, FilesCorpus
from lightning_tfm.data.text.cleaning import flaw
from lightning_tfm.errors import UserError

Pair = tuple[str, str]


def pack_texts(lines: Iterable[str], sizes: Iterator[int]) -> Iterator[str]:
    """Texts of at most as many words as the next of `sizes` says."""
    words, most = list[str](), next(sizes)
    for line in lines:
        more = line.split()
        if words and (not more or len(words) + len(more) > most):
            yield " ".join(words)
            words, most = [], next(sizes)
        words += more
        while len(words) > most:
            yield " ".join(words[:most])
            words, most = words[most:], next(sizes)
    if words:
        yield " ".join(words)


class LinesCorpus(FilesCorpus):
    """Files `<split>.txt`, or the same with `.gz`, in one folder: UTF-8, documents separated by empty lines."""

    def __init__(self, data: Data):
        super().__init__(data)
        self._data = data
        self.source, self.target = data.languages

    def lines(self, split: str) -> Iterator[Pair]:
        return (("", text) for text in _texts(self._read(split), split, self._data))

    def fingerprint(self, split: str) -> str:
        return f"{super().fingerprint(split)} {_packing(split, self._data)}"

    def _read(self, split: str) -> Iterator[str]:
        path, some = self._path(split, self.target), False
        for number, line in enumerate(read_lines(path, *self._named.get(split, ())), 1):
            wrong = flaw(("", line), source=False)
            if wrong and wrong[0] != "empty":
                raise UserError(f"{path}:{number}: broken line ({wrong[0]}): correct it")
            some = some or not wrong
            yield line
        if not some:
            raise UserError(f"{path} is empty: give it one sentence or paragraph per line")


class BuiltinLines(BuiltinCorpus):
    """The target side of the built-in language, one document; splits train, val and test, chained and long."""

    def __init__(self, data: Data):
        super().__init__(data)
        self._data = data
        self.source, self.target = data.languages

    def lines(self, split: str) -> Iterator[Pair]:
        lines = (pair[1] for pair in super().lines(split))
        return (("", text) for text in _texts(lines, split, self._data))

    def fingerprint(self, split: str) -> str:
        return f"{super().fingerprint(split)} {_packing(split, self._data)}"


def _texts(lines: Iterable[str], split: str, data: Data) -> Iterator[str]:
    if not data.max_words:
        return (line for line in lines if line.split())
    return pack_texts(lines, _sizes(split, data))


def _sizes(split: str, data: Data) -> Iterator[int]:
    if split != data.long:
        return repeat(data.max_words)
    step = max(data.training_length // 4, 1)
    return cycle(range(step, FARTHEST * data.training_length + 1, step))


def _packing(split: str, data: Data) -> str:
    """What the texts depend on beside the lines."""
    long = f" long={data.training_length}" * (split == data.long)
    return f"packed={data.max_words}{long}"
