"""The built-in treebank: sentences of invented words whose trees are known, for they are drawn first.

A tree does not follow from the order of the kinds of words: as in natural language the words themselves decide. The
lexicon says which, at random, so that a model has to learn it word by word:

    prepositions    a phrase is of the nearest noun before it that takes the preposition, else of the verb; each noun
                    takes each preposition or does not
    coordination    of `ta A N e N` the adjective is of both nouns where these are of one category, else of the first
    relative        `ke` and what follows is of the nearest noun that the verb takes for its subject, by its category;
                    else of the nearest
    clauses         `e` joins two clauses, or two verbs of one subject: what follows the next noun phrase decides

Words are those of lexicon.py's source language, uninflected.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from lightning_tfm.config import Data
from lightning_tfm.data import lexicon
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.lexicon import Draw, Lexicon, Noun, Verb
from lightning_tfm.data.treebank import Tree, pair
from lightning_tfm.errors import UserError, nearest

P_TAKES, P_SUBJECT = 0.4, 0.6
"""chance that a noun takes a preposition, and that a verb takes a category of subjects"""
P_ADJECTIVE, P_NAME, P_INDEFINITE, P_AND = 0.25, 0.15, 0.3, 0.15
P_PREPOSITION = (0.55, 0.35, 0.2)
"""chance of a first prepositional phrase after the verb, of a second, of a third"""
P_OF_SUBJECT, P_RELATIVE, P_TWO_VERBS, P_TWO_CLAUSES, P_COMMA = 0.15, 0.2, 0.1, 0.1, 0.5
LONGEST = 24
"""words of the longest sentence, its full stop included"""
HELD_OUT = 500
"""trees in each of val and test"""
SPLITS = ("test", "val", "train")

Site = tuple[Tree, Noun]
"""a noun phrase that what follows may belong to, and its noun"""


def _leaf(word: str, tag: str = "XX") -> Tree:
    return Tree(tag, word=word)


class Treebank:
    """Draws trees."""

    def __init__(self, seed: int, draw: Draw):
        self._words, self._draw = Lexicon(seed), draw
        facts, words = Draw("attachment", seed), self._words
        self.takes = {
            (noun.source, preposition): facts.unit() < P_TAKES
            for noun in (*words.nouns, *words.names)
            for preposition, _ in words.prepositions
        }
        self.subjects = {
            (verb.source, category): facts.unit() < P_SUBJECT
            for verb in words.verbs
            for category in range(lexicon.CATEGORIES)
        }

    def sentence(self) -> Tree:
        clause = self._clause()
        if self._chance(P_TWO_CLAUSES):
            comma = [_leaf(",", ",")] * self._chance(P_COMMA)
            clause = Tree("S", [clause, *comma, _leaf("e"), self._clause()])
        clause.children.append(_leaf(".", "."))
        return clause

    def _clause(self) -> Tree:
        subject, sites = self._noun_phrase()
        if self._chance(P_OF_SUBJECT):
            self._preposition(sites, None)
        verbs = self._verb_phrase()
        if self._chance(P_TWO_VERBS):
            verbs = Tree("VP", [verbs, _leaf("e"), self._verb_phrase()])
        return Tree("S", [subject, verbs])

    def _verb_phrase(self) -> Tree:
        verb = self._pick(self._words.verbs)
        found, sites = Tree("VP", [_leaf(verb.source)]), list[Site]()
        if verb.arguments > 1:
            object_, sites = self._noun_phrase()
            found.children.append(object_)
        for p in P_PREPOSITION:
            if not self._chance(p):
                break
            sites = self._preposition(sites, found)
        if sites and self._chance(P_RELATIVE):
            self._relative(sites)
        return found

    def _noun_phrase(self) -> tuple[Tree, list[Site]]:
        """A phrase without what may follow, and where that may belong."""
        if self._chance(P_NAME):
            name = self._pick(self._words.names)
            found = Tree("NP", [_leaf(name.source)])
            return found, [(found, name)]
        noun = self._pick(self._words.nouns)
        adjective = [_leaf(self._pick(self._words.adjectives).source)] * self._chance(P_ADJECTIVE)
        found = Tree("NP", [_leaf("un" if self._chance(P_INDEFINITE) else "ta"), *adjective, _leaf(noun.source)])
        if not self._chance(P_AND):
            return found, [(found, noun)]
        other = self._pick(self._words.nouns)
        if adjective and other.category == noun.category:
            found.children += [_leaf("e"), _leaf(other.source)]
            return found, [(found, other)]
        last = Tree("NP", [_leaf(other.source)])
        return Tree("NP", [found, _leaf("e"), last]), [(last, other)]

    def _preposition(self, sites: list[Site], verbs: Tree | None) -> list[Site]:
        """Add a phrase where it belongs: in one of `sites`, the nearest first, else to the verb, or where there is none
        to the farthest of them. Where the next one may belong."""
        preposition = self._pick(self._words.prepositions)[0]
        phrase, inner = self._noun_phrase()
        added = Tree("PP", [_leaf(preposition), phrase])
        at = next((i for i, (_, noun) in enumerate(sites) if self.takes[noun.source, preposition]), None)
        if at is None and verbs is not None:
            verbs.children.append(added)
            return inner
        at = len(sites) - 1 if at is None else at
        _extend(sites[at][0], added)
        return [*inner, *sites[at:]]

    def _relative(self, sites: list[Site]) -> None:
        verb: Verb = self._pick(self._words.verbs)
        verbs = Tree("VP", [_leaf(verb.source)])
        if verb.arguments > 1:
            verbs.children.append(self._noun_phrase()[0])
        fits = (node for node, noun in sites if self.subjects[verb.source, noun.category])
        _extend(next(fits, sites[0][0]), Tree("SBAR", [_leaf("ke"), Tree("S", [verbs])]))

    def _pick(self, words: list[Any]) -> Any:
        return words[self._draw.zipf(self._words.weights[len(words)])]

    def _chance(self, p: float) -> bool:
        return self._draw.unit() < p


def _extend(phrase: Tree, by: Tree) -> None:
    """`phrase` becomes itself with what belongs to it."""
    phrase.children = [Tree(phrase.label, phrase.children), by]


class BuiltinTrees(Corpus):
    """`data.pairs` trees for training, HELD_OUT each in val and test, no sentence twice, by `data.corpus_seed`."""

    def __init__(self, data: Data):
        self.source, self.target = data.source, data.target
        self._pairs, self._seed = data.pairs, data.corpus_seed

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        """Val and test do not depend on how many trees training has."""
        if split not in SPLITS:
            raise UserError(f"data: the built-in treebank has no split '{split}': {nearest(split, SPLITS)}")
        taken = set[str]()
        for name in SPLITS:
            trees = Treebank(self._seed, Draw("trees", name, self._seed))
            missing = self._pairs if name == "train" else HELD_OUT
            while missing:
                words, tree = pair(trees.sentence())
                if words in taken or words.count(" ") >= LONGEST:
                    continue
                taken.add(words)
                missing -= 1
                if name == split:
                    yield words, tree
            if name == split:
                return

    def fingerprint(self, split: str) -> str:
        """Text that changes whenever the generator does: its source, that of what it draws from, size and seed."""
        sources = (inspect.getsource(sys.modules[f.__module__]) for f in (BuiltinTrees, Tree, Lexicon))
        digest = hashlib.sha256("".join(sources).encode()).hexdigest()
        return f"{digest} pairs={self._pairs} seed={self._seed}"

    def name(self, split: str, language: str) -> str:
        return f"built-in treebank, {split}.{language}"
