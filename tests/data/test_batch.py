"""Batches of padded sentences: every tensor, bit for bit as a loop over sentences fills it."""

import numpy as np
import pytest
import torch

from lightning_tfm.data.batch import make_batch
from lightning_tfm.special_tokens import BOS, EOS, PAD

LENGTHS = {
    "none": [],
    "one": [(3, 5)],
    "empty sentences": [(0, 0), (2, 0), (0, 7)],
    "equally long": [(4, 6)] * 3,
    "padded source": [(1, 6), (4, 6)],
    "many": np.random.default_rng(1).integers(0, 40, (480, 2)).tolist(),
}


def padded(rows: list[np.ndarray], first: int | None, last: int | None) -> torch.Tensor:
    """Sentence by sentence."""
    around = [[*([first] if first else []), *row.tolist(), *([last] if last else [])] for row in rows]
    widest = max(map(len, around), default=1)
    return torch.tensor([line + [PAD] * (widest - len(line)) for line in around]).long().reshape(len(rows), widest)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.int64])
def test_a_batch_is_what_a_loop_over_sentences_makes(lengths, kind):
    draw = np.random.default_rng(2)
    source, target = ([draw.integers(4, 60_000, pair[side]).astype(kind) for pair in lengths] for side in (0, 1))
    index = np.arange(10, 10 + len(lengths))
    found = make_batch(source, target, index)
    wanted = padded(source, None, EOS), padded(target, BOS, None), padded(target, None, EOS)
    for tensor, expected in zip((found.source_BS, found.target_in_BT, found.target_out_BT), wanted, strict=True):
        assert tensor.dtype is torch.int64 and torch.equal(tensor, expected)
    sizes = np.array(lengths, dtype=np.int64).reshape(-1, 2).T + 1
    assert np.array_equal(found.source_lengths_B, sizes[0]) and np.array_equal(found.target_lengths_B, sizes[1])
    assert np.array_equal(found.keys_3B.numpy(), np.stack((index, *sizes))) and found.keys_3B.dtype is torch.int64
    assert (found.allowed is None) == bool((wanted[0] != PAD).all())
    if found.allowed is not None:
        assert torch.equal(found.allowed, (wanted[0] != PAD)[:, None, None, :])
    rows = torch.cat([torch.arange(n) + b * wanted[2].shape[1] for b, n in enumerate(sizes[1])]) if lengths else None
    assert (found.rows_N is None) == bool((wanted[2] != PAD).all())
    if found.rows_N is not None:
        assert torch.equal(found.rows_N, rows)


def test_each_side_is_joined_once(monkeypatch):
    """A loop over sentences, or a side laid out twice, holds the interpreter's lock for as long as a GPU's step."""
    joins, join = [], np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda rows, *a, **k: joins.append(len(rows)) or join(rows, *a, **k))
    rows = [np.full(5, 4)] * 480
    make_batch(rows, rows, np.arange(480))
    assert joins.count(480) == 2
