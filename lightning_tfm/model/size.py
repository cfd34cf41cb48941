"""Parameters from the sizes alone, without torch."""

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.layer_sizes import attention_parameters, layer_parameters

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


def feed_forward_width(model: Model) -> int:
    """Inner width of the feed-forwards that ship."""
    return gated_width(model.d_model, model.d_ff, model.bias) if model.feed_forward in GATED else model.d_ff


def _feed_forward_parameters(model: Model) -> int:
    d, matrices, width = model.d_model, 1, feed_forward_width(model)
    if model.feed_forward not in BUILTIN_FEED_FORWARDS:
        raise UserError(f"model.feed_forward={model.feed_forward}: its parameters are known only once it is built")
    if model.feed_forward in GATED:
        matrices = 2
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
