"""A search: a base, a space of parameters, and how trials are proposed, judged and stopped; frozen in study.json."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, from_dict, override, to_dict, training_hash, training_identity
from lightning_tfm.durable import locked, to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import BUILTIN_SCHEMES, count_parameters
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.definition import SCHEMA, file_of, predicted_cost
from lightning_tfm.study.rows import Fingerprints, differences, user_classes
from lightning_tfm.study.sweeps import Parameter, Pruner, grid

KIND = "search"


@dataclass(frozen=True)
class Search:
    """A search over one base. Only the number of trials may grow."""

    name: str
    base: Experiment
    """at the paper's scale"""
    space: list[Parameter]
    sampler: str
    seed: int
    """of the sampler"""
    trials: int
    objectives: dict[str, str]
    """name -> minimize or maximize"""
    constraints: dict[str, float]
    """name -> upper limit, at true sizes"""
    pruner: Pruner
    prints: Fingerprints
    V: int
    store: str

    @property
    def directions(self) -> tuple[str, ...]:
        return tuple(self.objectives.values())

    @property
    def budget(self) -> int:
        """Trials that the sampler makes; 0 for a grid, whose points are listed."""
        return 0 if self.sampler == "grid" else self.trials

    def experiment(self, change: dict[str, Any]) -> Experiment:
        """The base with a trial's parameters, at the paper's scale. Raises UserError."""
        return override(self.base, change, f"study '{self.name}'")

    def identity(self, change: dict[str, Any]) -> dict[str, Any]:
        experiment = self.experiment(change)
        return training_identity(experiment, self.prints.train, user_classes(experiment))

    def cell(self, number: int, change: dict[str, Any]) -> Cell:
        """The run of trial `number`."""
        experiment = self.experiment(change)
        cost = predicted_cost(experiment.scaled(), self.V)
        seed = experiment.training.seed
        return Cell(f"t{number:04d}", seed, training_hash(self.identity(change)), cost, change)

    def excess(self, change: dict[str, Any]) -> dict[str, float]:
        """By how much the limits that are known beforehand are missed, at most 0 where they are kept."""
        if "parameters" not in self.constraints:
            return {}
        model = self.experiment(change).scaled().model
        return {"parameters": count_parameters(model, self.V)["total"] - self.constraints["parameters"]}

    def grid_cells(self) -> tuple[list[Cell], int]:
        """The points of the grid that keep the limits, and how many do not."""
        points = grid(self.space)
        kept = [point for point in points if all(value <= 0 for value in self.excess(point).values())]
        return [self.cell(number, point) for number, point in enumerate(kept)], len(points) - len(kept)

    def check(self) -> None:
        """Raise UserError where the space leads out of what an experiment may be, tried at its corners."""
        if "parameters" in self.constraints and self.base.model.positions not in BUILTIN_SCHEMES:
            raise UserError(f"a limit on parameters needs a scheme that ships: {', '.join(BUILTIN_SCHEMES)}")
        for parameter in self.space:
            for value in parameter.listed or [parameter.low, parameter.high]:
                self.experiment({parameter.name: value}).scaled(f"{parameter.name}={value}")


def save(search: Search, root: Path) -> Search:
    """Write study.json. Raises UserError if a study of that name is another one."""
    path = file_of(root, search.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(".study.lock")):
        check_same(search, root)
        write_atomic(path, to_json(to_plain(search)))
    return search


def check_same(search: Search, root: Path) -> None:
    """Raise UserError if a study of that name is another one."""
    path = file_of(root, search.name)
    if path.exists():
        _check_same(load(root, search.name), search, path)


def is_search(root: Path, name: str) -> bool:
    """Whether study.json of that name holds a search rather than a table."""
    path = file_of(root, name)
    if not path.is_file():
        return False
    try:
        return json.loads(path.read_bytes()).get("kind") == KIND
    except (json.JSONDecodeError, AttributeError):
        return False


def load(root: Path, name: str) -> Search:
    """The search as study.json holds it. Raises UserError where it is none."""
    path = file_of(root, name)
    if path.is_file() and not is_search(root, name):
        raise UserError(f"{path}: study '{name}' is a table, no search; choose another name with --name")
    if not path.is_file():
        raise UserError(f"no study '{name}' in {root / 'studies'}")
    return from_plain(json.loads(path.read_bytes()), str(path))


def from_plain(plain: dict[str, Any], where: str) -> Search:
    """The search in the content of a study.json. Raises UserError."""
    try:
        if plain["schema"] != SCHEMA:
            raise UserError(f"{where}: schema {plain['schema']}, this version reads {SCHEMA}")
        return Search(
            plain["name"],
            from_dict(Experiment, plain["base"]),
            [Parameter(**parameter) for parameter in plain["space"]],
            plain["sampler"],
            plain["seed"],
            plain["trials"],
            plain["objectives"],
            plain["constraints"],
            Pruner(**plain["pruner"]),
            Fingerprints(**plain["fingerprints"]),
            plain["V"],
            plain["store"],
        )
    except (KeyError, TypeError) as error:
        raise UserError(f"{where}: not a search ({type(error).__name__}: {error})") from error


def to_plain(search: Search) -> dict[str, Any]:
    """The content of study.json."""
    plain = {"schema": SCHEMA, "kind": KIND, "name": search.name, "base": to_dict(search.base)}
    plain |= {"space": [asdict(parameter) for parameter in search.space], "pruner": asdict(search.pruner)}
    plain |= {"fingerprints": asdict(search.prints)}
    same = ("sampler", "seed", "trials", "objectives", "constraints", "V", "store")
    return plain | {key: getattr(search, key) for key in same}


def _check_same(old: Search, new: Search, path: Path) -> None:
    if new.trials < old.trials:
        raise UserError(f"{path}: the search has {old.trials} trials already, asked for {new.trials}")
    before, after = to_plain(replace(old, trials=0)), to_plain(replace(new, trials=0))
    found = differences(before, after, "the study has")
    if found:
        raise UserError(
            f"{path} is another search ({'; '.join(found)}): give this one a name of its own with --name, or remove "
            "that folder"
        )
