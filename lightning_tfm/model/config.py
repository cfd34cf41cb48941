"""What decides the network, in the symbols of the paper: the section `model` of an experiment (config.py).

Defaults are the paper's base model (Vaswani et al. 2017).
"""

from dataclasses import dataclass, field
from typing import Literal

from lightning_tfm.schema import Schema

ABOVE_0 = {"range": ("must be above 0", lambda value: value > 0)}
"""metadata of a field that says its range, as those below: what to tell, and what holds (config_validation.py)"""
AT_LEAST_1 = {"range": ("must be at least 1", lambda value: value >= 1)}
BELOW_1 = {"range": ("must be in [0, 1)", lambda value: 0 <= value < 1)}
SHARE = {"range": ("must be in (0, 1]", lambda value: 0 < value <= 1)}
NOT_NEGATIVE = {"range": ("must not be negative", lambda value: value >= 0)}


@dataclass(frozen=True)
class Model(Schema):
    """The network (section 3 of the paper)."""

    N: int = field(default=6, metadata=AT_LEAST_1)
    """layers in the encoder and in the decoder, or in the single decoder where `stack` is decoder-only"""
    d_model: int = field(default=512, metadata=AT_LEAST_1)
    """width of embeddings and sub-layer outputs"""
    d_ff: int = field(default=2048, metadata=AT_LEAST_1)
    """inner width of the feed-forward sub-layers; gated ones take the one with as many parameters, about 2/3 of it"""
    h: int = field(default=8, metadata=ABOVE_0)
    """attention heads"""
    d_k: int = field(default=64, metadata=AT_LEAST_1)
    """width of queries and keys, per head"""
    d_v: int = field(default=64, metadata=AT_LEAST_1)
    """width of values, per head"""
    P_drop: float = field(default=0.1, metadata=BELOW_1)
    """dropout on every sub-layer output and on the sums of embedding and position (5.4)"""
    positions: str = "sinusoidal"
    """{parts}, or the import path of your own class"""
    max_positions: int = field(default=512, metadata=ABOVE_0)
    """longest sequence, in tokens, for which a learned scheme has vectors"""
    norm: Literal["post", "pre", "sandwich"] = "post"
    """norm after the residual sum (the paper), before the sub-layer, or before and after it, within the residual"""
    norm_eps: float = field(default=1e-6, metadata=ABOVE_0)
    """epsilon of the norms; not in the paper, the authors' tensor2tensor code has 1e-6"""
    attention_bias: bool = False
    """biases in the four attention projections (tensor2tensor; the paper's formulas have none)"""
    sinusoid_layout: Literal["interleaved", "concatenated"] = "interleaved"
    """sines and cosines alternating (3.5), or in two halves with slightly different wavelengths (tensor2tensor)"""
    init: Literal["xavier", "xavier_residual", "unit_scaling"] = "xavier"
    """xavier: uniform by fan-in and fan-out; xavier_residual: the same, W_O and W_2 divided by the square root of the
    number of sub-layers in their stack; unit_scaling: by fan-in only (tensor2tensor); the paper does not say"""
    target_spaces: int = field(default=0, metadata=NOT_NEGATIVE)
    """rows of the extra target-space embedding added to the encoder input (32 in tensor2tensor; the paper has none)"""
    feed_forward: str = "relu"
    """{parts}, or the import path of your own class"""
    norm_kind: str = "layer"
    """{parts}, or the import path of your own class"""
    bias: bool = True
    """biases in feed-forwards and layer norms (the paper); attention's are attention_bias"""
    kv_heads: int = 0
    """heads of keys and values, each shared by h / kv_heads queries (1: MQA, more: GQA); 0: as many as h (the paper)"""
    qk_norm: bool = False
    """RMS norm of every head's queries and keys, before a rotation"""
    tie: Literal["all", "decoder", "none"] = "all"
    """which embeddings share a matrix: source, target and output (3.4); target and output; none"""
    layer: str = "attention"
    """the layer used for self-attention: {parts}, or the import path of your own class; cross-attention is unchanged"""
    kernel: int = field(default=3, metadata=ABOVE_0)
    """width of a convolution, in positions"""
    neighbourhood: int = field(default=8, metadata=ABOVE_0)
    """positions that restricted self-attention reaches (r): around its own (encoder), the last ones (decoder)"""
    layer_width: Literal["d_model", "parameters"] = "d_model"
    """inner width of recurrent and convolutional layers: d_model, or one with as many parameters as self-attention"""
    scores: Literal["scaled", "unscaled", "additive", "cosine"] = "scaled"
    """how a query and a key are compared: q·k / sqrt(d_k) (eq. 1), q·k, u·tanh(q + k) with a learned u for each head,
    or their cosine times a learned factor for each head"""
    P_attention: float = field(default=0.0, metadata=BELOW_1)
    """dropout on the weights of all attention; the paper has none"""
    P_ff: float = field(default=0.0, metadata=BELOW_1)
    """dropout within feed-forwards, before W_2; the paper has none"""
    clip: int = field(default=16, metadata=ABOVE_0)
    """farthest relative distance with its own vector (positions=shaw, shaw_values)"""
    attention: str = "softmax"
    """how queries, keys and values become one mix: {parts}, or the import path of your own class"""
    attention_where: Literal["both", "self", "cross"] = "both"
    """where `attention` acts: in self-attention, in cross-attention, or in both; elsewhere it is softmax"""
    stack: Literal["encoder_decoder", "prefix", "causal"] = "encoder_decoder"
    """encoder-decoder (the paper), or decoder-only over the concatenated source and target: prefix LM, which attends to
    the whole source, or causal LM, which attends only to what came before"""

    @property
    def one_stack(self) -> bool:
        return self.stack != "encoder_decoder"

    @property
    def drops_inside(self) -> bool:
        """Whether anything is dropped within sub-layers."""
        return self.P_attention > 0 or self.P_ff > 0
