"""Where text comes from: a corpus yields the raw pairs of a split and knows how errors call them.

A new corpus is one class here and one line in CORPORA; or a class of your own, named by its import path in
`data.corpus` and made with the `Data` section as its only argument.
"""

import hashlib
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from lightning_tfm.config import Data
from lightning_tfm.data.builtin import Builtin
from lightning_tfm.data.checksums import sha256
from lightning_tfm.data.corpus import Corpus, read_pairs
from lightning_tfm.data.manifest import SOURCES
from lightning_tfm.data.official import OfficialCorpus
from lightning_tfm.errors import UserError, nearest


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
        return read_pairs(self._path(split, self.source), self._path(split, self.target))

    def fingerprint(self, split: str) -> str:
        paths = [self._path(split, language) for language in (self.source, self.target)]
        return " ".join(sha256(path) for path in paths)

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


CORPORA: dict[str, type[Corpus]] = {
    "builtin": BuiltinCorpus,
    "files": FilesCorpus,
    **dict.fromkeys(SOURCES, OfficialCorpus),
}


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
