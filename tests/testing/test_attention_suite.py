"""The suite for users' attention: one without weights, which overrides forward, is sound; none are shown of it."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lightning_tfm.config import Model
from lightning_tfm.inference.inspect import weights
from lightning_tfm.model.attention_types import AttentionSizes, AttentionType
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.testing import AttentionSuite


class Mean(AttentionType):
    """Values by gates of the scores and the bias over what is seen, and the mean of the queries' input."""

    def forward(self, q_BHTK, k_BHSK, v_BHSV, mask, bias, x_BTD, drop=None) -> Tensor:
        gate_BHTS = torch.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHSK).sigmoid()
        gate_BHTS = gate_BHTS if bias is None else gate_BHTS * bias.exp()
        gate_BHTS = gate_BHTS if mask is None else gate_BHTS.masked_fill(~mask, 0.0)
        count = gate_BHTS.shape[3] if mask is None else mask.sum(-1, keepdim=True)
        return gate_BHTS @ v_BHSV / count + x_BTD.mean(-1)[:, None, :, None]


class TestMean(AttentionSuite):
    attention = f"{__name__}.Mean"

    def parameters(self, model: Model) -> int:
        return 0


def test_without_weights_none_are_shown():
    class Trained:
        class module:
            transformer = Transformer(Model(N=1, d_model=8, d_ff=8, h=2, d_k=4, d_v=4, attention=TestMean.attention), 9)

    assert weights(Trained, np.array([4, 5]), np.array([6])) == {"encoder": [], "decoder": [], "cross": []}
    sizes = AttentionSizes(8, 2, 4, 4, "encoder", 0)
    with pytest.raises(NotImplementedError, match="AttentionType has neither weights nor its own forward"):
        AttentionType(sizes).weights(torch.zeros(1), torch.zeros(1), None, None)
