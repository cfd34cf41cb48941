"""Logits against torch.nn.Transformer with the same weights, where its shapes allow it: d_k = d_v = d_model / h."""

import math
import warnings

import pytest
import torch
from torch import nn

from lightning_tfm.config import Model
from lightning_tfm.model.transformer import Transformer

B, S, T, V = 3, 13, 11, 37


def sinusoids(length: int, d_model: int) -> torch.Tensor:
    rows = [
        [
            math.sin(pos / 10000 ** (j / d_model)) if j % 2 == 0 else math.cos(pos / 10000 ** ((j - 1) / d_model))
            for j in range(d_model)
        ]
        for pos in range(length)
    ]
    return torch.tensor(rows)


def copy_attention(theirs: nn.MultiheadAttention, weights: list[nn.Linear]) -> None:
    """`weights` holds the projections of queries, keys, values, one below the other, and that of the output."""
    *inner, output = weights
    theirs.in_proj_weight.copy_(torch.cat([x.weight for x in inner]))
    theirs.out_proj.weight.copy_(output.weight)
    if output.bias is None:
        theirs.in_proj_bias.zero_()
        theirs.out_proj.bias.zero_()
    else:
        theirs.in_proj_bias.copy_(torch.cat([x.bias for x in inner]))
        theirs.out_proj.bias.copy_(output.bias)


@torch.no_grad()
def copy_weights(theirs: nn.Transformer, ours: Transformer) -> None:
    stacks = [(theirs.encoder.layers, ours.encoder), (theirs.decoder.layers, ours.decoder)]
    for there, here in (pair for stack in stacks for pair in zip(*stack, strict=True)):
        copy_attention(there.self_attn, [here.self_attention.W_QKV, here.self_attention.W_O])
        there.linear1.load_state_dict(here.feed_forward.W_1.state_dict())
        there.linear2.load_state_dict(here.feed_forward.W_2.state_dict())
        there.norm1.load_state_dict(here.residual_1.norm.state_dict())
        there.norm2.load_state_dict(here.residual_2.norm.state_dict())
    for there, here in zip(theirs.decoder.layers, ours.decoder, strict=True):
        cross = here.cross_attention
        copy_attention(there.multihead_attn, [cross.W_Q, cross.W_KV, cross.W_O])
        there.norm3.load_state_dict(here.residual_3.norm.state_dict())
    if ours.config.norm == "pre":
        theirs.encoder.norm.load_state_dict(ours.encoder_norm.state_dict())
        theirs.decoder.norm.load_state_dict(ours.decoder_norm.state_dict())
    else:  # torch ends each stack with a norm of its own, the paper does not
        theirs.encoder.norm = theirs.decoder.norm = None


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("bias", [False, True])
def test_logits_are_those_of_torch(norm, bias):
    torch.manual_seed(0)
    config = Model(
        N=3, d_model=24, d_ff=41, h=3, d_k=8, d_v=8, P_drop=0.0, norm=norm, norm_eps=1e-5, attention_bias=bias
    )
    ours = Transformer(config, V)
    with torch.no_grad():
        for p in ours.parameters():  # gains and biases too
            p.add_(0.1 * torch.randn_like(p))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it will not use nested tensors
        theirs = nn.Transformer(24, 3, 3, 3, 41, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    copy_weights(theirs, ours)

    source = torch.randint(4, V, (B, S))
    source[1, 9:] = source[2, 5:] = 0
    target = torch.randint(4, V, (B, T))
    padding = source == 0

    def embed(ids):
        return ours.embedding_WD[ids] * math.sqrt(24) + sinusoids(ids.shape[1], 24)

    hidden = theirs(
        embed(source),
        embed(target),
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    expected = hidden @ ours.embedding_WD.T
    assert expected.abs().max() > 1
    torch.testing.assert_close(ours(source, target), expected, atol=1e-5, rtol=1e-5)
