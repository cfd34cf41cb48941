"""Measures Table 1 of the paper: operations, seconds, chains of dependent operators, and layers until all see all."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from lightning_tfm.config import Model
from lightning_tfm.measure.layer_table import Exponent, LayerMeasures, LayerTable
from lightning_tfm.model.layer_types import make_layer
from lightning_tfm.registry import LAYERS

NARROW = Model(d_model=16, h=2, d_k=8, d_v=8)
"""sizes at which graphs are traced and dependencies followed: these do not depend on the width"""
SHAPES = (16, 64, 256)
"""lengths for both"""
MOST_LAYERS = 512
LENGTHS_COUNTED, WIDTHS_COUNTED = (128, 256, 512, 1024), (64, 128, 256, 512)
REACHES = {"neighbourhood": ("r", (8, 16, 32)), "kernel": ("k", (3, 5, 9))}
"""fields of a third size in the number of operations, its name and values"""
FREE = set(
    "view _unsafe_view reshape t transpose permute unsqueeze squeeze expand slice select split split_with_sizes chunk "
    "unbind clone detach alias as_strided unfold cat stack _to_copy copy_ zeros new_zeros ones full empty arange eye "
    "constant_pad_nd flip gather index repeat lift_fresh_copy getitem fill".split()
)
"""operators that only move numbers, or make ones that depend on no input"""


def at_width(model: Model, d: int) -> Model:
    """`model` at width d: as many heads, each of d / h."""
    return replace(model, d_model=d, d_k=d // model.h, d_v=d // model.h)


def measure(models: Sequence[Model], longest: int, machine: str) -> LayerTable:
    """`models` have one layer type each and equal sizes otherwise; texts have 64 pieces to `longest`, a power of 2."""
    began = time.perf_counter()
    rows = [measure_layer(model, longest) for model in models]
    m = models[0]
    return LayerTable(m.d_model, m.h, m.kernel, m.neighbourhood, machine, time.perf_counter() - began, rows)


def measure_layer(model: Model, longest: int) -> LayerMeasures:
    lengths = [64 << i for i in range(20) if 64 << i <= longest]
    layer = make_layer(model, None, False, 0)
    between, whole = exponents(model)
    narrow = replace(model, d_model=NARROW.d_model, h=NARROW.h, d_k=NARROW.d_k, d_v=NARROW.d_v)
    return LayerMeasures(
        layer=model.layer,
        parameters=sum(p.numel() for p in layer.parameters()),
        between=between,
        whole=whole,
        flops={n: operations(model, n)[1] for n in lengths},
        seconds={n: seconds(model, n) for n in lengths},
        chain={n: longest_chain(narrow, n) for n in SHAPES},
        layers={n: layers_until_all_see_all(narrow, n) for n in SHAPES},
    )


# --- operations ---


def exponents(model: Model) -> tuple[dict[str, Exponent], dict[str, Exponent]]:
    """Fitted over lengths, widths and, where the type has one, kernels or neighbourhoods."""
    field = next((field for field in LAYERS.traits(model.layer).reads if field in REACHES), "")
    name, values = REACHES.get(field, ("", (0,)))
    sizes, counts = [], []
    for n, d, reach in product(LENGTHS_COUNTED, WIDTHS_COUNTED, values):
        changes: dict[str, Any] = {field: reach} if field else {}
        changed = replace(at_width(model, d), **changes)
        sizes.append([n, d, *([reach] if name else [])])
        counts.append(operations(changed, n))
    named = ["n", "d", *([name] if name else [])]
    between, whole = (fit_exponents(sizes, [count[i] for count in counts]) for i in (0, 1))
    return dict(zip(named, between, strict=True)), dict(zip(named, whole, strict=True))


def operations(model: Model, n: int) -> tuple[int, int]:
    """Multiplications and additions of matrix products for one text of n positions, by torch's counter: of what relates
    positions, and of the whole layer. The difference is what `nn.Linear` does to every position by itself.

    A recurrent layer is counted at 16 positions and scaled: each of its steps costs the same.
    """
    steps = min(n, 16) if LAYERS.traits(model.layer).recurrent else n
    whole, single = (count * n // steps for count in _operations(model, steps))
    return whole - single, whole


@cache
def _operations(model: Model, n: int) -> tuple[int, int]:
    """Of the whole layer, and of its `nn.Linear`s."""
    with torch.device("meta"):
        layer = make_layer(model, None, False, 0)
        x_BTD = torch.empty(1, n, model.d_model)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        layer(x_BTD, None, False)
    linear = sum(2 * n * m.weight.numel() for m in layer.modules() if isinstance(m, nn.Linear))
    return counter.get_total_flops(), linear


def fit_exponents(sizes: Sequence[Sequence[int]], counts: Sequence[int]) -> list[Exponent]:
    """Least squares of log count on log sizes, with twice the standard error: the misfit (layer_table.Exponent)."""
    X = np.array([[1.0, *map(log, row)] for row in sizes])
    y = np.log(np.array(counts, dtype=float))
    solution, *_ = np.linalg.lstsq(X, y, rcond=None)
    left = y - X @ solution
    spread = np.sqrt(np.diag(np.linalg.inv(X.T @ X)) * (left @ left) / max(len(y) - X.shape[1], 1))
    return [
        Exponent(float(b), float(b - 2 * e), float(b + 2 * e)) for b, e in zip(solution[1:], spread[1:], strict=True)
    ]


# --- seconds ---


@torch.no_grad()
def seconds(model: Model, n: int) -> float:
    """One pass over one text of n positions: the least of three to nine, for what disturbs one only adds."""
    layer = make_layer(model, None, False, 0)
    for p in layer.parameters():
        nn.init.normal_(p, std=model.d_model**-0.5)
    x_BTD = torch.randn(1, n, model.d_model)
    layer(x_BTD, None, False)
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.3 and len(times) < 9):
        began = time.perf_counter()
        layer(x_BTD, None, False)
        times.append(time.perf_counter() - began)
    return min(times)


# --- dependencies ---


def random_layer(model: Model, number: int) -> nn.Module:
    """A layer in float64, for which torch unrolls its recurrent cells, with weights at random."""
    layer = make_layer(model, None, False, number).double().requires_grad_(False)
    draw = torch.Generator().manual_seed(number)
    for p in layer.parameters():
        p.normal_(std=p.shape[-1] ** -0.5, generator=draw)
    return layer


class Chain(TorchDispatchMode):
    """How many operators wait for each other. Tensors are kept, so that none takes the identity of another."""

    def __init__(self) -> None:
        super().__init__()
        self.depth: dict[int, int] = {}
        self.kept: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before = [self.depth.get(id(x), 0) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        depth = max(before, default=0) + (func.overloadpacket.__name__ not in FREE)
        for made in tree_leaves(result):
            if isinstance(made, Tensor):
                self.depth[id(made)] = depth
                self.kept.append(made)
        return result


@torch.no_grad()
def longest_chain(model: Model, n: int) -> int:
    """The most operators of a pass that wait for each other."""
    layer, x_BTD = random_layer(model, 0), torch.randn(1, n, model.d_model).double()
    with Chain() as chain, sdpa_kernel(SDPBackend.MATH):
        layer(x_BTD, None, False)
    return max(chain.depth.values())


def layers_until_all_see_all(model: Model, n: int) -> int | None:
    """How many layers it takes until every output depends on every input, by the support of their Jacobians."""
    seen_TS = np.eye(n, dtype=bool)
    step_TS = None
    for number in range(MOST_LAYERS):
        if step_TS is None or not LAYERS.traits(model.layer).alike:
            step_TS = support(random_layer(model, number), n, model.d_model).astype(np.float32)
        seen_TS = step_TS @ seen_TS > 0
        if seen_TS.all():
            return number + 1
    return None


def support(layer: nn.Module, n: int, d: int) -> np.ndarray:
    """bool [n, n]: whether output t depends on input s, residual included; n texts alike, one gradient for each t."""
    x_TD = torch.randn(n, d, generator=torch.Generator().manual_seed(1)).double()
    rows = [_gradients(layer, x_TD, range(t, min(t + 32, n))) for t in range(0, n, 32)]
    return np.concatenate(rows) | np.eye(n, dtype=bool)


def _gradients(layer: nn.Module, x_TD: Tensor, of: Iterable[int]) -> np.ndarray:
    outputs = torch.tensor(list(of))
    x_BTD = x_TD.expand(len(outputs), -1, -1).clone().requires_grad_()
    y_BTD = layer(x_BTD, None, False)
    y_BTD[torch.arange(len(outputs)), outputs].sum().backward()
    assert x_BTD.grad is not None
    return (x_BTD.grad != 0).any(2).numpy()
