"""Parameters only from the sizes, without torch."""

from lightning_tfm.model.config import Model
from lightning_tfm.registry import (
    ATTENTIONS,
    FEED_FORWARDS,
    LAYERS,
    NORMS,
    SCHEMES,
    Attention,
    attention_parameters,
    attention_weights,
    inner_width,
)


def count_parameters(model: Model, V: int) -> dict[str, int]:
    """Trainable numbers of `Transformer(model, V)` by part, and their "total". One stack counts as decoder.

    Raises UserError for a user-defined class, which only the built model can count.
    """
    d = model.d_model
    feed_forward, cross = FEED_FORWARDS.count(model.feed_forward, model), memory_parameters(model)
    norm = NORMS.count(model.norm_kind, model)
    final = 0 if model.norm == "post" else norm
    norms = 2 * norm if model.norm == "sandwich" else norm
    encoder = model.N * (layer_parameters(model, False) + feed_forward + 2 * norms) + final
    decoder = model.N * (layer_parameters(model, True) + cross + feed_forward + 3 * norms) + final
    positions = SCHEMES.count(model.positions, model)
    if model.one_stack:
        encoder, decoder, positions = 0, decoder - model.N * (cross + norms), positions // 2
    parts = {
        "embedding": {"all": 1, "decoder": 2, "none": 3}[model.tie] * V * d + model.target_spaces * d,
        "encoder": encoder,
        "decoder": decoder,
        "positions": positions,
    }
    return parts | {"total": sum(parts.values())}


def layer_parameters(model: Model, causal: bool) -> int:
    """Trainable numbers of one layer's self-attention, or of what replaces it, in the decoder (causal) or not.

    Raises UserError for a user-defined class, which only the built model can count.
    """
    if LAYERS.traits(model.layer).heads:
        return attention_parameters(model) + ATTENTIONS.count(attention_type(model, "self").name, model)
    return LAYERS.count(model.layer, model, inner_width(model, causal), causal, model.bias)


def memory_parameters(model: Model) -> int:
    """Trainable numbers of one layer's attention over the memory. Raises UserError as `layer_parameters`."""
    return attention_parameters(model) + ATTENTIONS.count(attention_type(model, "cross").name, model)


def attention_type(model: Model, place: str) -> Attention:
    """Traits of what mixes in `place`, self or cross."""
    return ATTENTIONS.traits(model.attention if model.attention_where in ("both", place) else "softmax")


def layer_weights(model: Model, causal: bool) -> int:
    """Those of them in matrices, each multiplied once for every position; of an unknown class those of attention."""
    layer = LAYERS.traits(model.layer)
    if layer.heads or layer.parameter_count is None:
        return attention_weights(model)
    return LAYERS.count(model.layer, model, inner_width(model, causal), causal, False)
