"""Initial weights, keyed by (seed, parameter name, shape): two models share the draws of all they have in common.

The paper is silent on initialisation. `xavier` is U(-a, a) with a = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio
2010), `unit_scaling` the first code's a = sqrt(3 / fan_in). Embeddings and learned positions are N(0, 1/d_model), as in
the first code; norms start at gain 1, bias 0; biases at 0. Of user-defined classes: model/user_init.py.

`xavier_residual` is `xavier` with the matrices that write into the residual stream, W_O and W_2, divided by the square
root of the number of sub-layers of their stack (2N in the encoder, 3N in the decoder), so that the sum of their outputs
does not grow with depth. The factor is GPT-2's (Radford et al. 2019, section 2.3: 1/sqrt(number of residual layers)).
Related: the depth-scaled initialisation of Zhang, Titov and Sennrich (2019), which divides all matrices of layer l by
sqrt(l), and Admin (Liu et al. 2020).
"""

import math
from collections import Counter
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from lightning_tfm.model.attention import FusedLinear
from lightning_tfm.model.layer_types import LayerType
from lightning_tfm.model.norms import Norm
from lightning_tfm.model.user_init import SET, Origin, constructed_by_path
from lightning_tfm.rng import generator

NORMS = (nn.LayerNorm, Norm)
"""whose constructors set their parameters"""


@torch.no_grad()
def initialise(model: nn.Module, init: str, seed: int) -> dict[str, Origin]:
    """Fill every parameter of `model` in place; name of each in a user-defined class -> how it starts."""
    origins = constructed_by_path(model, seed, NORMS)
    done = {id(model.get_parameter(name)) for name, origin in origins.items() if origin.how == SET}
    factor = _residual_factors(model) if init == "xavier_residual" else {}
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, _ConvNd, nn.RNNBase)):
            for own, parameter in module.named_parameters(recurse=False):
                if id(parameter) in done or own not in _of_torch(module):
                    continue
                if parameter.dim() == 1:
                    parameter.zero_()
                for part, rows in _parts(module, own, parameter).items() if parameter.dim() > 1 else ():
                    a = _half_width(rows, init, getattr(module, "groups", 1)) * factor.get(name, 1.0)
                    _uniform(rows, f"{name}.{part}", a, seed)
                done.add(id(parameter))
        elif isinstance(module, NORMS):
            done.update(id(p) for own, p in module.named_parameters() if f"{name}.{own}" not in origins)
    for name, parameter in model.named_parameters():
        if id(parameter) not in done:
            draw = generator("init", seed, name, tuple(parameter.shape)).standard_normal(parameter.shape)
            std = getattr(parameter, "initial_std", (1, *parameter.shape)[-1] ** -0.5)
            parameter.copy_(torch.as_tensor(draw * std))
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None and id(module.weight) not in done:
            module.weight[module.padding_idx] = 0.0
        if isinstance(module, LayerType):
            module.settle()
    return origins


def _of_torch(module: nn.Module) -> Collection[str]:
    """Names of the parameters that torch gives such a module; a subclass may have others."""
    return module._flat_weights_names if isinstance(module, nn.RNNBase) else ("weight", "bias")


def _parts(module: nn.Module, name: str, weight: Tensor) -> dict[str, Tensor]:
    """The matrices in one of a module's weights, each drawn separately; an LSTM's or GRU's by gates."""
    if isinstance(module, FusedLinear):
        return dict(zip(module.parts, weight.split(list(module.parts.values())), strict=True))
    if isinstance(module, nn.RNNBase):
        return {f"{name}.{i}": gate for i, gate in enumerate(weight.split(module.hidden_size))}
    return {name: weight}


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
