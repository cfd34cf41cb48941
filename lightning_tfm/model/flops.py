"""Floating-point operations only from the sizes, without torch."""

from typing import Any, NamedTuple

from lightning_tfm.model.config import Model
from lightning_tfm.model.size import attention_type, layer_weights
from lightning_tfm.registry import FEED_FORWARDS, LAYERS, SCHEMES, attention_weights


class AttentionPairs(NamedTuple):
    """Sums over the sentences of a step, S and T being a sentence's source and target length in pieces; one stack has
    a target of S + T and no source."""

    source: int
    """Σ S², or as many as the layer compares (registry.Layer.pairs)"""
    target: int
    """Σ T², likewise"""
    cross: int
    """Σ S·T"""
    grids: int = 0
    """Σ S² + T² over batches"""

    @classmethod
    def of(cls, model: Model, source: Any, target: Any, batches: float = 1) -> "AttentionPairs":
        """Of sentences with these lengths, arrays of numpy, in so many batches."""
        pairs = LAYERS.traits(model.layer).pairs
        if model.one_stack:
            source, target = 0 * source, source + target
        near, far = (int(pairs(model, n).sum()) for n in (source, target))
        grids = sum((n * n).sum() for n in (source, target)) / max(len(source), 1) * batches
        return cls(near, far, int(source @ target), round(grids))


def training_flops(
    model: Model,
    V: int,
    source_tokens: int,
    target_tokens: int,
    pairs: AttentionPairs,
    weights: tuple[int, ...] | None = None,
) -> int:
    """Multiplications and additions of matrix products in forward and backward passes over true (unpadded) tokens.

    6 per weight and token (2 forward, 4 backward): encoder weights act on source tokens, decoder weights on target
    tokens, but keys and values of the cross-attention on source tokens, and those of one stack on both; plus the scores
    and sums of attention, what positional schemes multiply within it, and the logits. Softmax, norms, biases, gates and
    dropout are left out, and a GPU's look-ups by products with zeros and ones. `weights` are the built model's
    (`Transformer.weights`); without them user-defined classes that do not declare theirs are taken for the
    paper's.
    """
    d, h, d_k, d_v = model.d_model, model.h, model.d_k, model.d_v
    keys_values = d * (model.kv_heads or h) * (d_k + d_v)
    queries_output = attention_weights(model) - keys_values
    if weights is None:
        multiplied = FEED_FORWARDS.traits(model.feed_forward).weights
        feed_forward = 2 * d * model.d_ff if multiplied is None else multiplied(model)
        weights = feed_forward, layer_weights(model, False), layer_weights(model, True), 0, 0
    feed_forward, encoder, decoder, *mixes = weights
    over_memory = target_tokens
    if model.one_stack:
        encoder, over_memory, keys_values, queries_output = decoder, 0, 0, 0
    source = source_tokens * model.N * (encoder + feed_forward + keys_values)
    target = target_tokens * model.N * (decoder + feed_forward + queries_output)
    per_pair = LAYERS.traits(model.layer).flops_per_pair(model)
    forward = model.N * (per_pair * (pairs.source + pairs.target) + 2 * h * (d_k + d_v) * pairs.cross)
    for place, tokens, compared, built in (
        ("self", source_tokens + target_tokens, pairs.source + pairs.target, mixes[0]),
        ("cross", over_memory, pairs.cross, mixes[1]),
    ):
        mixing = attention_type(model, place)
        per_query = mixing.flops_per_query(model) or 2 * built
        forward += model.N * (per_query * tokens + mixing.flops_per_pair(model) * compared)
    of_query, of_pair, of_cell = SCHEMES.traits(model.positions).flops(model)
    compared = (pairs.source + pairs.target) * of_pair + pairs.grids * of_cell
    positions = model.N * ((source_tokens + target_tokens) * of_query + compared)
    return 6 * (source + target + target_tokens * d * V) + 3 * forward + positions
