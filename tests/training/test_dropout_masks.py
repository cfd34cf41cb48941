"""Dropout masks keyed by sentence: honest shares, always fresh, independent of padding, neighbours and each other."""

import numpy as np
import pytest
import torch
from scipy import stats

from lightning_tfm.config import Model
from lightning_tfm.data.batch import make_batch
from lightning_tfm.training.masks import SOURCE, TARGET, SentenceMasks

MODEL = Model(N=3, d_model=62, P_drop=0.1)
"""62 is no multiple of the four words of a draw"""


def sizes(model: Model, side: int, lengths: np.ndarray) -> tuple[int, np.ndarray, int]:
    return 1 + (2 if side == SOURCE else 3) * model.N, lengths, model.d_model


def words(step=0, side=SOURCE, index=(0,), lengths=(9,), seed=1, model=MODEL) -> np.ndarray:
    return SentenceMasks(model, seed).words(step, side, np.array(index), *sizes(model, side, np.array(lengths)))


@pytest.mark.parametrize("P_drop", [0.05, 0.1, 0.2, 0.3, 0.5])
def test_share_of_dropped_elements_and_value_of_the_kept(P_drop):
    masks = SentenceMasks(Model(N=3, d_model=512, P_drop=P_drop), 1)
    dropped = total = 0
    for step in range(20):
        mask = masks.masks(
            masks.words(step, TARGET, np.arange(20), *sizes(masks.model, TARGET, np.full(20, 31))), torch.float32
        )
        dropped += int((mask == 0).sum())
        total += mask.numel()
    assert total > 6e7
    assert abs(dropped / total - P_drop) < 1e-4
    values = mask.unique().tolist()
    assert len(values) == 2 and values[0] == 0 and values[1] == pytest.approx(1 / (1 - P_drop), abs=2e-5)


def test_the_expectation_is_exact():
    """Of the 65,536 words each occurs once: the mean of the mask is 1 to rounding."""
    masks = SentenceMasks(MODEL, 1).masks(np.arange(65536, dtype=np.uint16), torch.float64)
    assert float(masks.mean()) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_same_elements_in_every_precision(dtype):
    masks, drawn = SentenceMasks(MODEL, 1), words()
    assert torch.equal(masks.masks(drawn, dtype) == 0, masks.masks(drawn, torch.float64) == 0)


def test_words_are_uniform():
    drawn = np.concatenate([words(step, lengths=(97,)).ravel() for step in range(40)])
    for bits in (drawn >> 8, drawn & 255):
        assert stats.chisquare(np.bincount(bits, minlength=256)).pvalue > 1e-4


def independent(a: np.ndarray, b: np.ndarray) -> bool:
    """Chi-square on the 2 x 2 table of dropped and kept, and correlation of the words themselves."""
    a, b = a.ravel(), b.ravel()
    limit = round(65536 * 0.1)
    table = np.histogram2d(a < limit, b < limit, bins=2)[0]
    correlation = np.corrcoef(a.astype(float), b.astype(float))[0, 1]
    return stats.chi2_contingency(table).pvalue > 1e-4 and abs(correlation) < 4 / np.sqrt(a.size)


def test_fresh_in_every_step_sentence_side_and_seed():
    T = 211
    first = words(lengths=(T,))
    others = {
        "step": words(step=1, lengths=(T,)),
        "distant step": words(step=2**40, lengths=(T,)),
        "sentence": words(index=(1,), lengths=(T,)),
        "seed": words(seed=2, lengths=(T,)),
        "side": words(side=TARGET, lengths=(T,))[: first.shape[0]],
    }
    for name, other in others.items():
        assert (first == other).mean() < 1e-3, name
        assert independent(first, other), name


def test_fresh_in_every_sublayer_position_and_channel():
    drawn = np.concatenate([words(step, lengths=(61,)) for step in range(30)], 1)  # [streams, 30, T, D]
    streams = drawn.shape[0]
    for i in range(streams):
        for j in range(i):
            assert independent(drawn[i], drawn[j]), (i, j)
    assert independent(drawn[:, :, 1:], drawn[:, :, :-1])
    assert independent(drawn[..., 1:], drawn[..., :-1])
    for gap in (2, 4, 8):
        assert independent(drawn[..., gap:], drawn[..., :-gap])


def test_steps_and_sentences_do_not_overlap():
    """Steps and sentences are counters of one generator: no stream may run into the next, however long the sentence."""
    model = Model(N=20, d_model=1024, P_drop=0.1)
    near = [words(0, TARGET, (i,), (256,), model=model) for i in range(2)]
    near += [words(1, TARGET, (0,), (256,), model=model), words(0, SOURCE, (0,), (256,), model=model)]
    heads = [x.ravel()[:64].tobytes() for x in near]
    for i, whole in enumerate(near):
        data = whole.tobytes()
        assert all(head not in data for j, head in enumerate(heads) if j != i)


@pytest.mark.parametrize("side", [SOURCE, TARGET])
def test_neither_padding_nor_neighbours_matter(side):
    together = words(7, side, (4, 9, 2), (5, 13, 8))
    for row, (index, length) in enumerate([(4, 5), (9, 13), (2, 8)]):
        alone = words(7, side, (index,), (length,))
        assert np.array_equal(together[:, row, :length], alone[:, 0])
        assert not together[:, row, length:].any()


def test_the_generator_keeps_no_state():
    masks = SentenceMasks(MODEL, 1)
    first = masks.words(3, SOURCE, np.array([1, 2]), *sizes(MODEL, SOURCE, np.array([5, 6])))
    masks.words(8, TARGET, np.array([4]), *sizes(MODEL, TARGET, np.array([3])))
    assert np.array_equal(masks.words(3, SOURCE, np.array([1, 2]), *sizes(MODEL, SOURCE, np.array([5, 6]))), first)


def test_masks_of_a_batch_have_the_shapes_of_its_tensors():
    pieces = [np.array([5, 6, 7]), np.array([5])]
    batch = make_batch(pieces, pieces[::-1], np.array([3, 11]))
    like = torch.empty(0)
    source, target = SentenceMasks(MODEL, 1).between(4, batch, like)
    assert source.shape == (1 + 2 * 3, 2, 4, 62) and target.shape == (1 + 3 * 3, 2, 4, 62)
    alone_source, alone_target = SentenceMasks(MODEL, 1).between(
        4, make_batch(pieces[1:], pieces[:1], np.array([11])), like
    )
    assert torch.equal(source[:, 1, :2], alone_source[:, 0])
    assert torch.equal(target[:, 1], alone_target[:, 0])


def test_numbers_are_the_same_everywhere():
    """Committed: another version of NumPy or another machine must draw these."""
    drawn = words(5, TARGET, (3,), (2,), model=Model(N=1, d_model=4))
    assert drawn.shape == (4, 1, 2, 4)
    assert drawn[:2, 0].tolist() == [
        [[61753, 6488, 28410, 40968], [2152, 12220, 7800, 22854]],
        [[39903, 24847, 42095, 61528], [39821, 37566, 577, 13291]],
    ]
