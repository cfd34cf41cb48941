"""Where text comes from: a corpus yields the raw pairs of a split and knows how errors call them.

A new corpus is one class here and one line in CORPORA; or a class of your own, named by its import path in
`data.corpus` and made with the `Data` section as its only argument.
"""

import gzip
import hashlib
import importlib
import inspect
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from lightning_tfm.config import Data
from lightning_tfm.data.builtin import Builtin
from lightning_tfm.errors import UserError, nearest


class Corpus(ABC):
    """Parallel text. Attributes: `source` and `target`, the language codes."""

    source: str
    target: str

    @abstractmethod
    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        """Raw pairs of a split, in order, without line ends.

        Bytes that are no UTF-8 come as surrogates (`errors="surrogateescape"`); `prepare` reports them.
        """

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """Text that changes whenever `lines(split)` would: cheap, for it is asked for on every start.

        The source of a class of your own is added by `corpus_fingerprint`; name what lies outside: files, a seed.
        """

    @abstractmethod
    def name(self, split: str, language: str) -> str:
        """What errors call one side of a split, e.g. the path of its file."""


class BuiltinCorpus(Corpus):
    """The invented language pair of `builtin.py`: splits train, val and test."""

    source, target = "xa", "xb"

    def __init__(self, data: Data):
        self._text = Builtin(data.pairs, data.corpus_seed)

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        return self._text.lines(split)

    def fingerprint(self, split: str) -> str:
        return self._text.fingerprint()

    def name(self, split: str, language: str) -> str:
        return f"built-in corpus, {split}.{language}"


class FilesCorpus(Corpus):
    """Parallel files `<split>.<language>`, or the same with `.gz`, in one folder: UTF-8, one sentence a line.

    Lines end with "\\n" (or "\\r\\n") alone. The plain file is taken where both lie there. A byte-order mark at
    the start of a file is no text.
    """

    def __init__(self, data: Data):
        self.source, self.target = data.source, data.target
        self._folder = Path(data.folder).expanduser()

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        source, target = self._path(split, self.source), self._path(split, self.target)
        counts = [0, 0]
        for pair in zip_longest(_read(source), _read(target)):
            for side in (0, 1):
                counts[side] += pair[side] is not None
            if None not in pair:
                yield pair
        for path, count in zip((source, target), counts, strict=True):
            if not count:
                raise UserError(f"{path} is empty: give it one sentence a line, line n of both languages together")
        if counts[0] != counts[1]:
            raise UserError(
                f"{source} has {counts[0]} lines, {target} has {counts[1]}: "
                "line n of both files must belong together; was one cut short, or split at more than line feeds?"
            )

    def fingerprint(self, split: str) -> str:
        paths = [self._path(split, language) for language in (self.source, self.target)]
        return " ".join(_sha256(path) for path in paths)

    def name(self, split: str, language: str) -> str:
        return str(self._path(split, language))

    def _path(self, split: str, language: str) -> Path:
        names = (f"{split}.{language}", f"{split}.{language}.gz")
        for name in names:
            if (self._folder / name).is_file():
                return self._folder / name
        if not self._folder.is_dir():
            raise UserError(f"data.folder={self._folder}: there is no such folder")
        present = sorted(path.name for path in self._folder.iterdir())
        listed = ", ".join(present[:12]) + (f" and {len(present) - 12} more" if len(present) > 12 else "")
        raise UserError(
            f"data.folder={self._folder} has neither {names[0]} nor {names[1]}; "
            f"it holds: {listed or 'nothing'}. Set data.train, data.dev, data.test, data.source, data.target to match"
        )


CORPORA: dict[str, type[Corpus]] = {"builtin": BuiltinCorpus, "files": FilesCorpus}


def make_corpus(data: Data) -> Corpus:
    """The corpus that `data.corpus` names: a key of CORPORA or the import path of a class."""
    if data.corpus in CORPORA:
        return CORPORA[data.corpus](data)
    module, _, name = data.corpus.rpartition(".")
    if not module:
        known = nearest(data.corpus, CORPORA)
        raise UserError(f"data.corpus={data.corpus}: unknown: {known} or the import path of a class")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"data.corpus={data.corpus}: cannot be imported ({error}); is its folder on PYTHONPATH?"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Corpus)):
        raise UserError(f"data.corpus={data.corpus}: must be a subclass of lightning_tfm.data.corpora.Corpus")
    if inspect.isabstract(found):
        raise UserError(f"data.corpus={data.corpus}: lacks the methods {', '.join(sorted(found.__abstractmethods__))}")
    return found(data)


def corpus_fingerprint(corpus: Corpus, split: str) -> str:
    """`corpus.fingerprint`, and for a class from outside the package the hash of its source file."""
    if type(corpus) in CORPORA.values():
        return corpus.fingerprint(split)
    source = inspect.getsource(inspect.getmodule(type(corpus)))
    return f"{hashlib.sha256(source.encode()).hexdigest()} {corpus.fingerprint(split)}"


def _read(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file):
                text = line.decode("utf-8-sig" if number == 0 else "utf-8", errors="surrogateescape")
                yield text.removesuffix("\n").removesuffix("\r")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is no whole gzip file ({error}): fetch or compress it again") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
