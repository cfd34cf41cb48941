"""Beam search of thousands of hypotheses that leaves its numbers on the device: what model/search.py finds, for a GPU.

To read a number the host has to wait until the device has done all that it was given. So what is finished stays there,
too, and only which sentences are done is read, each READ_EVERY steps; these leave the batch then. Until then they are
searched on, and nothing of that is kept: hypotheses are those of `beam_search`, up to sums in the order of another
batch shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from lightning_tfm.config import Evaluation, Model
from lightning_tfm.data.batch import Batch, pad
from lightning_tfm.model.search import CachedDecoder, Hypothesis, length_penalty
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.pieces import BOS, EOS, PAD

READ_EVERY = 8
"""steps"""
HYPOTHESES = 4096
"""of one batch, at most"""
BYTES = 16 << 30
"""that one batch may take by `bytes_each`, whatever the device has: the batch decides the order of sums"""
NONE = -torch.inf


def bytes_each(c: Model, V: int, S: int, T: int, beam: int, item: int = 4) -> float:
    """Of one hypothesis of T pieces with its source of S: keys and values of the decoder, of one layer three times
    while it is extended and reordered; its share of the memory's; logits, their logarithms and what sorts them."""
    position = (c.kv_heads or c.h) * (c.d_k + c.d_v) * item
    return position * ((c.N + 2) * T + c.N * S / beam) + 4 * V * item


def sentences_at_once(model: Transformer, S: int, T: int, beam: int, free: float = torch.inf) -> int:
    """Of a source length S and a limit T. `free`: bytes of the device, of which half are taken."""
    weight = model.embedding_WD
    each = bytes_each(model.config, weight.shape[0], S, T, beam, weight.element_size())
    return max(1, int(min(HYPOTHESES, min(BYTES, free / 2) / each) // beam))


@dataclass
class Beams:
    """Of B sentences; w open hypotheses, K (the beam) finished ones, L the longest limit. All on the device."""

    limits_B: Tensor
    penalty_B: Tensor
    """at the limit, float64"""
    logprob_Bw: Tensor
    history_BwL: Tensor
    done_B: Tensor
    score_BK: Tensor
    """of finished hypotheses, best first, float64; -inf: none"""
    ended_BK: Tensor
    """their log-probability"""
    length_BK: Tensor
    pieces_BKL: Tensor

    @classmethod
    def begin(cls, model: Transformer, limits: Sequence[int], beam: int, alpha: float, device: torch.device) -> "Beams":
        B, L = len(limits), max(limits)
        ended = torch.full((B, beam), NONE, device=device, dtype=torch.float64)
        return cls(
            torch.tensor(limits, device=device),
            torch.tensor([length_penalty(n, alpha) for n in limits], device=device, dtype=torch.float64),
            torch.zeros(B, 1, device=device, dtype=model.embedding_WD.dtype),
            torch.zeros(B, 1, L, device=device, dtype=torch.int32),
            torch.zeros(B, device=device, dtype=torch.bool),
            ended,
            ended,
            torch.zeros(B, beam, device=device, dtype=torch.int32),
            torch.zeros(B, beam, L, device=device, dtype=torch.int32),
        )

    def of(self, rows: Tensor) -> "Beams":
        return Beams(*(getattr(self, field.name)[rows] for field in fields(self)))

    def advance(self, step_BwW: Tensor, position: int, alpha: float, n_best: int) -> tuple[Tensor, Tensor]:
        """Add one piece, whose log P is `step`, to all open hypotheses; (parent, piece) of those that follow."""
        width, beam = step_BwW.shape[1], self.score_BK.shape[1]
        ends = self.logprob_Bw + step_BwW[:, :, EOS]
        for special in (PAD, BOS, EOS):  # a list of them would be carried to the device each time
            step_BwW[:, :, special] = NONE
        step_BwW += self.logprob_Bw[:, :, None]
        best, flat = step_BwW.flatten(1).topk(min(beam, step_BwW[0].numel()), 1)
        parent, piece = flat // step_BwW.shape[-1], flat % step_BwW.shape[-1]
        last = position >= self.limits_B
        counts = (ends >= best[:, -1:]) | last[:, None]
        if width * step_BwW.shape[-1] <= beam:
            counts = torch.ones_like(counts)
        ends = ends.double().masked_fill(~counts | self.done_B[:, None], NONE)
        self._finish(ends, position, alpha)
        bound = best[:, 0].double() / self.penalty_B
        kept = self.score_BK[:, n_best - 1]
        self.done_B = self.done_B | last | ((kept > NONE) & (kept >= bound)) | (bound == NONE)
        self.logprob_Bw = best
        self.history_BwL = _of(self.history_BwL, parent)
        self.history_BwL[:, :, position - 1] = piece
        return parent, piece

    def _finish(self, ends_Bw: Tensor, position: int, alpha: float) -> None:
        """The best of these and of those before; of equal ones those before."""
        scores = torch.cat((self.score_BK, ends_Bw / length_penalty(position, alpha)), 1)
        score, order = scores.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.score_BK.shape[1]]
        self.score_BK = score[:, : order.shape[1]]
        self.ended_BK = torch.cat((self.ended_BK, ends_Bw), 1).gather(1, order)
        now = torch.full_like(ends_Bw, position - 1, dtype=torch.int32)
        self.length_BK = torch.cat((self.length_BK, now), 1).gather(1, order)
        self.pieces_BKL = _of(torch.cat((self.pieces_BKL, self.history_BwL), 1), order)

    def hypotheses(self, n_best: int) -> list[list[Hypothesis]]:
        """What was found, read from the device."""
        found = []
        parts = (self.score_BK, self.ended_BK, self.length_BK, self.pieces_BKL)
        for best in zip(*(part.tolist() for part in parts), strict=True):
            some = [Hypothesis(p[:n], s, end) for s, end, n, p in zip(*best, strict=True) if s > NONE]
            found.append(some[:n_best])
        return found


def _of(x_BwL: Tensor, rows_BK: Tensor) -> Tensor:
    return x_BwL.gather(1, rows_BK[:, :, None].expand(-1, -1, x_BwL.shape[2]))


@torch.no_grad()
def unread_search(
    model: Transformer, source_BS: Tensor, beam: int, alpha: float, extra_len: int, n_best: int = 1
) -> list[list[Hypothesis]]:
    """As `beam_search`, of a model of two stacks."""
    assert not model.training and alpha >= 0 and 1 <= n_best <= beam and not model.config.one_stack
    device = source_BS.device
    limits = [min(n + extra_len, model.max_length) for n in (source_BS != PAD).sum(1).tolist()]
    beams, decoder = Beams.begin(model, limits, beam, alpha, device), CachedDecoder(model, source_BS)
    open_ids, ended = list(range(len(limits))), list[tuple[list[int], Beams]]()
    pieces_R = torch.full((len(limits),), BOS, device=device)
    longest = max(limits)
    for position in range(1, longest + 1):
        width = beams.logprob_Bw.shape[1]
        step = decoder.step(pieces_R, position - 1).view(len(open_ids), width, -1)
        parent, piece = beams.advance(step, position, alpha, n_best)
        rows, sentences = torch.arange(len(open_ids), device=device), None
        if position % READ_EVERY == 0 or position == longest:
            done = beams.done_B.tolist()
            if any(done):
                gone, stay = ([i for i, x in enumerate(done) if x is which] for which in (True, False))
                ended.append(([open_ids[i] for i in gone], beams.of(torch.tensor(gone, device=device))))
                rows = sentences = torch.tensor(stay, device=device, dtype=torch.long)
                open_ids = [open_ids[i] for i in stay]
                beams = beams.of(rows)
            if not open_ids:
                break
        decoder.select((rows[:, None] * width + parent[rows]).flatten(), sentences)
        pieces_R = piece[rows].flatten()
    found = {i: best for ids, part in ended for i, best in zip(ids, part.hypotheses(n_best), strict=True)}
    return [found[i] for i in range(len(limits))]


def translate(model: Transformer, batches: Sequence[Batch], how: Evaluation) -> dict[int, Hypothesis]:
    """Line number -> the best translation of every source: by length, in batches as large as memory allows."""
    device = model.embedding_WD.device
    rows = [
        (length, line, row[: length - 1])
        for batch in batches
        for length, line, row in zip(
            batch.source_lengths_B.tolist(), batch.index_B.tolist(), batch.source_BS.cpu().numpy(), strict=True
        )
    ]
    rows.sort(key=lambda one: (-one[0], one[1]))  # the batch that takes most comes first
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else torch.inf
    found: dict[int, Hypothesis] = {}
    while rows:
        S = rows[0][0]
        count = sentences_at_once(model, S, min(S + how.extra_len, model.max_length), how.beam, free)
        some, rows = rows[:count], rows[count:]
        source_BS = torch.from_numpy(pad([row for *_, row in some])[0]).to(device)
        best = unread_search(model, source_BS, how.beam, how.alpha, how.extra_len)
        found |= {line: one for (_, line, _), (one,) in zip(some, best, strict=True)}
    return found
