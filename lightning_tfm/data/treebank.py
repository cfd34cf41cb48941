"""Constituency trees as pairs of lines: the words of a sentence, and its tree as a sequence (Vinyals et al. 2015).

    (TOP (S (NP-SBJ (DT The) (NN dog)) (VP (VBD slept) (NP (-NONE- *))) (. .)))     a tree of a treebank
    The dog slept .                                                                source
    S NP XX XX /NP VP XX /VP . /S                                                  target

As in the authors' first code a label opens a bracket and the label with a slash closes it, and the outermost TOP is
left out; as in Vinyals et al. every part of speech is XX. Punctuation keeps its own tag, for EVALB knows it by that
(brackets.py). Empty elements, the brackets that hold nothing else, function tags and indices are left out.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.parallel import check_unchanged
from lightning_tfm.errors import NotHere, UserError
from lightning_tfm.sums import sha256

WORD = "XX"
LEAVES = (WORD, ",", ":", "``", "''", ".")
"""what stands for a word, and punctuation by its tags"""
ROOTS, EMPTY = ("", "TOP", "ROOT", "S1"), "-NONE-"
ENDINGS = (".mrg", ".ptb")
SECTIONS = re.compile(r"(\d\d)-(\d\d)")
VERSION = 1
"""raised whenever the same trees become other lines"""


@dataclass
class Tree:
    label: str
    """of a word its part of speech"""
    children: list["Tree"] = field(default_factory=list)
    word: str = ""


def plain_label(label: str) -> str:
    """Without function tags and indices: `NP-SBJ=2` is NP. What begins with a hyphen, as -LRB-, is left as it is."""
    return label if label.startswith("-") else label.partition("-")[0].partition("=")[0]


def pair(tree: Tree) -> tuple[str, str]:
    """Its words, and the tree as a sequence; both empty where it holds empty elements alone."""
    words, tokens = list[str](), list[str]()
    _write(tree, words, tokens)
    return " ".join(words), " ".join(tokens)


def _write(tree: Tree, words: list[str], tokens: list[str]) -> None:
    if not tree.children:
        if tree.label != EMPTY:
            words.append(tree.word)
            tokens.append(tree.label if tree.label in LEAVES else WORD)
        return
    label, before, at = plain_label(tree.label), len(words), len(tokens)
    for child in tree.children:
        _write(child, words, tokens)
    if len(words) > before and label not in ROOTS:
        tokens.insert(at, label)
        tokens.append(f"/{label}")


def read_trees(text: str, name: str) -> Iterator[Tree]:
    """The trees of a file in the Penn Treebank's bracketing. Raises UserError naming `name` and the line."""
    above: list[Tree] = []
    for number, line in enumerate(text.split("\n"), 1):
        for token in re.findall(r"[()]|[^\s()]+", line):
            here, wrong = above[-1] if above else None, ""
            if token == "(":
                above.append(Tree(""))
                if here is not None:
                    here.children.append(above[-1])
                    wrong = f"a bracket after the word '{here.word}'" * bool(here.word)
            elif here is None:
                wrong = f"'{token}' outside of all brackets"
            elif token == ")":
                above.pop()
                if not here.children and not here.word:
                    wrong = "a bracket that holds nothing"
                elif not above:
                    yield here
            elif not here.label and not here.children:
                here.label = token
                wrong = f"the label '{token}', which linearised trees have no place for" * token.startswith("/")
            else:
                wrong = "a word beside another, or beside brackets" * bool(here.word or here.children)
                here.word = token
            if wrong:
                raise UserError(f"{name}:{number}: {wrong}")
    if above:
        raise UserError(f"{name}: ends within a bracket")


class TreebankCorpus(Corpus):
    """Trees in a folder: files `.mrg` or `.ptb`, UTF-8, in the Penn Treebank's bracketing.

    A split is a folder in it, searched with all that is below; or one file, without its ending; or sections of the Wall
    Street Journal, `02-21`, each a folder; or a list of files, SPLIT.txt, one name a line.
    """

    def __init__(self, data: Data):
        self.source, self.target = data.source, data.target
        self._folder = Path(data.folder).expanduser()
        self._named: dict[str, list[str]] = {}

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        files = self._files(split)
        named = self._named.get(split, [""] * len(files))
        for path, expected in zip(files, named, strict=True):
            raw = path.read_bytes()
            if expected:
                check_unchanged(hashlib.sha256(raw).hexdigest(), expected, str(path))
            try:
                text = raw.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise UserError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
            yield from filter(all, map(pair, read_trees(text, str(path))))

    def fingerprint(self, split: str) -> str:
        """sha256 of the files, to which whatever `lines` reads from now on is held."""
        self._named[split] = [sha256(path) for path in self._files(split)]
        return f"{VERSION} {' '.join(self._named[split])}"

    def name(self, split: str, language: str) -> str:
        return f"{self._folder}, {split}.{language}"

    def _files(self, split: str) -> list[Path]:
        sections = SECTIONS.fullmatch(split)
        if sections:
            first, last = map(int, sections.groups())
            return [path for number in range(first, last + 1) for path in self._files(f"{number:02}")]
        listed = self._folder / f"{split}.txt"
        if listed.is_file():
            found = [
                self._folder / line.strip() for line in listed.read_text(encoding="utf-8").split("\n") if line.strip()
            ]
            for path in found:
                if not path.is_file():
                    raise NotHere(f"{listed} names {path}, which is missing")
            return found
        there = (self._folder / split).rglob("*")
        found = [path for ending in ENDINGS if (path := self._folder / f"{split}{ending}").is_file()]
        found = found or sorted(path for path in there if path.suffix in ENDINGS and path.is_file())
        if not found:
            present = sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []
            raise NotHere(
                f"data.folder={self._folder} has no trees of a split '{split}': expected a folder {split}/ with files "
                f"{' or '.join(ENDINGS)}, one such file, or a list {split}.txt; it holds: "
                f"{', '.join(present[:12]) or 'nothing'}"
            )
        return found
