"""Beam search with what each layer keeps (6.1): beam 4, length penalty ((5 + length) / 6)^alpha, greedy with beam 1.

`length` counts the pieces of the translation with its end token, as does the limit source length + `extra_len`. A score
is log P(translation | source) divided by the penalty. A sentence is done as soon as no open hypothesis can still beat
its finished ones: log-probabilities only fall and the penalty only grows, so an open hypothesis is worth at most
logprob / penalty(limit). This holds for alpha >= 0 and makes the early stop safe.

To read a number from a GPU the host has to wait until the device has done all that it was given. So what is finished
stays on the device, and only which sentences are done is read: at each step on a CPU, each READ_EVERY steps elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from lightning_tfm.model.one_stack import OneStack, OneStackDecoder
from lightning_tfm.model.transformer import SequenceModel, Transformer
from lightning_tfm.special_tokens import BOS, EOS, PAD

READ_EVERY = 8
READ_AT_ONCE = ("cpu",)
"""devices that the host need not wait for"""
BLOCK = 128
LARGE = 32 * BLOCK, 1 << 20
"""pieces, and values in all, from which two small searches are quicker than one"""
NONE = -torch.inf


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: pieces without begin and end token."""

    pieces: list[int]
    score: float
    logprob: float


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016)."""
    return ((5 + length) / 6) ** alpha


class CachedDecoder:
    """The decoder of two stacks, one piece at a time. Rows are beams of sentences, `width` to a sentence.

    Keys and values of the memory are held once for each sentence: its beams are queries of the same attention.
    """

    def __init__(self, model: Transformer, source_BS: Tensor):
        self.model = model
        self.allowed = (source_BS != PAD)[:, None, None, :]
        memory_BSD = model.encode(source_BS, self.allowed)
        self.memory = [layer.cross_attention.keys_values(memory_BSD) for layer in model.decoder]
        self.caches = [layer.self_attention.new_cache() for layer in model.decoder]

    def step(self, pieces_R: Tensor, position: int) -> Tensor:
        """log P of the piece after `pieces_R`, which are at `position`: [R, W], R = sentences * width."""
        x_R1D = self.model.embed_target(pieces_R[:, None], position)
        for layer, memory, cache in zip(self.model.decoder, self.memory, self.caches, strict=True):
            x_R1D = layer(x_R1D, memory, self.allowed, cache, position)
        return self.model.log_probabilities(x_R1D[:, 0])

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder rows after a beam step; drop sentences that are done where `sentences` names those that stay."""
        for cache in self.caches:
            cache.select(rows)
        if sentences is not None:
            self.allowed = self.allowed[sentences]
            self.memory = [(k[sentences], v[sentences]) for k, v in self.memory]


def cached_decoder(model: SequenceModel, source_BS: Tensor) -> Any:
    """What decodes with this model, piece by piece."""
    if isinstance(model, Transformer):
        return CachedDecoder(model, source_BS)
    assert isinstance(model, OneStack)
    return OneStackDecoder(model, source_BS)


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
    def begin(
        cls, model: SequenceModel, limits: Sequence[int], beam: int, alpha: float, device: torch.device
    ) -> "Beams":
        B, L = len(limits), max([*limits, 1])
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

    def advance(self, step_BwW: Tensor, position: int, alpha: float, n_best: int, made: int) -> tuple[Tensor, Tensor]:
        """Add one piece, whose log P is `step`, to all open hypotheses; (parent, piece) of those that follow.

        An end counts if it is among what the beam keeps, or where nothing else may follow. `made`: pieces so far.
        """
        width, beam = step_BwW.shape[1], self.score_BK.shape[1]
        ends = self.logprob_Bw + step_BwW[:, :, EOS]
        for special in (PAD, slice(BOS, EOS + 1)):  # a list of them would be carried to the device each time
            step_BwW[:, :, special] = NONE
        # a row's beam best are all that can be among its sentence's beam best: a small top-k before the large one
        row_best, row_piece = top(step_BwW, min(beam, step_BwW.shape[-1]))
        row_best = row_best + self.logprob_Bw[:, :, None]
        best, flat = row_best.flatten(1).topk(min(beam, row_best[0].numel()), 1)
        parent, piece = flat // row_best.shape[-1], row_piece.flatten(1).gather(1, flat)
        last = position >= self.limits_B
        counts = (ends >= best[:, -1:]) | last[:, None]
        if width * step_BwW.shape[-1] <= beam:
            counts = torch.ones_like(counts)
        counts &= ~self.done_B[:, None]
        if ends.device.type not in READ_AT_ONCE or bool(counts.any()):  # else none is better than those before
            self._finish(ends.double().masked_fill(~counts, NONE), position, alpha, made)
        bound = best[:, 0].double() / self.penalty_B
        worst = self.score_BK[:, n_best - 1]
        self.done_B = self.done_B | last | ((worst > NONE) & (worst >= bound)) | (bound == NONE)
        self.logprob_Bw = best
        self.history_BwL = _of(self.history_BwL, parent)
        self.history_BwL[:, :, made] = piece
        return parent, piece

    def _finish(self, ends_Bw: Tensor, position: int, alpha: float, made: int) -> None:
        """The best of these and of those before; of equal ones those before."""
        scores = torch.cat((self.score_BK, ends_Bw / length_penalty(position, alpha)), 1)
        score, order = scores.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.score_BK.shape[1]]
        self.score_BK = score[:, : order.shape[1]]
        self.ended_BK = torch.cat((self.ended_BK, ends_Bw), 1).gather(1, order)
        now = torch.full_like(ends_Bw, made, dtype=torch.int32)
        self.length_BK = torch.cat((self.length_BK, now), 1).gather(1, order)
        self.pieces_BKL = _of(torch.cat((self.pieces_BKL, self.history_BwL), 1), order)

    def hypotheses(self, n_best: int) -> list[list[Hypothesis]]:
        """What was found, read from the device."""
        lists = []
        parts = (self.score_BK, self.ended_BK, self.length_BK, self.pieces_BKL)
        for best in zip(*(part.tolist() for part in parts), strict=True):
            some = [Hypothesis(p[:n], s, end) for s, end, n, p in zip(*best, strict=True) if s > NONE]
            lists.append(some[:n_best])
        return lists


def _of(x_BwL: Tensor, rows_BK: Tensor) -> Tensor:
    return x_BwL.gather(1, rows_BK[:, :, None].expand(-1, -1, x_BwL.shape[2]))


@torch.no_grad()
def beam_search(
    model: SequenceModel,
    source_BS: Tensor,
    beam: int,
    alpha: float,
    extra_len: int,
    n_best: int = 1,
    begin_BP: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """For each source the `n_best` finished hypotheses (at most `beam`), best first. Each finishes with the end token.

    The model must be in evaluation mode. Ties go to the smaller piece id of the better beam. `begin_BP`: pieces that
    every target begins with; lengths count them, pieces, log-probabilities and the limit do not.
    """
    assert not model.training and alpha >= 0 and 1 <= n_best <= beam
    device = source_BS.device
    every = 1 if device.type in READ_AT_ONCE else READ_EVERY
    before = int(model.config.one_stack)  # in one stack the source also uses positions
    begun = 0 if begin_BP is None else begin_BP.shape[1]
    lengths = (source_BS != PAD).sum(1).tolist()
    limits = [min(n + begun + extra_len, model.max_length - before * n) for n in lengths]
    beams, decoder = Beams.begin(model, limits, beam, alpha, device), cached_decoder(model, source_BS)
    open_ids, ended = list(range(len(limits))), list[tuple[list[int], Beams]]()
    pieces_R = torch.full((len(limits),), BOS, device=device)
    for position in range(begun):
        decoder.step(pieces_R, position)
        pieces_R = begin_BP[:, position]  # type: ignore[index]
    longest, every_row = max([*limits, begun + 1]), torch.arange(len(limits), device=device)
    for position in range(begun + 1, longest + 1):
        width = beams.logprob_Bw.shape[1]
        step = decoder.step(pieces_R, position - 1).view(len(open_ids), width, -1)
        parent, piece = beams.advance(step, position, alpha, n_best, position - 1 - begun)
        rows, sentences = every_row, None
        if position % every == 0 or position == longest:
            done = beams.done_B.tolist()
            if any(done):
                gone, stay = ([i for i, x in enumerate(done) if x is which] for which in (True, False))
                ended.append(([open_ids[i] for i in gone], beams.of(torch.tensor(gone, device=device))))
                rows = sentences = torch.tensor(stay, device=device, dtype=torch.long)
                open_ids = [open_ids[i] for i in stay]
                beams, parent, piece = beams.of(rows), parent[rows], piece[rows]
                every_row = every_row[: len(open_ids)]
            if not open_ids:
                break
        decoder.select((rows[:, None] * width + parent).flatten(), sentences)
        pieces_R = piece.flatten()
    best_of = {i: best for ids, part in ended for i, best in zip(ids, part.hypotheses(n_best), strict=True)}
    return [best_of[i] for i in range(len(limits))]


def top(x_BTW: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As x_BTW.topk(k): the k best are in the k blocks with the largest maxima.

    Where values are equal, so that several answers would be right, it is topk itself that answers.
    """
    W = x_BTW.shape[-1]
    if W < LARGE[0] or x_BTW.numel() < LARGE[1] or k > BLOCK // 8 or x_BTW.device.type != "cpu":
        return x_BTW.topk(k, -1)
    x_RW = x_BTW.flatten(0, 1)
    whole = W // BLOCK * BLOCK
    best_RN = x_RW[:, :whole].unflatten(1, (-1, BLOCK)).amax(2)
    if whole < W:
        best_RN = torch.cat((best_RN, x_RW[:, whole:].amax(1, keepdim=True)), 1)
    most_RK, block_RK = best_RN.topk(k, 1)
    ids_RC = (block_RK[:, :, None] * BLOCK + torch.arange(BLOCK)).flatten(1)
    among_RC = x_RW.gather(1, ids_RC.clamp(max=W - 1)).masked_fill_(ids_RC >= W, -torch.inf)
    value_RK, place_RK = among_RC.topk(k, 1)
    blocks, candidates = (best_RN >= most_RK[:, -1:]).sum(), (among_RC >= value_RK[:, -1:]).sum()
    if int(torch.maximum(blocks, candidates)) > len(x_RW) * k or bool((value_RK[:, 1:] == value_RK[:, :-1]).any()):
        return x_BTW.topk(k, -1)
    piece_RK = ids_RC.gather(1, place_RK)
    return value_RK.view(*x_BTW.shape[:2], k), piece_RK.view(*x_BTW.shape[:2], k)
