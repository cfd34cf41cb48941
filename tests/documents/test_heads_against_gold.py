"""experiments/syntax.py: gold trees and alignments of the very sentences of the built-in languages, as their grammars
say; tokens to words, the two nulls, heads known beforehand, untrained heads; numbers equal to what the package gave."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import syntax
from experiments.syntax import NONE, Sentence, agreement, chosen, exchanged_shares, gold_pairs, layouts, words_of
from lightning_tfm.config import Data, Experiment, Model
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.data.token_store import EncodedText
from lightning_tfm.inference.weight_records import weights
from lightning_tfm.model.transformer import Transformer

ROOT = Path(__file__).parents[2]
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
        assert {len(gold[task]) for task in syntax.TASKS[2:]} == {len(target)}
        for up in (gold["encoder", "parent"], gold["encoder", "head"]):
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
    over = {
        s[i]: [s[j] for j in (gold["encoder", "parent"][i], gold["encoder", "head"][i])]
        for i in range(len(s))
        if i != 9
    }
    assert over["kaldors"] == ["dibel", "dibel"] and over["ke"] == ["kaldors", "kubo"]
    assert over["kubo"] == ["ke", "kaldors"] and over["to"] == ["kubo", "poven"] and over["poven"] == ["to", "kubo"]
    assert over["rorfum"] == over["bomem"] == ["bilrens?"] * 2
    assert t[0] == "Nienprisit" and s[gold["cross", "aligned"][0]] == "dibel", "a question begins with the verb"
    assert [s[i] for i in gold["cross", "aligned"][8:]] == ["kubo", "bomem", "naven", "rorfum", "bilrens?"]
    source = next(source for source in lines if "Fernalpun ke Ditafar" in source)
    target, gold = lines[source]
    s = source.split(" ")
    assert [s[i] for i in gold["cross", "aligned"][-3:]] == ["finnamed?", "sifo", "va"], "infinitive, then auxiliary"


def test_what_opens_a_bracket_is_the_parent_of_all_in_it():
    line = ("un nalba nalbem ta gumfar e rorpin bilsen .",)
    found = gold_pairs(Data(corpus="trees"), "test") | gold_pairs(Data(corpus="trees"), "val")
    (_, tree), gold = next((lines, gold) for lines, gold in found.items() if lines[0] == line[0])
    tokens, words = tree.split(" "), line[0].split(" ")
    for i, token in enumerate(tokens):
        if token.startswith("/"):
            assert tokens[gold["decoder", "parent"][i]] == token[1:]
    assert [words[i] for i in gold["cross", "aligned"] if i != NONE] == words
    names = ("nalba", "nalbem", "gumfar", "rorpin")
    parents, heads = ([words[gold["encoder", up][words.index(n)]] for n in names] for up in ("parent", "head"))
    assert parents == ["bilsen", "nalba", "nalbem", "gumfar"] and heads == ["bilsen", "gumfar", "nalba", "gumfar"]


@pytest.mark.parametrize(("corpus", "split"), [("builtin", "train"), ("builtin", "long"), ("files", "val")])
def test_other_texts_are_refused(corpus, split):
    with pytest.raises(SystemExit, match=f"data.corpus={corpus}, {split}: trees are known of val and test of builtin"):
        gold_pairs(Data(corpus=corpus, folder="there"), split)


SIZES = {"N": 2, "d_model": 12, "d_ff": 9, "h": 3, "d_k": 4, "d_v": 5}


def test_a_piece_belongs_to_the_word_that_it_continues():
    assert words_of(["\u2581Ta", "\u2581ku", "pin", "."], 2).tolist() == [0, 1, 1, 1, 2]
    with pytest.raises(AssertionError, match="as many words as spaces part"):
        words_of(["\u2581Ta", "kupin"], 2)


class Text:
    """Four pairs of pieces."""

    sizes = ((5, 4), (7, 6), (3, 8), (5, 4))

    def __len__(self):
        return len(self.sizes)

    @property
    def source_lengths(self):
        return np.array([size[0] for size in self.sizes])

    @property
    def target_lengths(self):
        return np.array([size[1] for size in self.sizes])

    def source(self, i):
        return np.arange(4, 4 + self.sizes[i][0]) + 7 * i

    def target(self, i):
        return np.arange(4, 4 + self.sizes[i][1]) + 5 * i


def sentence(source: int, target: int) -> Sentence:
    """Words of two pieces, the last perhaps of one."""
    of = [np.append(np.arange(n) // 2, (n + 1) // 2) for n in (source, target)]
    return Sentence(*of, {task: [NONE] * int(of[task[0] != "encoder"][-1]) for task in syntax.TASKS})


@pytest.mark.parametrize("change", [{}, {"attention": "talking"}, {"scores": "additive"}])
def test_words_are_chosen_as_by_summing_a_sentences_weights_by_hand(change):
    """Weights to a word summed, of a word averaged; of a padded batch as of each sentence alone."""
    text, model = Text(), Transformer(Model(**SIZES, **change), 61, seed=3).eval()
    found = [sentence(*size) for size in text.sizes]
    made = chosen(model, layouts(text, found), found)
    assert set(made) == {(kind, layer) for kind in ("encoder", "decoder", "cross") for layer in (0, 1)}
    trained = SimpleNamespace(module=SimpleNamespace(transformer=model))
    for i, one in enumerate(found):
        for kind, layers in weights(trained, text.source(i), text.target(i)).items():
            for layer, heads_HTS in enumerate(np.array(layers)):
                query = one.source_S if kind == "encoder" else one.target_T
                key = np.roll(one.target_T, 1) if kind == "decoder" else one.source_S
                for w_TS, best in zip(heads_HTS, made[kind, layer][i], strict=True):
                    for word, its in enumerate(best):
                        sums = [w_TS[query == word][:, key == k].sum(1).mean() for k in range(key.max() + 1)]
                        its = key[0] if its == NONE - 1 else its
                        assert sums[its] >= max(sums) - 2, "weights are rounded to thousandths"
                    assert len(best) == query[-1]


def sentences_of(length: int, count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    draw = np.random.default_rng(length)
    golds = [draw.integers(0, length, length) for _ in range(count)]
    return golds, [np.arange(i * count, (i + 1) * count) for i in range(1)]


def test_a_head_that_follows_gold_is_found_and_one_that_looks_at_places_never():
    golds, groups = sentences_of(6, 40)
    golds = [np.where(np.arange(6) == 2, NONE, gold) for gold in golds]
    ahead = np.minimum(np.arange(6) + 1, 5)
    choices = [np.stack([np.maximum(gold, 0), ahead]) for gold in golds]
    share, expected, p = exchanged_shares(choices, golds, groups, 5 * 40)
    assert share[0] == 1 and p[0] == 1 / (1 + syntax.PERMUTATIONS) and 0.1 < expected[0] < 0.3
    assert expected[1] == pytest.approx(share[1], abs=0) and p[1] == 1, "the next word, whatever the sentence"


def test_p_of_a_head_that_chooses_by_chance_is_uniform():
    """400 heads; the 95 % bounds of a binomial share."""
    golds, groups = sentences_of(6, 40)
    draw = np.random.default_rng(1)
    choices = [draw.integers(0, 6, (400, 6)) for _ in golds]
    *_, p = exchanged_shares(choices, golds, groups, 240)
    assert 0.026 < (p <= 0.05).mean() < 0.076 and 0.44 < (p <= 0.5).mean() < 0.56


def test_agreement_is_of_pairs_of_heads():
    assert agreement([np.array([[0, 1], [0, 1], [0, 2]])]) == pytest.approx((1 + 0.5 + 0.5) / 3)


def measured(corpus: str, root, seed: int) -> dict:
    """Of a tiny model that nothing has trained, on 120 sentences."""
    data = Data(corpus=corpus, pairs=400, vocab_size=330, train="train", dev="val", test="")
    e = Experiment(model=Model(**SIZES), data=data)
    prepared = prepare(data, root)
    whole, V = prepared.split("val"), prepared.tokenizer.V
    pairs = list(zip(whole.source_text(), whole.target_text(), strict=True))[:120]
    split = EncodedText([whole.source(i) for i in range(120)], [whole.target(i) for i in range(120)], pairs)
    module = SimpleNamespace(experiment=e, transformer=Transformer(e.model, V, seed).eval())
    return syntax.measure(SimpleNamespace(module=module, prepared=prepared), split)


EARLIER = {
    "builtin": [
        (669, 0.515695, 0.180867, 0.162274, 0.024, 0.182985, 0.540984),
        (669, 0.539611, 0.195815, 0.178383, 0.035, 0.196911, 0.557377),
        (173, 0.433526, 0.410405, 0.289706, 0.001, 0.353179, 0.131148),
        (147, 0.489796, 0.387755, 0.272538, 0.002, 0.369615, 0.459016),
        (717, 0.601116, 0.170153, 0.166775, 0.261, 0.156857, 0.098361),
    ],
    "trees": [
        (1177, 0.325404, 0.118097, 0.107998, 0.112, 0.105593, 0.245902),
        (1177, 0.359388, 0.131691, 0.114102, 0.028, 0.118451, 0.278689),
        (3251, 0.318979, 0.075054, 0.103549, 1.0, 0.076797, 0.459016),
        (515, 0.163107, 0.001942, 0.056144, 1.0, 0.018091, 0.622951),
        (1297, 0.107941, 0.073246, 0.070925, 0.129, 0.089399, 0.95082),
    ],
}
"""words, share of the best distance, and of the third head of the second layer share, p and what the nulls expect: by
lightning_tfm/inference/syntax.py of commit a2aa732c"""


@pytest.mark.parametrize("corpus", ["builtin", pytest.param("trees", marks=pytest.mark.long)])
def test_numbers_are_those_that_the_package_gave(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(syntax, "UNTRAINED", 60)
    relations = measured(corpus, tmp_path, 0)["relations"]
    numbers = [(one["words"], one["distance"]["share"], *one["layers"][1][2].values()) for one in relations]
    assert [(one["kind"], one["relation"]) for one in relations] == list(syntax.TASKS)
    assert numbers == [pytest.approx(line, abs=1e-6) for line in EARLIER[corpus]]


@pytest.mark.long
def test_untrained_heads_are_found_as_often_as_the_level_says(tmp_path, monkeypatch):
    """Of a model that nothing has trained, over all heads and relations; exchanging gold alone would find most."""
    monkeypatch.setattr(syntax, "UNTRAINED", 60)
    larger, order = [], []
    for seed in range(3):
        record = measured("builtin", tmp_path, seed)
        assert record["sentences"] == 120 and record["untrained"] == 60 and len(record["relations"]) == 5
        heads = [h for one in record["relations"] for layer in one["layers"] for h in layer]
        larger += [max(h["p_order"], h["p_untrained"]) for h in heads]
        order += [h["p_order"] for h in heads]
    assert len(larger) == 3 * 5 * 2 * 3 and np.mean(np.array(larger) <= 0.05) <= 0.15
    assert np.mean(np.array(order) <= 0.05) > 0.3, "why that null is not enough"


LOOKS = [[{"share": 0.7, "order": 0.2, "p_order": 0.001, "untrained": 0.3, "p_untrained": p} for p in (0.002, 0.5)]]
RECORD = {"sentences": 500, "untrained": 400, "agreement": {"cross": [{"trained": 0.31, "untrained": 0.4}]}}
RECORD["relations"] = [
    {"kind": kind, "relation": name, "words": 99, "distance": {"words": 1, "share": 0.5}, "layers": LOOKS}
    for kind, name in (("encoder", "parent"), ("cross", "aligned"))
]
"""as `report --collect` of earlier versions wrote it"""


def test_an_earlier_record_is_printed_and_corrected_over_all_heads_and_relations(tmp_path, monkeypatch, capsys):
    path = tmp_path / "syntax.json"
    path.write_text(json.dumps(RECORD))
    monkeypatch.setattr("sys.argv", ["syntax.py", str(path), "--figure", str(tmp_path / "heads.svg")])
    syntax.main()
    heads, agreed = capsys.readouterr().out.split("\n\n")
    assert heads.splitlines()[2].split() == "encoder parent 99 0.5 1 1 1 0.7 0.2 0.3 0.004 1 of 2".split()
    assert agreed.splitlines()[-1].split() == ["0", "0.31", "0.4"]
    picture = (tmp_path / "heads.svg").read_text()
    assert "encoder: the parent" in picture and "cross-attention: the aligned word" in picture


def test_the_committed_picture_and_the_page_are_the_committed_record_s(tmp_path, monkeypatch, capsys):
    folder = ROOT / "experiments/results/syntax"
    monkeypatch.setattr("sys.argv", ["syntax.py", str(folder / "syntax.json"), "--figure", str(tmp_path / "heads.svg")])
    syntax.main()
    assert (tmp_path / "heads.svg").read_text() == (folder / "heads.svg").read_text()
    page = (ROOT / "docs/results/syntax.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ *\w+ +\w+ +\d+ +[\d.]+ .*$", capsys.readouterr().out, re.MULTILINE)
    best = [line.split() for line in lines]
    assert len(best) == 5
    for line in best:
        (words, fixed), (share, order, untrained), found = line[2:4], line[7:10], " ".join(line[11:])
        shares = [f"{100 * float(x):.1f} %" for x in (share, order, untrained)]
        assert f"| {int(words):,} | {100 * float(fixed):.1f} %" in page
        assert f"| {found} | {' | '.join(shares)} |" in page
