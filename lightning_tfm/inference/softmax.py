"""How far the softmaxes of attention are saturated, and whether gradients still pass them (footnote 4 of the paper).

A softmax over n >= 2 keys with weights p has the Jacobian J = diag(p) - p p^T. It counts as saturated where
trace J = Σ p (1 - p) < SATURATED: about where one weight is above 0.99. Its entropy is divided by ln n, so that 1 is
uniform. The gradient is dL/ds at the scores s, L the summed nll of the references; "passes saturated ones" is their
share of Σ |dL/ds| over all softmaxes.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_tfm.data.batch import Batch
from lightning_tfm.data.token_store import Split
from lightning_tfm.inference.attention_hooks import KINDS, Look, Place, attention_places, some_lines, watch_attention
from lightning_tfm.inference.load import Trained
from lightning_tfm.model.layer_types import RestrictedSelfAttention
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.training.module import TransformerModule

SATURATED = 0.02
LINES = 100
"""sentence pairs of the dev text"""
COUNTS = ("softmaxes", "entropy", "saturated", "gradient", "gradient_saturated")
"""sums over softmaxes, of each head: how many, entropy / ln n, saturated ones, Σ |dL/ds| of all, of saturated ones"""


def softmaxes(trained: Trained, split: Split) -> dict[str, Any]:
    """Of the trained weights, and of those that this run began with: start, end -> kind -> [layer][head][COUNTS]."""
    e = trained.module.experiment
    begun = TransformerModule(e, trained.prepared.tokenizer.V).eval()
    batches = some_lines(split, LINES)
    states = {"start": begun.transformer, "end": trained.module.transformer}
    return {
        "schema": 1,
        "split": "dev",
        "lines": len(batches),
        "threshold": SATURATED,
        "counts": list(COUNTS),
        **{when: measure_softmax(model, batches) for when, model in states.items()},
    }


def measure_softmax(transformer: SequenceModel, batches: list[Batch]) -> dict[str, list]:
    """kind -> [layer][head][COUNTS]. Left out are restricted self-attention, whose blocks hold queries that are
    none, and what mixes other than by one softmax."""
    watched = [
        place
        for place in attention_places(transformer)
        if place.module.mix is None and not isinstance(place.module, RestrictedSelfAttention)
    ]
    total = {(place.kind, place.layer): torch.zeros(place.module.h, len(COUNTS)).double() for place in watched}
    looks: list[tuple[Place, Look]] = []

    def keep(place: Place, look: Look) -> None:
        assert look.scores is not None
        look.scores.retain_grad()
        looks.append((place, look))

    with watch_attention(watched, keep):
        for batch in batches:
            logits_BTW = transformer(batch.source_BS, batch.target_in_BT)
            F.cross_entropy(logits_BTW.flatten(0, 1), batch.target_out_BT.flatten(), reduction="sum").backward()
            for place, look in looks:
                assert look.scores is not None and look.scores.grad is not None
                T, S = look.weights.shape[2:]
                keys_T = torch.full((T,), S) if look.mask is None else look.mask.expand(1, 1, T, S)[0, 0].sum(-1)
                weights_HTS = look.weights.detach()[0]
                total[place.kind, place.layer] += count_saturation(weights_HTS, look.scores.grad[0], keys_T.double())
            looks.clear()
            transformer.zero_grad()
    heads: dict[str, list] = {kind: [] for kind in KINDS}
    for (kind, _), sums in total.items():
        heads[kind].append([[float(f"{x:.7g}") for x in head] for head in sums.tolist()])
    return heads


def count_saturation(p_HTS: Tensor, gradient_HTS: Tensor, keys_T: Tensor) -> Tensor:
    """[H, COUNTS] of one sentence; queries that see only one key are left out. `keys_T`: how many each sees."""
    p, g = p_HTS.double(), gradient_HTS.double().abs().sum(-1)
    several = keys_T > 1
    entropy = -torch.xlogy(p, p).sum(-1)[:, several] / keys_T[several].log()
    flat = ((p * (1 - p)).sum(-1) < SATURATED)[:, several]
    g = g[:, several]
    sums = [torch.ones_like(g), entropy, flat.double(), g, g * flat]
    return torch.stack([x.sum(1) for x in sums], 1)
