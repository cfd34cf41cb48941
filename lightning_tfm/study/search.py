"""A search: trials that a sampler proposes, beside base."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Self

from lightning_tfm.config import Experiment, Hardware, override, to_dict, training_hash, training_identity
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import count_parameters
from lightning_tfm.registry import OWN_WEIGHTS
from lightning_tfm.schema import Number
from lightning_tfm.study import expressions
from lightning_tfm.study.cell import Cell, predicted_cost
from lightning_tfm.study.rows import differences
from lightning_tfm.study.study import SCHEMA, Study, value_of
from lightning_tfm.study.sweeps import Parameter, Pruner, grid
from lightning_tfm.study.user_classes import own_classes

BASE = "base"
"""name of a search's first run"""
LISTED = 2000
"""the most points of a space that is listed"""


@dataclass(frozen=True, kw_only=True)
class Search(Study):
    """Trials of a space, how they are proposed, compared and pruned. Only the number of trials may grow."""

    space: list[Parameter]
    sampler: str
    seed: int
    """of the sampler"""
    trials: int
    objectives: dict[str, str]
    """name -> minimize or maximize"""
    constraints: dict[str, Number]
    """name -> upper limit, at true sizes"""
    pruner: Pruner
    based: bool = True
    """base is the first run; not in searches started before that was so"""
    seeds: list[int] = field(default_factory=list)
    """of every trial of an earlier search, whose values are the means over them; empty: only base's own"""
    ties: dict[str, Any] = field(default_factory=dict)
    """dotted keys that are not sampled but follow the others (study/expressions.py)"""
    validate_every: int = 0
    """steps between two evaluations of dev perplexity on every machine, since trials are stopped by comparing them; 0
    if none is stopped, and in searches started before it was kept"""
    prune_in_warmup: bool = False
    """trials may be stopped before their own warm-up ends, too"""
    KIND: ClassVar[str] = "search"

    @property
    def directions(self) -> tuple[str, ...]:
        return tuple(self.objectives.values())

    @property
    def budget(self) -> int:
        return 0 if self.sampler == "grid" else self.trials

    def cells(self) -> list[Cell]:
        """Base, and the points of a grid that keep the limits; only base where a sampler makes the trials."""
        points = [self.cell(number, point) for number, point in enumerate(self._points()[0])]
        if not self.based:
            return points
        first = self._cell(BASE, self._of_base)
        return [first, *(point for point in points if point.training_hash != first.training_hash)]

    def refused_points(self) -> int:
        """How many points of a grid do not keep the limits."""
        return self._points()[1]

    def _points(self) -> tuple[list[dict[str, Any]], int]:
        points = [] if self.budget else grid(self.space)
        within = [point for point in points if not self.misses(point)]
        return within, len(points) - len(within)

    def finite(self) -> list[dict[str, Any]] | None:
        """All points that keep the limits; None if there are infinitely many, or more than LISTED."""
        lists = [parameter.listed for parameter in self.space]
        if not all(lists) or prod(len(values or ()) for values in lists) > LISTED:
            return None
        return [point for point in grid(self.space) if not self.misses(point)]

    @property
    def most(self) -> int:
        """Runs that its budget and its space allow, base among them."""
        points = self.finite()
        if points is None:
            return self.budget
        return min(self.budget, len(points) + (self.based and self._of_base not in points))

    @property
    def _of_base(self) -> dict[str, Any]:
        return {p.name: value_of(self.base, p.name) for p in self.space}

    def at(self, change: dict[str, Any]) -> Experiment:
        """The base with the parameters of a trial, and what follows them, at the paper's scale. Raises UserError."""
        where = f"study '{self.name}'"
        return override(self.base, expressions.with_numbers(self.base, change | self.ties, where), where)

    def of(self, row: str, change: dict[str, Any], seed: int | None = None) -> Experiment:
        """The experiment of the trial `row` at one of its seeds, by default the first. Base is base, tied or not."""
        experiment = self.base if row == BASE else self.at(change)
        seed = self.trial_seeds[0] if seed is None else seed
        return override(experiment, {"training.seed": seed}, f"study '{self.name}'")

    @property
    def trial_seeds(self) -> list[int]:
        """Seeds of every trial."""
        return self.seeds or [self.base.training.seed]

    def tied(self, row: str, change: dict[str, Any]) -> dict[str, Any]:
        """The values of the tied parameters in the trial `row`."""
        experiment = self.of(row, change) if self.ties else self.base
        return {key: value_of(experiment, key) for key in self.ties}

    def trained(self, row: str, change: dict[str, Any]) -> dict[str, Any]:
        """What a miniature divides of the parameters of the trial `row`, at the size that is trained."""
        typed = self.of(row, change)
        sizes = {key: value_of(typed.scaled(), key) for key in (*(p.name for p in self.space), *self.ties)}
        return {key: value for key, value in sizes.items() if value != value_of(typed, key)}

    def _kinds(self) -> Iterable[Experiment]:
        named = [(p.name, value) for p in self.space if p.name in OWN_WEIGHTS for value in p.listed or ()]
        return [self.base, *(override(self.base, {key: value}, self.name) for key, value in named)]

    def experiment(self, cell: Cell) -> Experiment:
        return self.of(cell.row, cell.change, cell.seed)

    def cell(self, number: int, change: dict[str, Any]) -> Cell:
        """The run of trial `number`."""
        return self._cell(f"t{number:04d}", change)

    def _cell(self, name: str, change: dict[str, Any]) -> Cell:
        runs = []
        for seed in self.trial_seeds:
            experiment = self.of(name, change, seed)
            identity = training_identity(experiment, self.prints.train, self.sources_of(experiment))
            runs.append((seed, training_hash(identity)))
        cost = predicted_cost(experiment.scaled(), self.V) * len(runs)
        return Cell(name, *runs[0], cost, change, tuple(runs[1:]))

    def misses(self, change: dict[str, Any]) -> str:
        """Why a point must not run: a tied size is not whole, or a limit is exceeded; empty if it may."""
        try:
            if self.ties:
                check(self.at(change).scaled())
        except UserError as error:
            return str(error)
        over = [f"{name} is {value:,.0f} above its limit" for name, value in self.excess(change).items() if value > 0]
        return ", ".join(over)

    def excess(self, change: dict[str, Any]) -> dict[str, float]:
        """By how much the limits that are known beforehand are exceeded, at most 0 where they hold."""
        if "parameters" not in self.constraints:
            return {}
        model = self.at(change).scaled().model
        return {"parameters": count_parameters(model, self.V)["total"] - self.constraints["parameters"]}

    def hardware_of(self, hardware: Hardware) -> Hardware:
        if not self.validate_every:
            return hardware
        if hardware.validate_every not in (0, self.validate_every):
            raise UserError(
                f"--trainer.validate_every={hardware.validate_every}: the trials of study '{self.name}' are validated "
                f"every {self.validate_every} steps, by which they are compared and stopped early: remove it"
            )
        return replace(hardware, validate_every=self.validate_every)

    def check(self) -> None:
        """Raise UserError where the space holds an invalid experiment, tried at its corners."""
        own = [f"{key}={path}" for key, path in own_classes(self.base).items() if key.startswith("model.")]
        if "parameters" in self.constraints and own:
            raise UserError(f"a limit on parameters needs built-in classes, not {own[0]}")
        for parameter in self.space:
            for value in parameter.listed or [parameter.low, parameter.high]:
                override(self.base, {parameter.name: value}, self.name).scaled(f"{parameter.name}={value}")
        if self.ties and (self.finite() == [] or (not self.budget and not self._points()[0])):
            why = self.misses(grid(self.space)[0])
            raise UserError(f"study '{self.name}': no point of the space has whole tied sizes: {why}")

    def to_plain(self) -> dict[str, Any]:
        plain = {"schema": SCHEMA, "kind": self.KIND, "name": self.name, "base": to_dict(self.base)}
        plain |= {"space": [asdict(parameter) for parameter in self.space], "pruner": asdict(self.pruner)}
        plain |= {"fingerprints": asdict(self.prints)}
        same = ("sampler", "seed", "trials", "objectives", "constraints", "V", "store", "based")
        later = {key: getattr(self, key) for key in ("seeds", "ties", "validate_every", "prune_in_warmup")}
        return plain | {key: getattr(self, key) for key in same} | self._later(later)

    def with_earlier(self, old: Self, path: Path) -> Self:
        if self.trials < old.trials:
            raise UserError(
                f"{path}: the search already has {old.trials} trials, more than the {self.trials} requested"
            )
        every = self.validate_every if old.validate_every else 0
        unnamed: dict[str, Any] = {"trials": 0, "based": True, "classes": {}, "title": "", "question": ""}
        unnamed |= {"prints": self.prints, "store": ""}
        same = replace(self, validate_every=every, **unnamed)
        before, after = replace(old, **unnamed).to_plain(), same.to_plain()
        other = differences(before, after, "the study has") + self._other_texts(old) + self._other_sources(old)
        if other:
            raise UserError(
                f"{path} is a different search ({'; '.join(other)}): give this one its own name with --name, or "
                "remove that folder"
            )
        classes = old.classes | self.classes
        return replace(self, based=old.based, validate_every=old.validate_every, classes=classes)._with_words(old)
