"""Initial weights, keyed by (seed, parameter name, shape): two models share the draws of whatever they have in common.

The paper is silent on initialisation. `xavier` is U(-a, a) with a = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio
2010), `unit_scaling` the first code's a = sqrt(3 / fan_in). Embeddings and learned positions are N(0, 1/d_model), as in
the first code; norms start at gain 1, bias 0; biases at 0.
"""

import math

import torch
from torch import Tensor, nn

from lightning_tfm.keys import generator
from lightning_tfm.model.attention import FusedLinear


@torch.no_grad()
def initialise(model: nn.Module, init: str, seed: int) -> None:
    """Fill every parameter of `model` in place."""
    filled: set[str] = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            parts = module.parts if isinstance(module, FusedLinear) else {"weight": module.out_features}
            for part, rows in zip(parts, module.weight.split(list(parts.values())), strict=True):
                _uniform(rows, f"{name}.{part}", init, seed)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.LayerNorm):
            module.weight.fill_(1.0)
            module.bias.zero_()
        else:
            continue
        filled.update(f"{name}.{parameter}" for parameter, _ in module.named_parameters())
    for name, parameter in model.named_parameters():
        if name not in filled:
            draw = generator("init", seed, name, tuple(parameter.shape)).standard_normal(parameter.shape)
            parameter.copy_(torch.from_numpy(draw * parameter.shape[-1] ** -0.5))


def _uniform(weight: Tensor, name: str, init: str, seed: int) -> None:
    fan_out, fan_in = weight.shape
    a = math.sqrt(6 / (fan_in + fan_out)) if init == "xavier" else math.sqrt(3 / fan_in)
    draw = generator("init", seed, name, tuple(weight.shape)).random(weight.shape)
    weight.copy_(torch.from_numpy((2 * draw - 1) * a))
