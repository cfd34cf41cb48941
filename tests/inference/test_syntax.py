"""What heads look at: pieces to words, the two nulls, heads that are known beforehand, untrained heads."""

from types import SimpleNamespace

import numpy as np
import pytest

from lightning_tfm.config import Data, Experiment, Model, Training
from lightning_tfm.data.gold import NONE, Gold
from lightning_tfm.data.token_store import EncodedText
from lightning_tfm.inference import syntax
from lightning_tfm.inference.inspect import weights
from lightning_tfm.inference.syntax import Sentence, agreement, chosen, exchanged, layouts, words_of
from lightning_tfm.model.transformer import Transformer

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


def sentence(line: int, source: int, target: int) -> Sentence:
    """Words of two pieces, the last perhaps of one."""
    of = [np.append(np.arange(n) // 2, (n + 1) // 2) for n in (source, target)]
    none = {side: [NONE] * int(words[-1]) for side, words in zip(("source", "target"), of, strict=True)}
    return Sentence(line, *of, Gold(none, none, none["target"]))


@pytest.mark.parametrize("change", [{}, {"attention": "talking"}, {"scores": "additive"}])
def test_words_are_chosen_as_by_summing_a_sentences_weights_by_hand(change):
    """Weights to a word summed, of a word averaged; of a padded batch as of each sentence alone."""
    text, model = Text(), Transformer(Model(**SIZES, **change), 61, seed=3).eval()
    found = [sentence(i, *size) for i, size in enumerate(text.sizes)]
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
    share, expected, p = exchanged(choices, golds, groups, 5 * 40)
    assert share[0] == 1 and p[0] == 1 / (1 + syntax.PERMUTATIONS) and 0.1 < expected[0] < 0.3
    assert expected[1] == pytest.approx(share[1], abs=0) and p[1] == 1, "the next word, whatever the sentence"


def test_p_of_a_head_that_chooses_by_chance_is_uniform():
    """400 heads; the 95 % bounds of a binomial share."""
    golds, groups = sentences_of(6, 40)
    draw = np.random.default_rng(1)
    choices = [draw.integers(0, 6, (400, 6)) for _ in golds]
    *_, p = exchanged(choices, golds, groups, 240)
    assert 0.026 < (p <= 0.05).mean() < 0.076 and 0.44 < (p <= 0.5).mean() < 0.56


def test_agreement_is_of_pairs_of_heads():
    assert agreement([np.array([[0, 1], [0, 1], [0, 2]])]) == pytest.approx((1 + 0.5 + 0.5) / 3)


def test_untrained_heads_are_found_as_often_as_the_level_says(tmp_path, monkeypatch):
    """Of a model that nothing has trained, over all heads and relations; exchanging gold alone would find most."""
    from lightning_tfm.data.prepare import prepare

    monkeypatch.setattr(syntax, "UNTRAINED", 60)
    data = Data(corpus="builtin", pairs=400, vocab_size=330, train="train", dev="val", test="")
    e = Experiment(model=Model(**SIZES), data=data, training=Training())
    prepared = prepare(data, tmp_path)
    whole, V = prepared.split("val"), prepared.tokenizer.V
    pairs = list(zip(whole.source_text(), whole.target_text(), strict=True))[:120]
    split = EncodedText([whole.source(i) for i in range(120)], [whole.target(i) for i in range(120)], pairs)
    larger, order = [], []
    for seed in range(3):
        module = SimpleNamespace(experiment=e, transformer=Transformer(e.model, V, seed).eval())
        record = syntax.syntax(SimpleNamespace(module=module, prepared=prepared), split)
        assert record["sentences"] == 120 and record["untrained"] == 60 and len(record["relations"]) == 5
        heads = [h for one in record["relations"] for layer in one["layers"] for h in layer]
        larger += [max(h["p_order"], h["p_untrained"]) for h in heads]
        order += [h["p_order"] for h in heads]
    assert len(larger) == 3 * 5 * 2 * 3 and np.mean(np.array(larger) <= 0.05) <= 0.15
    assert np.mean(np.array(order) <= 0.05) > 0.3, "why that null is not enough"
