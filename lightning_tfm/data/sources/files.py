"""Where text comes from: a corpus yields the raw pairs of a split and knows how errors call them.

A new corpus is one class here and one line in `registry.CORPORA`; or your own class with a method `lines(split)`,
named by its import path in `data.corpus`. Where it has an `__init__`, that is given the `Data` section.
"""

import hashlib
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lightning_tfm.config import Data
from lightning_tfm.data.builtin import Builtin
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.parallel import read_pairs
from lightning_tfm.errors import NotHere, UserError
from lightning_tfm.registry import CORPORA
from lightning_tfm.sums import sha256

if TYPE_CHECKING:
    from lightning_tfm.data.chains import BuiltinChains

CHAINS = ("chained", "long")
"""splits of the built-in corpus that chains.py makes, under its names"""
PAIR = 154
"""bytes of memory for a pair of the built-in corpus while it is generated, measured on 200,000"""


class BuiltinCorpus(Corpus):
    """The invented language pair of `builtin.py`: splits train, val and test; and of `chains.py`: chained and long."""

    source, target = Data(corpus="builtin").languages

    def __init__(self, data: Data):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if data.pairs * PAIR > there:
            raise UserError(
                f"data.pairs={data.pairs}: the built-in corpus repeats no sentence, and so keeps all in memory, "
                f"{data.pairs * PAIR / 2**30:,.0f} GiB; this machine has {there / 2**30:,.0f} GiB: give at most "
                f"{there // PAIR:,}"
            )
        self._data, self._text = data, Builtin(data.pairs, data.corpus_seed)

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        return (self._chains() if split in CHAINS else self._text).lines(split)

    def fingerprint(self, split: str) -> str:
        text = self._text.fingerprint()
        return f"{text} {self._chains().fingerprint(split)}" if split in CHAINS else text

    def _chains(self) -> "BuiltinChains":
        from lightning_tfm.data.chains import BuiltinChains

        return BuiltinChains(self._data)

    def name(self, split: str, language: str) -> str:
        return f"built-in corpus, {split}.{language}"


class FilesCorpus(Corpus):
    """Parallel files `<split>.<language>`, or the same with `.gz`, in one folder: UTF-8, one sentence a line.

    Lines end only with "\\n" (or "\\r\\n"). The plain file is used if both exist. A byte-order mark at
    the start of a file is not text.
    """

    def __init__(self, data: Data):
        self.source, self.target = data.source, data.target
        self._folder = Path(data.folder).expanduser()
        self._named: dict[str, list[str]] = {}

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        paths = [self._path(split, language) for language in (self.source, self.target)]
        return read_pairs(paths[0], paths[1], self._named.get(split, ()))

    def fingerprint(self, split: str) -> str:
        """sha256 of both files, against which all that `lines` reads from now on is checked."""
        self._named[split] = [sha256(self._path(split, side)) for side in (self.source, self.target) if side]
        return " ".join(self._named[split])

    def name(self, split: str, language: str) -> str:
        return str(self._path(split, language))

    def _path(self, split: str, language: str) -> Path:
        names = (f"{split}.{language}", f"{split}.{language}.gz")
        for name in names:
            if (self._folder / name).is_file():
                return self._folder / name
        if not self._folder.is_dir():
            raise NotHere(f"data.folder={self._folder}: no such folder")
        present = sorted(path.name for path in self._folder.iterdir())
        listed = ", ".join(present[:12]) + (f" and {len(present) - 12} more" if len(present) > 12 else "")
        raise NotHere(
            f"data.folder={self._folder} has neither {names[0]} nor {names[1]}; "
            f"it holds: {listed or 'nothing'}. Set data.train, data.dev, data.test"
            + ", data.source, data.target" * bool(self.source)
            + " to match"
        )


class OwnCorpus(Corpus):
    """What a user-defined class yields by `lines(split)`, in the languages of the `Data` section.

    It is identified by its text, for which each split is read once by every process. If that takes too long, derive
    the class from `Corpus` instead and say what changes with the text.
    """

    def __init__(self, made_by: Any, data: Data):
        self.source, self.target = data.source, data.target
        self.made_by, self._path = made_by, data.corpus
        self._own = made_by() if made_by.__init__ is object.__init__ else made_by(data)
        self._fingerprints: dict[str, str] = {}

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        yield from self._own.lines(split)

    def fingerprint(self, split: str) -> str:
        if split not in self._fingerprints:
            digest = hashlib.sha256()
            for pair in self.lines(split):
                for line in pair:
                    raw = line.encode(errors="surrogateescape")
                    digest.update(f"{len(raw)} ".encode() + raw)
            self._fingerprints[split] = digest.hexdigest()
        return self._fingerprints[split]

    def name(self, split: str, language: str) -> str:
        return f"{self._path}, {split}.{language}"


def make_corpus(data: Data) -> Corpus:
    """The corpus that `data.corpus` names: one that ships, or the import path of a class."""
    cls = CORPORA.find(data.corpus, __name__)
    if not (isinstance(cls, type) and callable(getattr(cls, "lines", None))):
        raise UserError(f"data.corpus={data.corpus}: must be a class with a method lines(split)")
    if not issubclass(cls, Corpus):
        return OwnCorpus(cls, data)
    if inspect.isabstract(cls):
        lacking = ", ".join(sorted(cls.__abstractmethods__))
        raise UserError(
            f"data.corpus={data.corpus}: a subclass of Corpus must define {lacking} too; a class with lines(split) "
            "that does not derive from it need not"
        )
    corpus: Any = cls
    return cast(Corpus, corpus(data))


def corpus_fingerprint(corpus: Corpus, split: str) -> str:
    """`corpus.fingerprint`, and for a class from outside the package the hash of its source file, and of the
    user's modules that it imports.
    """
    made_by = corpus.made_by if isinstance(corpus, OwnCorpus) else type(corpus)
    if made_by.__module__.startswith("lightning_tfm."):
        return corpus.fingerprint(split)
    from lightning_tfm.user_code.modules import source_digest

    return f"{source_digest(made_by)} {corpus.fingerprint(split)}"
