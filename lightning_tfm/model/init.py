"""Initial weights, keyed by (seed, parameter name, shape): two models share the draws of all they have in common.

The paper is silent on initialisation. `xavier` is U(-a, a) with a = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio
2010), `unit_scaling` the first code's a = sqrt(3 / fan_in). Embeddings and learned positions are N(0, 1/d_model), as in
the first code; norms start at gain 1, bias 0; biases at 0.

`xavier_residual` is `xavier` with the matrices that write into the residual stream, W_O and W_2, divided by the square
root of the number of sub-layers of their stack (2N in the encoder, 3N in the decoder), so that the sum of their outputs
does not grow with depth. The factor is GPT-2's (Radford et al. 2019, section 2.3: 1/sqrt(number of residual layers)).
Related: the depth-scaled initialisation of Zhang, Titov and Sennrich (2019), which divides all matrices of layer l by
sqrt(l), and Admin (Liu et al. 2020).
"""

import math
from collections import Counter
from typing import cast

import torch
from torch import Tensor, nn

from lightning_tfm.keys import generator
from lightning_tfm.model.attention import FusedLinear
from lightning_tfm.model.layer_types import LayerType
from lightning_tfm.model.norms import Norm


@torch.no_grad()
def initialise(model: nn.Module, init: str, seed: int) -> None:
    """Fill every parameter of `model` in place."""
    filled: set[str] = set()
    types = {inner for module in model.modules() if isinstance(module, LayerType) for inner in module.modules()}
    factor = _residual_factors(model) if init == "xavier_residual" else {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) or (module in types and isinstance(module, (nn.Conv1d, nn.RNNBase))):
            for part, rows in _parts(module).items():
                a = _half_width(rows, init, getattr(module, "groups", 1)) * (factor[name] if name in factor else 1.0)
                _uniform(rows, f"{name}.{part}", a, seed)
            for parameter in module.parameters():
                if parameter.dim() == 1:
                    parameter.zero_()
        elif not isinstance(module, (nn.LayerNorm, Norm)):  # whose constructors set them: gain 1, bias 0
            continue
        filled.update(f"{name}.{parameter}" for parameter, _ in module.named_parameters())
    for name, parameter in model.named_parameters():
        if name not in filled:
            draw = generator("init", seed, name, tuple(parameter.shape)).standard_normal(parameter.shape)
            std = getattr(parameter, "initial_std", parameter.shape[-1] ** -0.5)
            parameter.copy_(torch.from_numpy(draw * std))
    for module in types:
        getattr(module, "settle", lambda: None)()


def _parts(module: nn.Module) -> dict[str, Tensor]:
    """The matrices in a module's parameters, each drawn separately; an LSTM's or GRU's by gates."""
    if isinstance(module, FusedLinear):
        return dict(zip(module.parts, module.weight.split(list(module.parts.values())), strict=True))
    if not isinstance(module, nn.RNNBase):
        return {"weight": cast(Tensor, module.weight)}
    named = [(name, weight) for name, weight in module.named_parameters() if weight.dim() > 1]
    return {f"{name}.{i}": gate for name, w in named for i, gate in enumerate(w.split(module.hidden_size))}


WRITERS = (".W_O", ".W_2")
"""ends of the names of matrices whose product is added to the residual stream"""


def _residual_factors(model: nn.Module) -> dict[str, float]:
    """Name of each matrix that writes into a residual stream -> 1/sqrt(their number in the same stack)."""
    writers = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear) and name.endswith(WRITERS)
    ]
    stacks = Counter(name.partition(".")[0] for name in writers)
    return {name: stacks[name.partition(".")[0]] ** -0.5 for name in writers}


def _half_width(weight: Tensor, init: str, groups: int) -> float:
    receptive = weight[0, 0].numel()
    fan_out, fan_in = weight.shape[0] * receptive / groups, weight.shape[1] * receptive
    return math.sqrt(3 / fan_in) if init == "unit_scaling" else math.sqrt(6 / (fan_in + fan_out))


def _uniform(weight: Tensor, name: str, a: float, seed: int) -> None:
    """U(-a, a)."""
    draw = generator("init", seed, name, tuple(weight.shape)).random(weight.shape)
    weight.copy_(torch.from_numpy((2 * draw - 1) * a))
