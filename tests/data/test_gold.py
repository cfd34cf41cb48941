"""Gold trees and alignments: of the very sentences of the built-in languages, and as their grammars say."""

import pytest

from lightning_tfm.config import Data
from lightning_tfm.data.gold import NONE, gold_pairs, has_gold
from lightning_tfm.data.sources.files import make_corpus

HELD_OUT = [(corpus, split) for corpus in ("builtin", "trees") for split in ("val", "test")]


@pytest.fixture(scope="module", params=HELD_OUT, ids="-".join)
def text(request):
    corpus, split = request.param
    data = Data(corpus=corpus, pairs=10)
    found = gold_pairs(data, split)
    return found, list(make_corpus(data).lines(split))


def test_gold_is_of_every_sentence_of_the_corpus(text):
    found, lines = text
    assert len(lines) == 500 and list(found) == lines


def test_every_sentence_is_a_tree_over_its_words(text):
    for lines, gold in text[0].items():
        source, target = (line.split(" ") for line in lines)
        assert len(gold.aligned) == len(gold.parent["target"]) == len(gold.head["target"]) == len(target)
        for up in (gold.parent["source"], gold.head["source"]):
            assert len(up) == len(source) and up.count(NONE) == 1
            for word in range(len(up)):
                above = [word]
                while above[-1] != NONE:
                    above.append(up[above[-1]])
                    assert len(above) <= len(up) + 1, "a circle"


def test_words_are_attached_and_aligned_as_the_grammar_says():
    """An object with a relative clause of three arguments, a compound, a number, the past and the future."""
    found = gold_pairs(Data(corpus="builtin"), "val")
    lines = {source: (target, gold) for (source, target), gold in found.items()}
    source = "Ta kaldors ke kubo ta finbo to ta poven dibel bomem dorfin naven rorfum bilrens?"
    target, gold = lines[source]
    s, t = source.split(" "), target.split(" ")
    over = {s[i]: [s[j] for j in (gold.parent["source"][i], gold.head["source"][i])] for i in range(len(s)) if i != 9}
    assert over["kaldors"] == ["dibel", "dibel"] and over["ke"] == ["kaldors", "kubo"]
    assert over["kubo"] == ["ke", "kaldors"] and over["to"] == ["kubo", "poven"] and over["poven"] == ["to", "kubo"]
    assert over["rorfum"] == over["bomem"] == ["bilrens?"] * 2
    assert t[0] == "Nienprisit" and s[gold.aligned[0]] == "dibel", "a question begins with the verb"
    assert [s[i] for i in gold.aligned[8:]] == ["kubo", "bomem", "naven", "rorfum", "bilrens?"]
    source = next(source for source in lines if "Fernalpun ke Ditafar" in source)
    target, gold = lines[source]
    s = source.split(" ")
    assert [s[i] for i in gold.aligned[-3:]] == ["finnamed?", "sifo", "va"], "infinitive, then auxiliary"


def test_what_opens_a_bracket_is_the_parent_of_all_in_it():
    line = ("un nalba nalbem ta gumfar e rorpin bilsen .",)
    found = gold_pairs(Data(corpus="trees"), "test") | gold_pairs(Data(corpus="trees"), "val")
    (_, tree), gold = next((lines, gold) for lines, gold in found.items() if lines[0] == line[0])
    tokens, words = tree.split(" "), line[0].split(" ")
    for i, token in enumerate(tokens):
        if token.startswith("/"):
            assert tokens[gold.parent["target"][i]] == token[1:]
    assert [words[i] for i in gold.aligned if i != NONE] == words
    names = ("nalba", "nalbem", "gumfar", "rorpin")
    parents, heads = ([words[up["source"][words.index(n)]] for n in names] for up in (gold.parent, gold.head))
    assert parents == ["bilsen", "nalba", "nalbem", "gumfar"] and heads == ["bilsen", "gumfar", "nalba", "gumfar"]


@pytest.mark.parametrize(("corpus", "split"), [("builtin", "train"), ("builtin", "long"), ("files", "val")])
def test_other_texts_have_none(corpus, split):
    data = Data(corpus=corpus, folder="there")
    assert not has_gold(data, split) and gold_pairs(data, split) is None
