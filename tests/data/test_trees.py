"""Corpora that ship: trees and the synthetic languages."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice

import pytest

from lightning_tfm.config import Data
from lightning_tfm.data import builtin, lexicon
from lightning_tfm.data.builtin import GENDERS, SPLITS, Builtin, Grammar
from lightning_tfm.data.lexicon import Draw, Lexicon
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.data.treebank import Tree, pair, read_trees
from lightning_tfm.data.trees import HELD_OUT, LONGEST, Treebank
from lightning_tfm.errors import UserError
from lightning_tfm.parseval import parse_tree
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
            made = parse_tree(tree)
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


@pytest.fixture(scope="module")
def text() -> dict[str, list[tuple[str, str]]]:
    return {split: list(Builtin(8000, 0).lines(split)) for split in SPLITS}


def test_no_source_sentence_stands_twice(text):
    sources = [source for pairs in text.values() for source, _ in pairs]
    assert len(set(sources)) == len(sources) == 8000 + 2 * builtin.HELD_OUT


def test_held_out_text_does_not_depend_on_the_training_size(text):
    assert list(Builtin(5, 0).lines("val")) == text["val"]
    assert list(Builtin(5, 0).lines("train")) == text["train"][:5]


def test_the_seed_decides(text):
    other = list(Builtin(100, 1).lines("train"))
    assert other == list(Builtin(100, 1).lines("train"))
    assert not set(other) & set(text["train"])


def test_text_is_the_same_everywhere():
    """Draws may never change. The text changes with the constants, and with it every result reported on it."""
    draw = Draw("test", 7)
    assert [draw.below(1000) for _ in range(6)] == [153, 276, 344, 969, 818, 631]
    frozen = [list(Builtin(5000, 0).lines(split)) for split in SPLITS]
    assert hashlib.sha256(repr(frozen).encode()).hexdigest()[:16] == "56e4cdcae5ba84a3"


def test_orthography(text):
    for source, target in text["train"]:
        for line in (source, target):
            assert line.isascii() and line[0].isupper() and line[-1] in ".?" and line[:-1].replace(" ", "").isalpha()
            assert "  " not in line
        assert source[-1] == target[-1]
        assert source.count(" ") < builtin.LONGEST
    words = [source.count(" ") + 1 for source, _ in text["train"]]
    assert 5 < sum(words) / len(words) < 14 and max(words) > 18


@pytest.fixture
def few_words(monkeypatch) -> None:
    """Words and choices so few that the same sentences are drawn again and again."""
    for kind, count in {"NOUNS": 2, "VERBS": 6, "ADJECTIVES": 1, "PREPOSITIONS": 1, "TIMES": 1, "NAMES": 2}.items():
        monkeypatch.setattr(lexicon, kind, count)
    for kind in ("PAST", "FUTURE", "PLACE", "TIME", "ADJECTIVE", "NUMBER", "QUESTION"):
        monkeypatch.setattr(builtin, f"P_{kind}", 0.03)
    for kind in ("GENITIVE", "COMPOUND", "PARTICLE", "SECOND_CLAUSE", "PLURAL", "NEGATION"):
        monkeypatch.setattr(builtin, f"P_{kind}", 0.12)
    monkeypatch.setattr(lexicon, "ARGUMENTS", (1, 2, 3))
    monkeypatch.setattr(builtin, "P_PLAIN", 0.0)
    monkeypatch.setattr(builtin, "P_NAME", 0.4)
    monkeypatch.setattr(builtin, "P_INDEFINITE", 0.0)
    monkeypatch.setattr(builtin, "P_RELATIVE", (0.3, 0.3, 0.0))


HARD = ("ke", "de", "to", "e", "par", "il", "no", "va")


def full_lexicons() -> Iterator[Lexicon]:
    """Lexicons whose few verbs are of every kind."""
    every = (Lexicon(seed) for seed in range(100))
    return (words for words in every if {verb.arguments for verb in words.verbs} == {1, 2, 3})


def test_one_right_translation(few_words):
    again: Counter[str] = Counter()
    for words in islice(full_lexicons(), 4):
        grammar, found = Grammar(words, Draw("one right translation")), {}
        for _ in range(12000):
            source, target = grammar.sentence()
            if source in found:
                again.update(set(source.split(" ")))
            assert found.setdefault(source, target) == target, source
    assert all(again[word] >= 10 for word in HARD), {word: again[word] for word in HARD}


def test_who_does_what_stands_in_the_word_order(few_words):
    """Both orders of the same words are sentences, with other translations."""
    words = next(full_lexicons())
    grammar = Grammar(words, Draw("order"))
    found = dict(grammar.sentence() for _ in range(5000))
    one, two = (noun.source for noun in words.names)
    verbs = [verb.source for verb in words.verbs if verb.arguments == 2]
    both = [(found.get(f"{one} {v} {two}."), found.get(f"{two} {v} {one}.")) for v in verbs]
    assert any(None not in pair for pair in both)
    assert all(first != second for first, second in both)


def test_verb_agrees_and_names_have_cases(monkeypatch):
    monkeypatch.setattr(builtin, "P_NAME", 0.9)
    words = Lexicon(0)
    grammar = Grammar(words, Draw("agreement", 0))
    genders = {noun.source: GENDERS[noun.gender] for noun in words.names}
    verbs = {verb.source: verb for verb in words.verbs}
    seen = 0
    for source, target in (grammar.sentence() for _ in range(2000)):
        parts = source.rstrip(".").split(" ")
        if len(parts) == 3 and parts[0] in genders and parts[1] in verbs and parts[2] in genders:
            seen += 1
            sense = verbs[parts[1]].senses[0]
            assert target == f"{parts[0]} {sense}{genders[parts[0]]}t {parts[2]}n."
    assert seen > 50


@pytest.mark.parametrize("n", [2, 10, 21, 40, 100, 305, 321, 999])
def test_numbers(n):
    words = Lexicon(0)
    source, target = words.number(n)
    hundreds, tens, units = n // 100, n // 10 % 10, n % 10
    values = {word: i for i, (word, _) in enumerate(words.units, 1)}
    values |= {word: 10 * i for i, (word, _) in enumerate(words.tens, 1)}
    rest = source[2:] if hundreds else source
    assert not hundreds or (values[source[0]], source[1]) == (hundreds, words.hundred[0])
    assert sum(values[word] for word in rest) == n % 100
    assert rest == sorted(rest, key=values.get, reverse=True)
    if tens and units:
        assert target[-1] == words.units[units - 1][1] + "un" + words.tens[tens - 1][1]


def test_lexicon_is_unambiguous():
    words = Lexicon(0)
    kinds = [*words.nouns, *words.verbs, *words.adjectives, *words.names]
    sources = [word.source for word in kinds]
    sources += [noun.source + "s" for noun in words.nouns] + [verb.source + "ed" for verb in words.verbs]
    sources += [word for word, _ in (*words.prepositions, *words.times, *words.units, *words.tens)] + words.particles
    sources += ["ta", "un", "no", "va", "to", "ke", "de", "par", "e", "il", "lo", words.hundred[0]]
    assert len({word.lower() for word in sources}) == len(sources)


def test_unknown_split():
    corpus = make_corpus(Data(dev="valid"))
    with pytest.raises(UserError, match="no split 'valid': did you mean 'val'"):
        list(corpus.lines("valid"))


def test_fingerprint_follows_size_seed_and_constants(monkeypatch):
    first = Builtin(10, 0).fingerprint()
    assert first == Builtin(10, 0).fingerprint()
    others = {Builtin(11, 0).fingerprint(), Builtin(10, 1).fingerprint()}
    monkeypatch.setattr(builtin, "P_PLACE", 0.99)
    others.add(Builtin(10, 0).fingerprint())
    monkeypatch.setattr(lexicon, "NOUNS", 99)
    others.add(Builtin(10, 0).fingerprint())
    assert len(others | {first}) == 5
