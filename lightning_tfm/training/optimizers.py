"""Optimisers. One is one class or function here, one line in `registry.OPTIMIZERS`. The rate is set before every step.

Weight decay acts on parameters of two dimensions, the embeddings' included, never on biases and gains. Adam adds it to
the gradient; AdamW and Muon shrink the weights by it, times the rate (Loshchilov and Hutter 2019).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lightning_tfm.config import Training
from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import FusedLinear
from lightning_tfm.model.config import Model
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.registry import OPTIMIZERS
from lightning_tfm.user_code.modules import with_line

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
"""Muon's constants, those of its author and of torch.optim.Muon"""


def adam(model: nn.Module, t: Training) -> torch.optim.Optimizer:
    """The paper's (5.3)."""
    return torch.optim.Adam(_groups(list(model.parameters()), t), **_settings(t))


def adamw(model: nn.Module, t: Training) -> torch.optim.Optimizer:
    return torch.optim.AdamW(_groups(list(model.parameters()), t), weight_decay=0.0, **_settings(t))


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for the matrices of all linear maps, AdamW for everything else, embeddings included.

    A step of Muon is the momentum's nearest orthogonal matrix, times 0.2 sqrt(max(rows, columns)), so that rates suit
    both parts alike (Liu et al. 2025). It is torch.optim.Muon except for two things: matrices that share one parameter
    (Q, K and V) are orthogonalised separately, and in the weights' precision where torch uses bfloat16, which
    would round the last bits in which two layouts differ into large differences.
    """

    def __init__(self, model: nn.Module, t: Training):
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        self.parts = [list(m.parts.values()) if isinstance(m, FusedLinear) else [m.out_features] for m in linear]
        matrices = {id(module.weight) for module in linear}
        rest = [p for p in model.parameters() if id(p) not in matrices]
        self.adamw = torch.optim.AdamW(_groups(rest, t), weight_decay=0.0, **_settings(t))
        muon = {"params": [module.weight for module in linear], "lr": 0.0, "weight_decay": t.weight_decay}
        super().__init__([muon, *self.adamw.param_groups], {})
        self._share()

    def _share(self) -> None:
        self.adamw.param_groups, self.adamw.state = self.param_groups[1:], self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        group = self.param_groups[0]
        for weight, parts in zip(group["params"], self.parts, strict=True):
            if weight.grad is None:
                continue
            state = self.state[weight]
            momentum = state.setdefault("momentum", torch.zeros_like(weight))
            momentum.lerp_(weight.grad, 1 - MOMENTUM)
            update = weight.grad.lerp(momentum, MOMENTUM)
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            for rows, part in zip(weight.split(parts), update.split(parts), strict=True):
                rows.add_(orthogonal(part), alpha=-group["lr"] * 0.2 * max(part.shape) ** 0.5)
        self.adamw.step()
        return loss


def orthogonal(matrix: Tensor) -> Tensor:
    """Nearly the nearest orthogonal matrix: the Newton-Schulz iteration, singular values end between 0.7 and 1.2."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def make_optimizer(model: nn.Module, t: Training) -> torch.optim.Optimizer:
    """The optimiser of `training.optimizer`, at rate 0.

    Raises UserError unless it ships or is the import path of a user-defined subclass of torch.optim.Optimizer that
    is constructed as `Class(model, training)`.
    """
    cls = OPTIMIZERS.find(t.optimizer, __name__)
    if cls.__module__.startswith("torch."):
        raise UserError(
            f"training.optimizer='{t.optimizer}' takes parameters, but is given the model and the settings here: "
            "derive a class from it whose constructor takes (model, training)"
        )
    optimizer: torch.optim.Optimizer = cls(model, t)
    return optimizer


def check_optimizer(m: Model, t: Training) -> None:
    """Raise UserError where a user-defined optimizer cannot be made for such a model, or cannot take a step."""
    model = make_model(replace(m, N=min(m.N, 2)), 31)
    try:
        optimizer = make_optimizer(model, t)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    except UserError:
        raise
    except Exception as error:  # whatever a user-defined class may raise
        raise UserError(f"training.optimizer='{t.optimizer}': {with_line(error, t.optimizer)}") from error


def limited_norm(parameters: Iterable[nn.Parameter], limit: float, wanted: bool) -> Tensor | float:
    """Euclidean norm of all gradients, scaled down to `limit` where it is above 0. NaN if it is not wanted.

    Without a limit it reads every gradient once more, so it is wanted only at logged steps.
    """
    if limit:
        return nn.utils.clip_grad_norm_(parameters, limit)
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]) if wanted else math.nan


def _settings(t: Training) -> dict[str, Any]:
    return {"lr": 0.0, "betas": (t.beta1, t.beta2), "eps": t.adam_eps, "fused": True}


def _groups(parameters: list[nn.Parameter], t: Training) -> list[Any]:
    if not t.weight_decay:
        return parameters
    matrices = [p for p in parameters if p.dim() > 1]
    rest = [p for p in parameters if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": t.weight_decay}, {"params": rest, "weight_decay": 0.0}]
