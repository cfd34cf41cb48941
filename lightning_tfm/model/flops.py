"""Floating-point operations from the sizes alone, without torch."""

from typing import Any, NamedTuple

from lightning_tfm.config import Model
from lightning_tfm.model.layer_sizes import attention_weights, layer_weights, reach
from lightning_tfm.model.size import GATED, gated_width


class AttentionPairs(NamedTuple):
    """Sums over the sentences of a step, S and T being a sentence's source and target length in pieces."""

    source: int
    """Σ S², or as many keys as a query is multiplied with (`reach`)"""
    target: int
    """Σ T², likewise"""
    cross: int
    """Σ S·T"""

    @classmethod
    def of(cls, model: Model, source: Any, target: Any) -> "AttentionPairs":
        """Of sentences with these lengths, arrays of numpy."""
        most = reach(model)
        near, far = (int(n @ (n if most is None else n.clip(max=most))) for n in (source, target))
        return cls(near, far, int(source @ target))


class Weights(NamedTuple):
    """Numbers in the matrices of one layer's parts, each multiplied once for a position (`feed_forward.weights_of`)."""

    feed_forward: int
    encoder: int
    """what stands in place of the encoder's self-attention"""
    decoder: int


def training_flops(
    model: Model, V: int, source_tokens: int, target_tokens: int, pairs: AttentionPairs, weights: Weights | None = None
) -> int:
    """Multiplications and additions of matrix products in forward and backward passes over true (unpadded) tokens.

    6 per weight and token (2 forward, 4 backward): encoder weights act on source tokens, decoder weights on target
    tokens, but keys and values of the cross-attention on source tokens; plus the scores and sums of attention and the
    logits. Softmax, norms, biases, gates and dropout are left out. `weights` are the built model's; without them
    classes of the user's own are taken for the paper's.
    """
    d, h, d_k, d_v = model.d_model, model.h, model.d_k, model.d_v
    keys_values = d * (model.kv_heads or h) * (d_k + d_v)
    queries_output = attention_weights(model) - keys_values
    if weights is None:
        width = gated_width(d, model.d_ff, model.bias)
        feed_forward = 3 * d * width if model.feed_forward in GATED else 2 * d * model.d_ff
        weights = Weights(feed_forward, layer_weights(model, False), layer_weights(model, True))
    source = source_tokens * model.N * (weights.encoder + weights.feed_forward + keys_values)
    target = target_tokens * model.N * (weights.decoder + weights.feed_forward + queries_output)
    attention = model.N * h * (d_k + d_v) * sum(pairs)
    return 6 * (source + target + attention + target_tokens * d * V)
