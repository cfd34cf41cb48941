"""Scoring a text line by line, over any number of ranks: every line exactly once, sums in line order."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from lightning_tfm.config import Evaluation
from lightning_tfm.data.batch import Batch
from lightning_tfm.training.precision import of_weights

if TYPE_CHECKING:
    from lightning_tfm.training.module import TransformerModule


class NotFinite(FloatingPointError):
    """The loss of a step, or of a text, is NaN or infinite."""


@dataclass(frozen=True)
class Line:
    """A model's results for one line of a text."""

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


def with_translations(
    module: "TransformerModule", local: dict[int, Line], batches: list[Batch], how: Evaluation
) -> dict:
    """Scored lines, with their best translations."""
    with of_weights(module.device):
        best = module.backend.translate(module.transformer, batches, how)
    return {line: replace(x, pieces=best[line].pieces, score=best[line].score) for line, x in local.items()}


def all_lines(local: dict[int, Line], n: int | None = None) -> list[Line]:
    """Lines 0 … n-1 from all ranks, n - 1 the highest of them where it is not given. A collective.

    Raises RuntimeError unless each came exactly once.
    """
    parts = [local]
    if dist.is_available() and dist.is_initialized():
        parts = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(parts, local)
    numbers = sorted(line for part in parts for line in part)
    n = max(numbers, default=-1) + 1 if n is None else n
    if numbers != list(range(n)):
        raise RuntimeError(f"{n} lines were to be scored, each once; got {len(numbers)} ({len(set(numbers))} distinct)")
    whole = {line: value for part in parts for line, value in part.items()}
    return [whole[line] for line in range(n)]


def perplexity(lines: Iterable[Line]) -> Perplexity:
    """Raises NotFinite where the model's numbers are not finite."""
    lines = list(lines)
    nll = math.fsum(x.nll for x in lines)
    if not math.isfinite(nll):
        raise NotFinite(f"the NLL of the text is {nll}")
    return Perplexity(nll, sum(x.tokens for x in lines))


@torch.no_grad()
def evaluate_lines(
    module: "TransformerModule", batches: list[Batch], n: int, how: Evaluation | None = None
) -> list[Line]:
    """All `n` lines scored, and translated if `how` is given; `batches` is this rank's share. A collective.

    Leaves the module's mode as it was.
    """
    training = module.training
    module.eval()
    local: dict[int, Line] = {}
    for batch in batches:
        local |= score_batch(module, module.transfer_batch_to_device(batch, module.device, 0))
    if how is not None:
        local = with_translations(module, local, batches, how)
    module.train(training)
    return all_lines(local, n)
