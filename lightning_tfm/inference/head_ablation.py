"""Questions to a trained run that cost no training: what each head is worth, and what a wider beam buys.

Both are records of a run's folder, `report/heads.json` and `report/beams.json`, made by the command `inspect`.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from lightning_tfm.config import Evaluation
from lightning_tfm.corpus_metrics import counter_of
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.module import evaluation_batches
from lightning_tfm.data.token_store import EncodedText
from lightning_tfm.inference.attention_hooks import KINDS, attention_places
from lightning_tfm.inference.load import Trained
from lightning_tfm.metrics import Metric, chief
from lightning_tfm.model.attention import Attention
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.training.evaluate import Line, evaluate_lines

Z95 = 1.96
Say = Callable[[str], None]


def heads(trained: Trained, text: EncodedText, how: Evaluation, say: Say) -> dict[str, Any]:
    """By how much nll per piece and a score change where one head's output is zero (after Michel et al. 2019).

    kind -> [layer][head]: `nll` with the marginal 95 % interval over sentences (`low`, `high`), and the score under its
    name (metrics.chief).
    """
    batches = evaluation_batches(text)
    metric, score = _scorer(trained.prepared, text, how)

    def score_text() -> tuple[list[Line], float]:
        lines = evaluate_lines(trained.module, batches, len(text), how)
        return lines, score([line.pieces or [] for line in lines])

    whole, of_whole = score_text()
    pieces = sum(line.tokens for line in whole)
    changes: dict[str, list[list[dict[str, float]]]] = {kind: [] for kind in KINDS}
    every = attention_places(trained.module.transformer)
    for done, (kind, layer, module) in enumerate(every):
        row = []
        for head in range(module.h):
            with without(module, head):
                lines, value = score_text()
            change = np.array([line.nll - before.nll for line, before in zip(lines, whole, strict=True)])
            half = Z95 * math.sqrt(len(change) * change.var(ddof=1)) if len(change) > 1 else math.inf
            sums = {"nll": change.sum(), "low": change.sum() - half, "high": change.sum() + half}
            row.append({name: float(f"{x / pieces:.6g}") for name, x in sums.items()} | {metric.name: value - of_whole})
        changes[kind].append(row)
        say(f"{kind}, layer {layer + 1}: {done + 1} of {len(every)}")
    nll = sum(line.nll for line in whole) / pieces
    return _head(text, how) | {"beam": how.beam, "nll": nll, metric.name: of_whole, "heads": changes}


@contextmanager
def without(module: Attention, head: int) -> Iterator[None]:
    """With what this head found replaced by zeros, before W_O."""
    W_O = cast(nn.Linear, module.W_O)
    width = W_O.in_features // module.h
    keep = torch.ones(W_O.in_features)
    keep[head * width : (head + 1) * width] = 0.0
    hook = W_O.register_forward_pre_hook(lambda _, given: (given[0] * keep.to(given[0]),))
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def beams(trained: Trained, text: EncodedText, how: Evaluation, widths: Sequence[int], say: Say) -> dict[str, Any]:
    """A score, seconds of the search for all lines, and pieces over the reference's, for each width of the beam."""
    batches = evaluation_batches(text)
    metric, score = _scorer(trained.prepared, text, how)
    wanted, records = int(text.target_lengths.sum()), []
    beam_search(
        trained.module.transformer, batches[0].source_BS, 1, how.alpha, how.extra_len
    )  # the first one is slower
    for width in widths:
        pieces: list[list[int]] = [[] for _ in range(len(text))]
        began = time.perf_counter()
        for batch in batches:
            best = beam_search(trained.module.transformer, batch.source_BS, width, how.alpha, how.extra_len)
            for line, hypotheses in zip(batch.index_B.tolist(), best, strict=True):
                pieces[line] = hypotheses[0].pieces
        seconds = time.perf_counter() - began
        value = score(pieces)
        ratio = sum(map(len, pieces)) / wanted
        records.append({"beam": width, metric.name: value, "seconds": round(seconds, 3), "length": round(ratio, 4)})
        say(f"beam {width}: {metric.label} {value:.2f}, {seconds:.1f} s")
    return _head(text, how) | {"threads": torch.get_num_threads(), "beams": records}


def _scorer(
    prepared: Prepared, text: EncodedText, how: Evaluation
) -> tuple[Metric, Callable[[Sequence[list[int]]], float]]:
    """What translations are scored by, and what gives the score of some."""
    metric = chief(how.metrics.split("+"))
    counter = counter_of(metric, text.target_text(), how)
    return metric, lambda pieces: counter.corpus([prepared.tokenizer.decode(ids) for ids in pieces]).value


def _head(text: EncodedText, how: Evaluation) -> dict[str, Any]:
    return {"schema": 1, "split": "dev", "lines": len(text), "alpha": how.alpha, "extra_len": how.extra_len}
