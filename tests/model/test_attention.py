"""The two ways through attention, products one after the other and torch's fused kernel, give the same."""

import math
from dataclasses import replace

import pytest
import torch

from lightning_tfm.config import Model
from lightning_tfm.model import attention
from lightning_tfm.model.attention import CrossAttention, attend

B, H, K, V = 4, 3, 5, 6


def inputs(T: int, S: int, masked: bool, biased: bool):
    torch.manual_seed(T * 100 + S)
    shapes = [(B, H, T, K), (B, H, S, K), (B, H, S, V)] + [(H, T, S)] * biased
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    allowed = None
    if masked:
        allowed = (torch.arange(S) < torch.tensor([S, S - 1, 1 + S // 2, 1])[:, None])[:, None, None, :]
    return leaves, allowed


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("T", "S", "causal"), [(2, 2, True), (7, 9, False), (15, 15, True), (16, 16, True), (64, 64, True)]
)
def test_short_sentences_give_what_the_fused_kernel_gives(T, S, causal, masked, biased, monkeypatch):
    leaves, allowed = inputs(T, S, masked, biased)

    def run():
        q, k, v, *bias = leaves
        found = attend(q, k, v, allowed, causal, bias[0] if bias else None)
        return found, torch.autograd.grad(found.tanh().sum(), leaves)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", None)  # would fail if it were called
    found, gradients = run()
    monkeypatch.undo()
    monkeypatch.setattr(attention, "SHORT", 0)
    expected, wanted = run()
    torch.testing.assert_close(found, expected, atol=1e-14, rtol=1e-12)
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-14, rtol=1e-12)


def test_attention_is_equation_1():
    (q, k, v), allowed = inputs(6, 11, True, False)
    score = (q @ k.mT / math.sqrt(K)).masked_fill(~allowed, -math.inf)
    torch.testing.assert_close(attend(q, k, v, allowed, False, None), score.softmax(-1) @ v, atol=1e-14, rtol=1e-12)


def test_a_mean_over_the_memory_is_attention_to_its_mean_alone():
    c = Model(N=1, d_model=12, h=3, d_k=4, d_v=4, attention="mean", attention_where="cross")
    layer, one = CrossAttention(c).double(), CrossAttention(replace(c, attention="softmax")).double()
    one.load_state_dict(layer.state_dict())
    x_BTD, memory_BSD = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    lengths = torch.tensor([7, 4])
    allowed = (torch.arange(7) < lengths[:, None])[:, None, None]
    vector_B1D = ((memory_BSD * allowed[:, 0, 0, :, None]).sum(1) / lengths[:, None])[:, None]
    found = layer(x_BTD, *layer.keys_values(memory_BSD), allowed)
    torch.testing.assert_close(found, one(x_BTD, *one.keys_values(vector_B1D), None), atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize(("T", "S", "dtype"), [(1, 9, torch.float32), (9, 65, torch.float32), (9, 9, torch.bfloat16)])
def test_a_decoder_s_step_long_sentences_and_bfloat16_take_the_fused_kernel(T, S, dtype, monkeypatch):
    asked = []
    fused = attention.scaled_dot_product_attention
    monkeypatch.setattr(
        attention, "scaled_dot_product_attention", lambda *args, **more: asked.append(1) or fused(*args, **more)
    )
    (q, k, v), _ = inputs(T, S, False, False)
    attend(q.to(dtype), k.to(dtype), v.to(dtype), None, False, None)
    assert asked
