"""Sizes, parameters and operations of what may stand in place of self-attention (model/layer_types.py). No torch."""

from lightning_tfm.config import INNER_WIDTH, Model
from lightning_tfm.errors import UserError

BUILTIN_LAYERS = ("attention", "restricted", *INNER_WIDTH)
"""layer types that ship with the package; any other name is an import path"""
GATES = {"lstm": 4, "gru": 3}


def reach(model: Model) -> int | None:
    """Keys that a query of self-attention is multiplied with at most; None: all, 0: there is no self-attention.

    Restricted self-attention works in blocks of r queries, each with the 2r - 1 keys that any of them sees.
    """
    return {"attention": None, "restricted": 2 * model.neighbourhood - 1}.get(model.layer, 0)


def layer_parameters(model: Model, causal: bool) -> int:
    """Trainable numbers of one layer's self-attention, or of what stands in its place, in the decoder (causal) or not.

    Raises UserError for a class of the user's own, which only the built model can count.
    """
    if model.layer not in BUILTIN_LAYERS:
        raise UserError(f"model.layer={model.layer}: only the built model knows its number of parameters")
    if model.layer not in INNER_WIDTH:
        return attention_parameters(model)
    return _parameters(model, inner_width(model, causal), causal, model.bias)


def layer_weights(model: Model, causal: bool) -> int:
    """Those of them that stand in matrices, each multiplied once for every position."""
    if model.layer not in INNER_WIDTH:
        return attention_weights(model)
    return _parameters(model, inner_width(model, causal), causal, False)


def inner_width(model: Model, causal: bool) -> int:
    """Channels inside of a recurrent or convolutional layer (config: layer_width).

    By parameters it is the width with the nearest count to self-attention's. Both directions of an encoder's recurrent
    layer count; each has half the width.
    """
    step = 2 if model.layer in GATES and not causal else 1
    if model.layer_width == "d_model":
        return max(step, model.d_model // step * step)
    wanted = attention_parameters(model)
    width = step
    while _parameters(model, width + step, causal, model.bias) <= wanted:
        width += step
    over, under = (_parameters(model, w, causal, model.bias) - wanted for w in (width + step, width))
    return width + step if over < -under else width


def attention_weights(model: Model) -> int:
    """Numbers in the four projections of an attention."""
    d, h, d_k, d_v = model.d_model, model.h, model.d_k, model.d_v
    return d * h * d_k + d * (model.kv_heads or h) * (d_k + d_v) + h * d_v * d


def attention_parameters(model: Model) -> int:
    h, G = model.h, model.kv_heads or model.h
    norms = (2 * model.d_k if model.qk_norm else 0) + {"cosine": h, "additive": h * model.d_k}.get(model.scores, 0)
    biases = h * model.d_k + G * (model.d_k + model.d_v) + model.d_model if model.attention_bias else 0
    return attention_weights(model) + norms + biases


def _parameters(model: Model, width: int, causal: bool, bias: bool) -> int:
    """Of a recurrent or convolutional layer of that inner width, W_O included; without `bias` its matrices alone."""
    d, k = model.d_model, model.kernel
    if model.layer in GATES:
        directions = 1 if causal else 2
        m = width // directions
        return directions * GATES[model.layer] * m * (d + m + 2 * bias) + width * d
    if model.layer == "separable":
        return d * (k + bias) + 2 * width * (d + bias) + width * d
    return 2 * width * (k * d + bias) + width * d
