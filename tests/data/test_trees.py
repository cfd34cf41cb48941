"""Trees as pairs of lines: a treebank's bracketing read, and the built-in treebank, whose words decide its trees."""

from collections import defaultdict

import pytest

from lightning_tfm.config import Data
from lightning_tfm.data.lexicon import Draw
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.data.treebank import Tree, pair, read_trees
from lightning_tfm.data.trees import HELD_OUT, LONGEST, Treebank
from lightning_tfm.errors import UserError
from lightning_tfm.parseval import parsed
from lightning_tfm.testing import CorpusSuite

WSJ = """
( (S (NP-SBJ-1 (DT The) (NN dog))
     (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1)) (PP-LOC=2 (IN at) (NP (CD 5) (NNS o'clock)))))
     (. .)))
(TOP (FRAG (NP (-NONE- *)) (`` ``) (INTJ (UH Yes)) ('' '') (: --) (-LRB- -LRB-)))
"""
LINES = [
    ("The dog was seen at 5 o'clock .", "S NP XX XX /NP VP XX VP XX PP XX NP XX XX /NP /PP /VP /VP . /S"),
    ("`` Yes '' -- -LRB-", "FRAG `` INTJ XX /INTJ '' : XX /FRAG"),
]


def test_a_treebank_s_bracketing_becomes_words_and_a_sequence():
    assert list(map(pair, read_trees(WSJ, "here"))) == LINES
    assert pair(Tree("S", [Tree("NP", [Tree("-NONE-", word="*")])])) == ("", "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(S (NP x)\n", "t: ends within a bracket"),
        ("(S (NN x)))", "t:1: ')' outside of all brackets"),
        ("\nx (S (NN x))", "t:2: 'x' outside of all brackets"),
        ("(S (NN x y))", "t:1: a word beside another, or beside brackets"),
        ("(S (NN x) y)", "t:1: a word beside another, or beside brackets"),
        ("(S (NN x (NN y)))", "t:1: a bracket after the word 'x'"),
        ("(S (NP) (NN x))", "t:1: a bracket that holds nothing"),
        ("(S (/NP (NN x)))", "t:1: the label '/NP'"),
    ],
)
def test_broken_trees_are_named_by_file_and_line(text, why):
    with pytest.raises(UserError) as raised:
        list(read_trees(text, "t"))
    assert str(raised.value).startswith(why)


class TestTreebank(CorpusSuite):
    corpus = "treebank"

    @pytest.fixture(autouse=True)
    def text(self, tmp_path):
        self.folder = tmp_path
        for name, word in (("02/wsj_0201.mrg", "two"), ("03/more/wsj_0301.mrg", "three"), ("04/a.mrg", "four")):
            self.write(name, word)
        self.write("gum/talk.ptb", "talk")
        self.write("22.ptb", "dev")
        (tmp_path / "test.txt").write_text("gum/talk.ptb\n04/a.mrg\n")
        self.data = Data(folder=str(tmp_path), train="02-03+04", dev="22", test="test", vocab_size=60)

    def write(self, name: str, word: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        trees = (f"(S (NP (DT the) (NN {word}{n})) (VP (VBZ is)) (. .))\n" for n in range(12))
        (self.folder / name).write_text("".join(trees))

    def altered(self) -> Data:
        self.write("22.ptb", "another")
        return self.data

    overlap = 12

    def test_splits(self):
        corpus = make_corpus(Data(corpus="treebank", folder=str(self.folder)))
        words = {
            split: [line.split()[1] for line, _ in corpus.lines(split)] for split in ("02-03", "22", "test", "gum")
        }
        assert {split: (len(found), found[0], found[-1]) for split, found in words.items()} == {
            "02-03": (24, "two0", "three11"),
            "22": (12, "dev0", "dev11"),
            "test": (24, "talk0", "four11"),
            "gum": (12, "talk0", "talk11"),
        }
        with pytest.raises(UserError, match="no trees of a split '05'"):
            list(corpus.lines("03-05"))
        (self.folder / "04" / "a.mrg").unlink()
        with pytest.raises(UserError, match="which is missing"):
            list(corpus.lines("test"))
        (self.folder / "22.ptb").write_bytes(b"(S (NN \xff))")
        with pytest.raises(UserError, match="not UTF-8"):
            list(corpus.lines("22"))

    def test_files_that_change_while_they_are_read_are_refused(self):
        corpus = make_corpus(Data(corpus="treebank", folder=str(self.folder)))
        corpus.fingerprint("22")
        self.write("22.ptb", "another")
        with pytest.raises(UserError, match="changed while it was read"):
            list(corpus.lines("22"))


@pytest.fixture(scope="module")
def built_in() -> dict[str, list[tuple[str, str]]]:
    corpus = make_corpus(Data(corpus="trees", pairs=4000))
    return {split: list(corpus.lines(split)) for split in ("train", "val", "test")}


def test_the_built_in_treebank_has_its_sizes_and_no_sentence_twice(built_in):
    assert {split: len(found) for split, found in built_in.items()} == {
        "train": 4000,
        "val": HELD_OUT,
        "test": HELD_OUT,
    }
    words = [line for found in built_in.values() for line, _ in found]
    assert len(set(words)) == len(words) and max(line.count(" ") + 1 for line in words) == LONGEST
    assert list(make_corpus(Data(corpus="trees", pairs=9)).lines("val")) == built_in["val"]
    assert not {line for line, _ in make_corpus(Data(corpus="trees", corpus_seed=1)).lines("val")} & set(words)


def test_its_lines_are_trees_over_their_words(built_in):
    for found in built_in.values():
        for words, tree in found:
            made = parsed(tree)
            assert made is not None and len(made.words) == words.count(" ") + 1


def test_words_and_not_their_kinds_decide_its_trees(built_in):
    """Of sentences whose words are of the same kinds, in the same order, many have different trees."""
    words, trees = Treebank(0, Draw("any"))._words, defaultdict(set)
    kinds = {w.source: kind for kind in ("nouns", "verbs", "adjectives", "names") for w in getattr(words, kind)}
    kinds |= {preposition: "preposition" for preposition, _ in words.prepositions}
    for line, tree in built_in["train"]:
        trees[" ".join(kinds.get(word, word) for word in line.split())].add(tree)
    common = [found for kind, found in trees.items() if "preposition" in kind or "ke" in kind or " e " in kind]
    assert sum(len(found) > 1 for found in common) > 100


def test_a_phrase_belongs_to_the_nearest_noun_that_takes_its_preposition(built_in):
    """Held against the lexicon by another reading of the trees: verb, noun, preposition, noun."""
    bank, seen = Treebank(0, Draw("any")), {True: 0, False: 0}
    nouns = {noun.source for noun in (*bank._words.nouns, *bank._words.names)}
    prepositions = {preposition for preposition, _ in bank._words.prepositions}
    for line, tree in built_in["train"]:
        words = line.split()
        at = [i for i, word in enumerate(words) if word in prepositions]
        if len(at) != 1 or {"e", "ke", ","} & {*words} or words[at[0] - 1] not in nouns:
            continue
        if sum(word in nouns for word in words) != 3 or at[0] < 4:  # subject, object, and what follows the preposition
            continue
        taken = "NP NP XX" in tree and tree.index("NP NP XX") > tree.index("VP")
        assert taken == bank.takes[words[at[0] - 1], words[at[0]]], (line, tree)
        seen[taken] += 1
    assert min(seen.values()) > 20, seen
