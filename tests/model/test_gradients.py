"""Gradients against finite differences in float64: attention, positional schemes, the whole model with its loss."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from lightning_tfm.config import Model
from lightning_tfm.model.attention import CrossAttention, SelfAttention, attend
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.positions import PositionSizes, find_scheme
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import SCHEMES
from lightning_tfm.training.loss import smoothed_nll

B, H, T, S, K, DV = 2, 3, 5, 7, 4, 2


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_attention(causal, masked, biased):
    allowed = torch.ones(B, 1, 1, S, dtype=torch.bool)
    allowed[1, ..., 5:] = False
    bias = normal(B, H, S, S) if biased else None

    def attention(q, k, v, *more):
        return attend(q, k, v, allowed if masked else None, causal, more[0] if more else None)

    inputs = (normal(B, H, S, K), normal(B, H, S, K), normal(B, H, S, DV))
    assert gradcheck(attention, inputs if bias is None else (*inputs, bias))


SIZES = Model(d_model=11, h=H, d_k=K, d_v=DV, attention_bias=True)


@pytest.mark.parametrize("positions", [None, "rotary", "shaw", "shaw_values", "t5", "alibi", "kerple", "fire"])
def test_multi_head_self_attention(positions):
    scheme = find_scheme(positions)(PositionSizes(11, H, K, 13, "interleaved", d_v=DV)) if positions else None
    layer = SelfAttention(SIZES, scheme).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *weights):
        return functional_call(layer, dict(zip(names, weights, strict=True)), (x, None, True))

    assert gradcheck(run, (normal(B, T, 11), *layer.parameters()))


def test_multi_head_cross_attention():
    layer = CrossAttention(SIZES).double()
    allowed = torch.ones(B, 1, 1, S, dtype=torch.bool)
    allowed[0, ..., 4:] = False

    def run(x, memory):
        return layer(x, *layer.keys_values(memory), allowed)

    assert gradcheck(run, (normal(B, T, 11), normal(B, S, 11)))


@pytest.mark.parametrize("positions", sorted(SCHEMES))
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_whole_model_with_loss_and_dropout(positions, norm):
    config = Model(
        N=1, d_model=4, d_ff=5, h=2, d_k=2, d_v=3, P_drop=0.3, positions=positions, max_positions=7, norm=norm,
        norm_eps=1e-3, attention_bias=True, target_spaces=2,
    )  # fmt: skip
    model = Transformer(config, 7).double()
    source, target = torch.tensor([[4, 5, 6, 3], [5, 3, 0, 0]]), torch.tensor([[2, 6, 4], [2, 5, 5]])
    wanted = torch.tensor([6, 4, 3, 5, 5, 3])
    keep = torch.rand(8, 2, 4, 4, dtype=torch.float64).gt(0.3) / 0.7
    masks = list(zip(model.dropouts(), [*keep[:3], *keep[:4, :, :3]], strict=True))
    names = [name for name, _ in model.named_parameters()]

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self):
            with masks_set(masks):
                hidden = self.model.hidden(source, target, (source != 0)[:, None, None, :])
            return smoothed_nll(hidden.flatten(0, 1), self.model.embedding_WD, wanted, 0.1, "vocabulary")[0]

    loss = Loss()

    def run(*weights):
        return functional_call(loss, {f"model.{n}": w for n, w in zip(names, weights, strict=True)}, ())

    weights = tuple((p + 0.2 * torch.randn_like(p)).detach().requires_grad_() for p in model.parameters())
    assert gradcheck(run, weights, fast_mode=True)
