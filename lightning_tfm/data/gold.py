"""Trees and alignments of the built-in languages, known because the sentences are drawn from them.

The generators' sources name the stores of data, so nothing is added to them: the same grammar draws the same sentences
once more, with words that remember what they belong to. Of a source word

    parent    the word it depends on; a phrase with a preposition, `to` or `de`, a relative clause and a joined clause
              are headed by the word that begins them
    head      the noun or verb over it, such function words passed over; of these words the noun or verb that they begin

and of a target word the source word that it translates: of a compound its head, of a number one of its digits. In the
treebank what `e` joins belongs to the first part, and so does `e`, as in its trees.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lightning_tfm.config import Data
from lightning_tfm.data.builtin import HELD_OUT, SPLITS, Builtin, Grammar, Phrase
from lightning_tfm.data.lexicon import Draw, Lexicon
from lightning_tfm.data.treebank import WORD, Tree, pair
from lightning_tfm.data.trees import BuiltinTrees, Treebank

NONE = -1
"""no such word"""
RELATIONS = ("parent", "head")


@dataclass(frozen=True)
class Gold:
    """Of one pair. Words are what spaces part; each list has a word's number, from 0, or NONE."""

    parent: Mapping[str, list[int]]
    """source, target -> the parent of each word"""
    head: Mapping[str, list[int]]
    aligned: list[int]
    """source word of each target word"""


class Word(str):
    parent: "Word | None" = None
    head: "Word | None" = None
    source: "Word | None" = None


def _words(words: Sequence[str]) -> list[Any]:
    """Words, with what is known of those that remember it. Any: the grammar's lists are of plain ones."""
    return [word if isinstance(word, Word) else Word(word) for word in words]


def _attach(words: Sequence[Word], parent: Word | None, head: Word | None) -> None:
    """Those that belong nowhere yet."""
    for word in words:
        if word is not parent:
            word.parent = word.parent or parent
        if word is not head:
            word.head = word.head or head


class Traced(Grammar):
    """Draws the sentences of Grammar and keeps the words of their clauses."""

    def __init__(self, lexicon: Lexicon, draw: Draw):
        super().__init__(lexicon, draw)
        self._verbs = {verb.source + ending for verb in lexicon.verbs for ending in ("", "ed")}
        self._adjectives = {one.source for one in lexicon.adjectives}
        self._nouns = {noun.source for noun in lexicon.nouns}
        self._known = dict((target, source) for source, target in (*lexicon.prepositions, *lexicon.times))
        self._opens = {"to", *(source for source, _ in lexicon.prepositions)}
        self._clauses: list[tuple[list[Word], list[Word], Word]] = []

    def traced(self) -> tuple[str, str, Gold]:
        self._clauses.clear()
        lines = self.sentence()
        (source, target, verb), *more = self._clauses
        for source_2, target_2, verb_2 in more:
            # what joins them is the word between, in both languages
            joins, joined = Word(lines[0].split(" ")[len(source)]), Word(lines[1].split(" ")[len(target)])
            joins.parent, joins.head, joined.source = verb, verb_2, joins
            _attach([verb_2], joins, verb)
            source, target = [*source, joins, *source_2], [*target, joined, *target_2]
        return (*lines, _gold(source, target))

    def _clause(self, order: str, *first: Any) -> Any:
        drawn, translated, subject, object_ = super()._clause(order, *first)
        source, verb = self._attached(drawn)
        _attach(source, verb, verb)
        by_name = {word: word for plain, word in zip(drawn, source, strict=True) if plain is not word}
        for phrase, word in ((subject, "il"), (object_, "lo")):
            if phrase and phrase.source == [word]:
                by_name[phrase.target[0]] = by_name[word]
        by_name |= {"nit": by_name.get("no", verb)}
        by_name |= {word: by_name[known] for word, known in self._known.items() if known in by_name}
        auxiliary = by_name.get("va", verb)
        target = _words(translated)
        for word in target:
            finite = word in ("wor", "war", "wer", "wir")
            word.source = word.source or by_name.get(word) or (auxiliary if finite else verb)
        self._clauses.append((source, target, verb))
        return source, target, subject, object_

    def _phrase(self, case: str, depth: int | None) -> Phrase:
        made = super()._phrase(case, depth)
        source, target = _words(made.source), _words(made.target)
        at, noun = next((i, word) for i, word in enumerate(source) if word.parent is None)
        target[0].source = target[0].source or noun  # a name
        after = source[at + 1 :]
        if after[:1] == ["de"]:
            _attach(after[:1], noun, next(word for word in after[1:] if word.parent is None))
            _attach(after[1:], after[0], noun)
        _attach([word for word in source if word is not noun], noun, noun)
        return Phrase(source, target, made.vowel, made.category)

    def _common(self, case: str) -> Phrase:
        made = super()._common(case)
        source, target = _words(made.source), _words(made.target)
        noun = target[-1].source = source[-1]
        before = [word for word in source[:-1] if word not in self._nouns]
        if before[-1] in self._adjectives:
            target[-2].source = before.pop()
        numbers = [word for word in target if word.source is None]
        for word in numbers:
            hundreds = word is not numbers[-1] or before[-1] == self._words.hundred[0]
            word.source = before[0 if hundreds else -1]
        _attach(source, noun, noun)
        noun.parent = noun.head = None
        return Phrase(source, target, made.vowel, made.category)

    def _relative(self, head: Phrase, depth: int) -> tuple[list[str], list[str]]:
        drawn, translated = super()._relative(head, depth)
        source, verb = self._attached(drawn)
        ke = source[0]
        _attach([word for word in source if word is not ke], verb, verb)
        verb.parent, verb.head, ke.head = ke, None, verb
        target = _words(translated)
        target[0].source = ke
        auxiliary = next((word for word in source if word == "va" and word.parent is verb), verb)
        for word in target[1:]:
            word.source = word.source or (auxiliary if word is target[-1] else verb)
        return source, target

    def _attached(self, words: list[str]) -> tuple[list[Any], Word]:
        """Words with what follows `to` and prepositions attached to these; and the verb."""
        new = [not isinstance(word, Word) for word in words]
        made = _words(words)
        verb = next(word for word, plain in zip(made, new, strict=True) if plain and word in self._verbs)
        opened: Word | None = None
        for word, plain in zip(made, new, strict=True):
            if plain:
                opened = word if word in self._opens else None
            elif opened is not None and word.parent is None:  # the noun of what it opens
                opened.head = word
                _attach([word], opened, verb)
        return made, verb


def _gold(source: list[Word], target: list[Word]) -> Gold:
    number = {id(word): i for i, word in enumerate(source)}

    def over(relation: str) -> list[int]:
        above = (getattr(word, relation) for word in source)
        return [NONE if word is None else number[id(word)] for word in above]

    aligned = [NONE if word.source is None else number[id(word.source)] for word in target]
    both = {relation: over(relation) for relation in RELATIONS}
    trees = {name: {"source": up, "target": projected(up, aligned)} for name, up in both.items()}
    return Gold(trees["parent"], trees["head"], aligned)


def projected(up: list[int], aligned: list[int]) -> list[int]:
    """Of each target word the one that translates its source word's nearest ancestor that is translated at all."""
    there = {word: i for i, word in reversed(list(enumerate(aligned))) if word != NONE}
    found = []
    for word in aligned:
        above = up[word] if word != NONE else NONE
        while above != NONE and above not in there:
            above = up[above]
        found.append(there.get(above, NONE))
    return found


def head_child(tree: Tree, content: bool) -> Tree:
    """The child that heads a phrase of the built-in treebank; `content`: not the word that opens it."""
    children = [child for child in tree.children if child.word != "," and child.word != "."]
    if tree.label in ("PP", "SBAR"):
        return children[-1 if content else 0]
    if tree.label == "NP" and not children[0].children:
        words = [child.word for child in children]
        return children[words.index("e") - 1 if "e" in words else -1]
    if tree.label == "S" and children[0].label == "NP":
        return children[1]
    return children[0]


def of_tree(tree: Tree) -> Gold:
    """Of a sentence and its linearised tree, in which the parent of a token is the label whose bracket is open, of a
    label that closes the one that opened."""
    words = list(_leaves(tree))
    number = {id(leaf): i for i, leaf in enumerate(words)}
    up = {}
    for relation in RELATIONS:
        above = [NONE] * len(words)
        _fill(tree, relation == "head", number, above)
        up[relation] = above
    tokens = pair(tree)[1].split(" ")
    aligned, opened, parents, word = [], list[int](), [], 0
    for i, token in enumerate(tokens):
        leaf = token == WORD or (not token[0].isalpha() and not token.startswith("/"))
        parents.append(opened[-1] if opened else NONE)
        aligned.append(word if leaf else NONE)
        word += leaf
        if token.startswith("/"):
            opened.pop()
        elif not leaf:
            opened.append(i)
    head = projected(up["head"], aligned)
    return Gold({"source": up["parent"], "target": parents}, {"source": up["head"], "target": head}, aligned)


def _leaves(tree: Tree) -> Iterator[Tree]:
    if tree.word:
        yield tree
    for child in tree.children:
        yield from _leaves(child)


def _fill(tree: Tree, content: bool, number: Mapping[int, int], above: list[int]) -> int:
    """The head word of `tree`; all others below it get theirs."""
    if tree.word:
        return number[id(tree)]
    heads = [_fill(child, content, number, above) for child in tree.children]
    first = head_child(tree, content)
    own = heads[next(i for i, child in enumerate(tree.children) if child is first)]
    for word in heads:
        if word != own:
            above[word] = own
    return own


def has_gold(data: Data, split: str) -> bool:
    return data.corpus in ("builtin", "trees") and split in SPLITS and split != "train"


def gold_pairs(data: Data, split: str) -> dict[tuple[str, str], Gold] | None:
    """(source line, target line) -> its gold structure, for all lines of a split that is held out; None of others.

    The generator draws more than it keeps, as no sentence comes twice, and in the same order.
    """
    if not has_gold(data, split):
        return None
    if data.corpus == "builtin":
        lines = Builtin(data.pairs, data.corpus_seed).lines(split)
        grammar = Traced(Lexicon(data.corpus_seed), Draw(split, data.corpus_seed))
        return _matched(lines, (grammar.traced() for _ in iter(int, 1)))
    bank = Treebank(data.corpus_seed, Draw("trees", split, data.corpus_seed))
    drawn = (bank.sentence() for _ in iter(int, 1))
    return _matched(BuiltinTrees(data).lines(split), ((*pair(tree), of_tree(tree)) for tree in drawn))


def _matched(lines: Iterator[tuple[str, str]], drawn: Iterator[tuple[str, str, Gold]]) -> dict[tuple[str, str], Gold]:
    found = {}
    for line in lines:
        for one in islice(drawn, 100 * HELD_OUT):
            if one[:2] == line:
                found[line] = one[2]
                break
        else:
            raise AssertionError(f"the grammar no longer draws {line[0]!r}")
    return found
