"""Texts translated on a GPU in batches as large as its memory allows: what `beam_search` finds, up to sums in the order
of another batch shape."""

from collections.abc import Sequence

import torch

from lightning_tfm.config import Evaluation, Model
from lightning_tfm.data.batch import Batch, pad
from lightning_tfm.model.beam_search import Hypothesis, beam_search
from lightning_tfm.model.transformer import SequenceModel

HYPOTHESES = 4096
"""of one batch, at most"""
BYTES = 16 << 30
"""that one batch may take by `bytes_each`, whatever the device has: the batch decides the order of sums"""


def bytes_each(c: Model, V: int, S: int, T: int, beam: int, item: int = 4) -> float:
    """Of one hypothesis of T pieces with its source of S: keys and values of the decoder, of one layer three times
    while it is extended and reordered; its share of the memory's; logits, their logarithms and what sorts them."""
    position = (c.kv_heads or c.h) * (c.d_k + c.d_v) * item
    return position * ((c.N + 2) * T + c.N * S / beam) + 4 * V * item


def sentences_at_once(model: SequenceModel, S: int, T: int, beam: int, free: float = torch.inf) -> int:
    """Of a source length S and a limit T. `free`: bytes of the device, of which half are taken."""
    weight = model.embedding_WD
    each = bytes_each(model.config, weight.shape[0], S, T, beam, weight.element_size())
    return max(1, int(min(HYPOTHESES, min(BYTES, free / 2) / each) // beam))


def translate(model: SequenceModel, batches: Sequence[Batch], how: Evaluation) -> dict[int, Hypothesis]:
    """Line number -> the best translation of every source: by length, in batches as large as memory allows."""
    device = model.embedding_WD.device
    rows = [
        (length, line, row[: length - 1])
        for batch in batches
        for length, line, row in zip(
            batch.source_lengths_B.tolist(), batch.index_B.tolist(), batch.source_BS.cpu().numpy(), strict=True
        )
    ]
    rows.sort(key=lambda row: (-row[0], row[1]))  # the batch that takes most comes first
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else torch.inf
    translations: dict[int, Hypothesis] = {}
    while rows:
        S = rows[0][0]
        count = sentences_at_once(model, S, min(S + how.extra_len, model.max_length), how.beam, free)
        some, rows = rows[:count], rows[count:]
        source_BS = torch.from_numpy(pad([row for *_, row in some])[0]).to(device)
        best = beam_search(model, source_BS, how.beam, how.alpha, how.extra_len)
        translations |= {line: hypothesis for (_, line, _), (hypothesis,) in zip(some, best, strict=True)}
    return translations
