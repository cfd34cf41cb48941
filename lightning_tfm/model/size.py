"""Parameters and floating-point operations from the sizes alone, without torch."""

from typing import Any, NamedTuple

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.layer_sizes import (
    attention_parameters,
    attention_weights,
    layer_parameters,
    layer_weights,
    reach,
)

BUILTIN_SCHEMES = tuple("sinusoidal learned learned_scaled none rotary shaw shaw_values t5 alibi kerple fire".split())
"""positional schemes that ship with the package; any other name is an import path"""
T5_BUCKETS, FIRE_WIDTH = 32, 32
"""rows of T5's table, and inner width of FIRE's network"""
BUILTIN_FEED_FORWARDS = ("relu", "gelu", "relu2", "swiglu", "geglu")
"""feed-forwards that ship with the package; any other name is an import path"""
BUILTIN_NORMS = ("layer", "rms")
"""norms that ship with the package; any other name is an import path"""
GATED = ("swiglu", "geglu")
"""those with three matrices"""


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


def count_parameters(model: Model, V: int) -> dict[str, int]:
    """Trainable numbers of `Transformer(model, V)` by part, and their "total".

    Raises UserError for a class of the user's own, which only the built model can count.
    """
    d = model.d_model
    feed_forward, cross = _feed_forward_parameters(model), attention_parameters(model)
    if model.norm_kind not in BUILTIN_NORMS:
        raise UserError(f"model.norm_kind={model.norm_kind}: only the built model knows its number of parameters")
    norm = 2 * d if model.norm_kind == "layer" and model.bias else d
    final = 0 if model.norm == "post" else norm
    norms = 2 * norm if model.norm == "sandwich" else norm
    parts = {
        "embedding": {"all": 1, "decoder": 2, "none": 3}[model.tie] * V * d + model.target_spaces * d,
        "encoder": model.N * (layer_parameters(model, False) + feed_forward + 2 * norms) + final,
        "decoder": model.N * (layer_parameters(model, True) + cross + feed_forward + 3 * norms) + final,
        "positions": _position_parameters(model),
    }
    return parts | {"total": sum(parts.values())}


def gated_width(d_model: int, d_ff: int, bias: bool = True) -> int:
    """Inner width of a gated feed-forward with as many parameters as an ungated one of width d_ff.

    Both are counted with biases where they have them; the width with the nearest count, about 2/3 d_ff (Shazeer 2020).
    """
    return max(1, round(d_ff * (2 * d_model + bias) / (3 * d_model + 2 * bias)))


def _feed_forward_parameters(model: Model) -> int:
    d, matrices, width = model.d_model, 1, model.d_ff
    if model.feed_forward not in BUILTIN_FEED_FORWARDS:
        raise UserError(f"model.feed_forward={model.feed_forward}: its parameters are known only once it is built")
    if model.feed_forward in GATED:
        matrices, width = 2, gated_width(d, width, model.bias)
    return matrices * (d * width + width * model.bias) + width * d + d * model.bias


def _position_parameters(model: Model) -> int:
    if model.positions not in BUILTIN_SCHEMES:
        raise UserError(f"model.positions={model.positions}: its parameters are known only once it is built")
    table = 2 * model.clip + 1
    stack = {
        "learned": model.max_positions * model.d_model,
        "learned_scaled": model.max_positions * model.d_model,
        "shaw": model.N * table * model.d_k,
        "shaw_values": model.N * table * (model.d_k + model.d_v),
        "t5": T5_BUCKETS * model.h,
        "kerple": model.N * 2 * model.h,
        "fire": FIRE_WIDTH * (2 + model.h) + model.h + 2,
    }
    return 2 * stack.get(model.positions, 0)


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
