"""Beam search with what each layer keeps (6.1): beam 4, length penalty ((5 + length) / 6)^alpha, greedy with beam 1.

`length` counts the pieces of the translation with its end token, as does the limit source length + `extra_len`. A score
is log P(translation | source) divided by the penalty. A sentence leaves the batch as soon as no open hypothesis can
still beat its finished ones: log-probabilities only fall and the penalty only grows, so an open hypothesis is worth at
most logprob / penalty(limit). This holds for alpha >= 0 and makes the early stop safe.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_tfm.model.attention import KeyValueCache
from lightning_tfm.model.transformer import EncoderLayer, Keep, Transformer
from lightning_tfm.pieces import BOS, EOS, PAD

BLOCK = 128
LARGE = 32 * BLOCK, 1 << 20
"""pieces, and values in all, from which two small searches are quicker than one"""


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
        sentences = self.allowed.shape[0]
        x_R1D = self.model.embed_target(pieces_R[:, None], position)
        for layer, (k, v), cache in zip(self.model.decoder, self.memory, self.caches, strict=True):
            y_R1D = layer.self_attention(layer.residual_1.before(x_R1D), None, True, cache, position)
            x_R1D = layer.residual_1.after(x_R1D, y_R1D, None)
            q_BTD = layer.residual_2.before(x_R1D).view(sentences, -1, x_R1D.shape[-1])
            y_R1D = layer.cross_attention(q_BTD, k, v, self.allowed).reshape(x_R1D.shape)
            x_R1D = layer.residual_2.after(x_R1D, y_R1D, None)
            y_R1D = layer.feed_forward(layer.residual_3.before(x_R1D))
            x_R1D = layer.residual_3.after(x_R1D, y_R1D, None)
        return log_probabilities(self.model, x_R1D[:, 0])

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder rows after a beam step; drop sentences that are done where `sentences` names those that stay."""
        for cache in self.caches:
            cache.select(rows)
        if sentences is not None:
            self.allowed = self.allowed[sentences]
            self.memory = [(k[sentences], v[sentences]) for k, v in self.memory]


def log_probabilities(model: Transformer, x_RD: Tensor) -> Tensor:
    """log P of every next piece [R, W]; `x` is what the last layer made."""
    logits_RW = model.logits(model.decoder_norm(x_RD))
    return F.log_softmax(logits_RW.float() if logits_RW.dtype is torch.bfloat16 else logits_RW, -1)


@dataclass
class SameLength:
    """Rows of a search whose sources have `length` pieces, so that their targets begin at one position."""

    length: int
    rows: Tensor
    caches: list[KeyValueCache]


class OneStackDecoder:
    """One stack, one piece at a time, as CachedDecoder; sources of one length go through it together.

    Each has positions and cache of its own length, whatever positional scheme or layer type there is: no row sees what
    others of the batch are. What was decoded before is held for every beam, the source with it.
    """

    def __init__(self, model: Transformer, source_BS: Tensor):
        self.model, self.groups = model, list[SameLength]()
        lengths_B = (source_BS != PAD).sum(1)
        at_once = model.config.layer == "attention"  # other types keep their state one piece at a time
        for n in lengths_B.unique().tolist():
            rows = (lengths_B == n).nonzero()[:, 0]
            group = SameLength(n, rows, [layer.self_attention.new_cache() for layer in model.decoder])
            for start, pieces in enumerate(source_BS[rows, :n].split(n if at_once else 1, 1)):
                self._through(model.embed_target(pieces, start, of_source=True), group, start)
            self.groups.append(group)

    def step(self, pieces_R: Tensor, position: int) -> Tensor:
        """As CachedDecoder.step; rows may be any number to a sentence."""
        x_RD = self.model.embedding_WD.new_empty(len(pieces_R), self.model.config.d_model)
        for group in self.groups:
            start = group.length + position
            x_R1D = self.model.embed_target(pieces_R[group.rows, None], start)
            x_RD[group.rows] = self._through(x_R1D, group, start)[:, 0].to(x_RD.dtype)
        return log_probabilities(self.model, x_RD)

    def _through(self, x_BTD: Tensor, group: SameLength, start: int) -> Tensor:
        causal, none = self.model.config.stack == "causal", list[Keep]((None, None))
        for layer, cache in zip(cast(Sequence[EncoderLayer], self.model.decoder), group.caches, strict=True):
            x_BTD = layer(x_BTD, None, none, causal=causal, cache=cache, start=start)
        return x_BTD

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """As CachedDecoder.select."""
        for group in self.groups:
            kept = torch.isin(rows, group.rows).nonzero()[:, 0]
            for cache in group.caches:
                cache.select(torch.searchsorted(group.rows, rows[kept]))
            group.rows = kept
        if sentences is not None:
            self.groups = [group for group in self.groups if len(group.rows)]


def cached_decoder(model: Transformer, source_BS: Tensor) -> CachedDecoder | OneStackDecoder:
    return (OneStackDecoder if model.config.one_stack else CachedDecoder)(model, source_BS)


@torch.no_grad()
def beam_search(
    model: Transformer,
    source_BS: Tensor,
    beam: int,
    alpha: float,
    extra_len: int,
    n_best: int = 1,
    penalty: Callable[[int, float], float] = length_penalty,
    early: bool = False,
    begin_BP: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """For each source the `n_best` finished hypotheses (at most `beam`), best first. Each finishes with the end token.

    The model must be in evaluation mode. Ties go to the smaller piece id of the better beam. `penalty(length, alpha)`
    must not fall with the length. `early` leaves a sentence with its `beam`-th finished hypothesis, as other libraries
    do: sooner, and perhaps without the best. `begin_BP`: pieces that every target begins with; lengths count them,
    pieces, log-probabilities and the limit do not.
    """
    assert not model.training and alpha >= 0 and 1 <= n_best <= beam
    device = source_BS.device
    before = int(model.config.one_stack)  # in one stack the source also uses positions
    begun = 0 if begin_BP is None else begin_BP.shape[1]
    lengths = (source_BS != PAD).sum(1).tolist()
    limits = [min(n + begun + extra_len, model.max_length - before * n) for n in lengths]
    finished: list[list[Hypothesis]] = [[] for _ in limits]
    decoder = cached_decoder(model, source_BS)
    open_ids = list(range(len(limits)))  # sentences still in the batch
    pieces_R = torch.full((len(limits),), BOS, device=device)
    history = torch.empty(len(limits), 1, 0, dtype=torch.long, device=device)  # [sentences, width, pieces so far]
    logprob = torch.zeros(len(limits), 1, device=device, dtype=model.embedding_WD.dtype)
    position = 0
    for pieces in () if begin_BP is None else begin_BP.T:
        decoder.step(pieces_R, position)
        pieces_R, position = pieces, position + 1
    while open_ids:
        sentences, width = history.shape[:2]
        step = decoder.step(pieces_R, position).view(sentences, width, -1)
        position += 1
        ends = logprob + step[:, :, EOS]
        step[:, :, [PAD, BOS, EOS]] = float("-inf")
        # a row's beam best are all that can be among its sentence's beam best: a small top-k before the large one
        row_best, row_piece = top(step, min(beam, step.shape[-1]))
        row_best += logprob[:, :, None]
        best, flat = row_best.flatten(1).topk(min(beam, row_best[0].numel()), 1)
        parent, piece = flat // row_best.shape[-1], row_piece.flatten(1).gather(1, flat)

        # an end counts if it is among what the beam keeps, or where nothing else may follow
        are_last = [position >= limits[sentence] for sentence in open_ids]
        last = torch.tensor(are_last, device=device)
        everything = width * step.shape[-1] <= beam
        counts = (ends >= best[:, -1:]) | last[:, None] | everything
        divisor = penalty(position, alpha)
        # a device is asked twice a step at most, whatever has finished: each time it has to come to an end first
        counted = ends.masked_fill(~counts, float("-inf"))
        *seen, best_open = torch.cat((counted, best[:, :1]), 1).double().T.tolist()
        found = [(row, b) for row in range(sentences) for b in range(width) if seen[b][row] > float("-inf")]
        ended = history[tuple(torch.tensor(found, device=device).T)].tolist() if found else []
        for (row, b), pieces in zip(found, ended, strict=True):
            finished[open_ids[row]].append(Hypothesis(pieces, seen[b][row] / divisor, seen[b][row]))

        stay = []
        for row, (sentence, open_best, is_last) in enumerate(zip(open_ids, best_open, are_last, strict=True)):
            done = finished[sentence] = sorted(finished[sentence], key=lambda x: -x.score)[:beam]
            bound = open_best / penalty(limits[sentence], alpha)
            enough = len(done) >= n_best and done[n_best - 1].score >= bound
            if not (is_last or enough or bound == float("-inf") or (early and len(done) >= beam)):
                stay.append(row)
        if not stay:
            break
        rows = torch.tensor(stay, device=device)
        parent, piece, logprob = parent[rows], piece[rows], best[rows]
        decoder.select((rows[:, None] * width + parent).flatten(), rows if len(stay) < sentences else None)
        history = torch.cat((history[rows[:, None], parent], piece[:, :, None]), 2)
        pieces_R = piece.flatten()
        open_ids = [open_ids[row] for row in stay]
    return [hypotheses[:n_best] for hypotheses in finished]


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
