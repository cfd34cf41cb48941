"""The built-in pair: the same everywhere, disjoint, one right translation each, and the grammar its docstring tells."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from lightning_tfm.config import Data
from lightning_tfm.data import builtin, lexicon
from lightning_tfm.data.builtin import GENDERS, HELD_OUT, LONGEST, SPLITS, Builtin, Grammar
from lightning_tfm.data.lexicon import Draw, Lexicon
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.errors import UserError


@pytest.fixture(scope="module")
def text() -> dict[str, list[tuple[str, str]]]:
    return {split: list(Builtin(8000, 0).lines(split)) for split in SPLITS}


def test_sizes():
    start = time.process_time()
    assert len(list(Builtin(8000, 0).lines("train"))) == 8000
    print(f"8,000 pairs in {time.process_time() - start:.2f} s of one processor")
    assert len(list(Builtin(10, 0).lines("val"))) == len(list(Builtin(10, 0).lines("test"))) == HELD_OUT


def test_no_source_sentence_stands_twice(text):
    sources = [source for pairs in text.values() for source, _ in pairs]
    assert len(set(sources)) == len(sources) == 8000 + 2 * HELD_OUT


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
        assert source.count(" ") < LONGEST
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
