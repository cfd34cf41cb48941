"""Scoring a text line by line, over any number of ranks: every line exactly once, sums in line order."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from lightning_tfm.config import Evaluation
from lightning_tfm.data.batch import Batch, pad
from lightning_tfm.model.search import beam_search
from lightning_tfm.training.pending_losses import NotFinite
from lightning_tfm.training.precision import of_weights

if TYPE_CHECKING:
    from lightning_tfm.training.module import TransformerModule


@dataclass(frozen=True)
class Line:
    """What a model makes of one line of a text."""

    nll: float
    """of the reference, unsmoothed, end token included, in nats"""
    tokens: int
    """pieces of the reference with its end token"""
    pieces: list[int] | None = None
    """the translation"""
    score: float | None = None


@dataclass(frozen=True)
class Perplexity:
    """exp(nll / tokens), per piece with the end token (caption of Table 3); infinite where that overflows."""

    nll: float
    tokens: int

    @property
    def ppl(self) -> float:
        return math.exp(self.nll / self.tokens) if self.nll / self.tokens < 700 else math.inf


def score_batch(module: "TransformerModule", batch: Batch) -> dict[int, Line]:
    """Line number -> nll and tokens."""
    with of_weights(module.device):
        nll, tokens = module.sentence_nll(batch).tolist(), batch.target_lengths_B.tolist()
    return {line: Line(*values) for line, *values in zip(batch.index_B.tolist(), nll, tokens, strict=True)}


def translate_batch(module: "TransformerModule", batch: Batch, how: Evaluation) -> dict[int, Line]:
    """As `score_batch`, with the best translation."""
    scored = score_batch(module, batch)
    with of_weights(module.device):
        found = beam_search(module.transformer, batch.source_BS, how.beam, how.alpha, how.extra_len)
    pairs = zip(scored.items(), found, strict=True)
    return {line: Line(s.nll, s.tokens, best[0].pieces, best[0].score) for (line, s), best in pairs}


def translate_large(module: "TransformerModule", batches: list[Batch], how: Evaluation) -> dict[int, Line]:
    """As `translate_batch` of all of them, for a GPU: lines scored by batch, then translated by length in batches as
    large as its memory allows, without a wait at each piece. `batches` may lie on the CPU."""
    from lightning_tfm.model.unread_search import sentences_at_once, unread_search

    model, found = module.transformer, dict[int, Line]()
    rows = [
        (length, line, row[:length])
        for batch in batches
        for length, line, row in zip(
            batch.source_lengths_B.tolist(), batch.index_B.tolist(), batch.source_BS.cpu().numpy(), strict=True
        )
    ]
    rows.sort(key=lambda one: (-one[0], one[1]))  # the longest first, whose batch must fit
    for batch in batches:
        found |= score_batch(module, module.transfer_batch_to_device(batch, module.device, 0))
    free = torch.cuda.mem_get_info(module.device)[0] if module.device.type == "cuda" else math.inf
    while rows:
        S = rows[0][0]
        count = sentences_at_once(model, S, min(S + how.extra_len, model.max_length), how.beam, free)
        some, rows = rows[:count], rows[count:]
        source_BS = pad([row for *_, row in some]).to(module.device)
        with of_weights(module.device):
            best = unread_search(model, source_BS, how.beam, how.alpha, how.extra_len)
        for (_, line, _), (one,) in zip(some, best, strict=True):
            found[line] = replace(found[line], pieces=one.pieces, score=one.score)
    return found


def all_lines(local: dict[int, Line], n: int) -> list[Line]:
    """Lines 0 … n-1 from all ranks. A collective. Raises RuntimeError unless each came exactly once."""
    parts = [local]
    if dist.is_available() and dist.is_initialized():
        parts = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(parts, local)
    numbers = sorted(line for part in parts for line in part)
    if numbers != list(range(n)):
        raise RuntimeError(f"{n} lines were to be scored, each once; got {len(numbers)} ({len(set(numbers))} distinct)")
    whole = {line: value for part in parts for line, value in part.items()}
    return [whole[line] for line in range(n)]


def perplexity(lines: Iterable[Line]) -> Perplexity:
    """Raises NotFinite where the model's numbers are none."""
    lines = list(lines)
    nll = math.fsum(x.nll for x in lines)
    if not math.isfinite(nll):
        raise NotFinite(f"the nll of the text is {nll}")
    return Perplexity(nll, sum(x.tokens for x in lines))


@torch.no_grad()
def evaluate_lines(
    module: "TransformerModule", batches: list[Batch], n: int, how: Evaluation | None = None
) -> list[Line]:
    """All `n` lines scored, and translated where `how` is given; `batches` is this rank's share. A collective.

    Leaves the module's mode as it was.
    """
    training = module.training
    module.eval()
    local: dict[int, Line] = {}
    large = how is not None and module.device.type != "cpu" and not module.transformer.config.one_stack
    if how is not None and large:
        local, batches = translate_large(module, batches, how), []
    for batch in batches:
        batch = module.transfer_batch_to_device(batch, module.device, 0)
        local |= score_batch(module, batch) if how is None else translate_batch(module, batch, how)
    module.train(training)
    return all_lines(local, n)
