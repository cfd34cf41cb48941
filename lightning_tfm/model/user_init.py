"""User-defined classes within a model: what their constructors set is what trains.

A constructor runs under generators keyed by (seed, path of the module): what it draws is the same on any number of
processes, another at every seed, and not moved by what else the model has. What it leaves open `model.init` draws,
as of what ships (model/init.py):

- what was only allocated (`torch.empty`): memory is filled with NaN while a constructor runs, so that it is told apart;
- weights and biases of torch's linear maps, convolutions, recurrent layers and embeddings that are, bit for bit, what
  their own `reset_parameters` made of them;
- a parameter with the attribute `initial_std`.

A class that says `init = "own"` keeps all that its constructor made, one that says `init = "model"` only its norms.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from lightning_tfm.errors import UserError
from lightning_tfm.rng import key

M = TypeVar("M", bound=nn.Module)

DRAWN = (nn.Linear, _ConvNd, nn.RNNBase, nn.Embedding)
"""torch's layers that `model.init` draws where nobody has touched them"""
SET, LEFT, UNTOUCHED = "set by its constructor", "left empty", "as torch made it"
ASKED, DECLARED = "has an initial_std", "init = 'model'"
INITS = ("own", "model")


class Origin(NamedTuple):
    """How a parameter of a user-defined class starts."""

    cls: str
    parameter: str
    """its name within the class"""
    how: str
    """SET, or why `model.init` draws it"""


_within = False
"""whether a user-defined constructor is running: what it makes of other such classes is part of what it makes"""


def construct(cls: type[M], *args: Any) -> M:
    """`cls(*args)`; a user-defined one remembers what it was given, for `constructed_by_path`."""
    global _within
    if _within or cls.__module__.startswith("lightning_tfm."):
        return cls(*args)
    _within = True
    try:
        with drawing_by("construct"):
            module = cls(*args)
    finally:
        _within = False
    module.constructed_with = args  # type: ignore[assignment]
    return module


def constructed_by_path(model: nn.Module, seed: int, norms: tuple[type[nn.Module], ...]) -> dict[str, Origin]:
    """Run the constructors of the user-defined classes in `model` again, now that their paths are known.

    Returns name of each of their parameters -> how it starts; `norms` keep theirs. Raises UserError for a parameter of
    which only a part was set, or for one left empty by a class with `init = "own"`.
    """
    global _within
    origins: dict[str, Origin] = {}
    for path, module in list(model.named_modules()):
        if not hasattr(module, "constructed_with"):
            continue
        _within = True
        try:
            with drawing_by("construct", seed, path), _untouched() as fresh:
                type(module).__init__(module, *module.constructed_with)
        finally:
            _within = False
        for name, parameter in module.named_parameters():
            how = SET if parameter.is_meta else _how(module, name, parameter, fresh, norms)
            origins[f"{path}.{name}"] = Origin(type(module).__qualname__, name, how)
    return origins


def origins_in_words(origins: dict[str, Origin]) -> list[str]:
    """A line for each class: what its constructor set, and what `model.init` draws and why."""
    lines = []
    for cls in dict.fromkeys(origin.cls for origin in origins.values()):
        by_how: dict[str, dict[str, None]] = {}
        for origin in origins.values():
            if origin.cls == cls:
                by_how.setdefault(origin.how, {})[origin.parameter] = None
        set_names = ", ".join(by_how.pop(SET, {})) or "nothing"
        names_drawn = ", ".join(f"{', '.join(names)} ({how})" for how, names in by_how.items()) or "nothing"
        lines.append(f"{cls}: kept as its constructor set it: {set_names}; drawn by model.init: {names_drawn}")
    return lines


def _how(
    root: nn.Module,
    name: str,
    parameter: nn.Parameter,
    fresh: dict[int, tuple[Tensor, Tensor]],
    norms: tuple[type[nn.Module], ...],
) -> str:
    owners = [root.get_submodule(name.rsplit(".", depth)[0]) for depth in range(1, name.count(".") + 1)]
    declared = (getattr(type(owner), "init", None) for owner in [*owners, root])
    init = next((word for word in declared if isinstance(word, str)), "")
    if init and init not in INITS:
        raise UserError(f"{type(root).__qualname__}: init='{init}': {' or '.join(INITS)}, or leave it out")
    unset = parameter.isnan() if parameter.is_floating_point() else torch.zeros(())
    if parameter.numel() and unset.all():
        if init == "own":
            raise UserError(f"{type(root).__qualname__} says init = 'own' and leaves its parameter {name} empty")
        return LEFT
    if unset.any():
        raise UserError(f"{type(root).__qualname__}: its constructor sets only a part of its parameter {name}")
    if init == "own":
        return SET
    if hasattr(parameter, "initial_std"):
        return ASKED
    if init == "model":
        return SET if isinstance([*owners, root][0], norms) else DECLARED
    before = fresh.get(id(parameter))
    return UNTOUCHED if before is not None and torch.equal(before[1].to(parameter), parameter) else SET


@contextmanager
def drawing_by(*parts: object) -> Iterator[None]:
    """Generators of torch, NumPy and Python begin at `parts`, and are put back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        begin(*parts)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def begin(*parts: object) -> None:
    """Let the generators of torch, NumPy and Python begin at `parts`."""
    seed = int(key(*parts)[0] >> 1)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def _untouched() -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
    """While constructors run, memory that is only allocated holds NaN; id -> a parameter of DRAWN and its values as
    `reset_parameters` left them."""
    as_reset: dict[int, tuple[Tensor, Tensor]] = {}
    resets = {cls: cls.reset_parameters for cls in DRAWN}

    def noting(reset: Any) -> Any:
        def reset_parameters(self: nn.Module) -> None:
            reset(self)
            as_reset.update((id(p), (p, p.detach().clone())) for p in self.parameters(recurse=False))

        return reset_parameters

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    for cls, reset in resets.items():
        cls.reset_parameters = noting(reset)  # type: ignore[method-assign]
    try:
        yield as_reset
    finally:
        for cls, reset in resets.items():
            cls.reset_parameters = reset  # type: ignore[method-assign]
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
