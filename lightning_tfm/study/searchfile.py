"""The file of a search: a W&B sweep file, and beside it NAME.study.yaml for what W&B's schema has no place for."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.study.space import Parameter, is_fixed, read_space
from lightning_tfm.study.sweepfile import ELSEWHERE, KEYS, METRICS, read_command
from lightning_tfm.yaml_files import YamlFile, read_yaml

METHODS = {"grid": "grid", "random": "random", "bayes": "tpe"}
SAMPLERS = ("tpe", "random", "grid", "gp", "cmaes")
OBJECTIVES = METRICS | {"parameters": "minimize", "seconds": "minimize"}
"""what a finished run is judged by, and the only sensible direction"""
CONSTRAINTS = ("parameters", "seconds")
STUDY_KEYS = ("sampler", "seed", "trials", "objectives", "constraints", "pruner")
PRUNERS = {
    "asha": {"min_step": 0, "eta": 3},
    "hyperband": {"min_step": 0, "eta": 3},
    "median": {"min_step": 0, "startup": 5},
}
"""pruner -> its keys and what they are where left out; min_step 0: the first validation"""


@dataclass(frozen=True)
class Pruner:
    """Stops what is not promising, by dev perplexity at optimizer steps. `type` is none where nothing is stopped."""

    type: str = "none"
    min_step: int = 0
    """first optimizer step at which a trial may be stopped; 0: the first validation"""
    eta: int = 3
    """of those that reach a rung, one in `eta` goes on"""
    startup: int = 5
    """median: finished trials before the first is stopped"""


@dataclass(frozen=True)
class SearchFile:
    """What the two files ask for. `arguments` are those of the command and the fixed parameters, as typed."""

    name: str
    path: Path
    method: str
    sampler: str
    seed: int
    trials: int
    """0 where the files do not say"""
    objectives: dict[str, str]
    constraints: dict[str, float]
    pruner: Pruner
    early: dict[str, Any] | None
    """W&B's early_terminate, which counts validations"""
    arguments: list[str]
    file: YamlFile

    def with_sampler(self, sampler: str) -> "SearchFile":
        """The same, with another sampler."""
        return replace(self, sampler=sampler)

    def space(self, base: Experiment) -> list[Parameter]:
        """The searched parameters. Raises UserError where one does not fit `base` or the method."""
        found = read_space(self.file, base)
        if self.sampler == "grid":
            for p in found:
                if p.listed is None:
                    where = self.file.where("parameters", p.name)
                    raise UserError(f"{where}: a grid has no continuous ranges: give {p.name} 'values'")
        if self.sampler == "cmaes":
            for p in found:
                if p.distribution == "categorical":
                    where = self.file.where("parameters", p.name)
                    raise UserError(
                        f"{where}: CMA-ES does not support lists of values: give {p.name} a range, or take tpe"
                    )
            if len(self.objectives) > 1:
                raise UserError(f"{self.path}: CMA-ES knows one objective, asked for {', '.join(self.objectives)}")
            if len(found) < 2:
                raise UserError(f"{self.path}: CMA-ES needs two parameters at least")
        return found

    def steps_of(self, validate_every: int, steps: int) -> Pruner:
        """The pruner on optimizer steps, for runs of `steps` that validate every `validate_every` of them."""
        if self.early is None:
            return self.pruner
        e = self.early
        validations = e["min_iter"] if "min_iter" in e else round(e["max_iter"] / e["eta"] ** e["s"])
        first = max(1, validations) * validate_every
        if first >= steps:
            raise UserError(
                f"{self.file.where('early_terminate')}: its first rung (validation {validations}) is at step {first}, "
                f"but a run has {steps} steps: nothing would ever be stopped; lower it, or --trainer.validate_every"
            )
        return Pruner("asha", first, e["eta"])


def is_search(file: YamlFile) -> bool:
    """Whether a sweep file describes a search: a table varies the parameter `row`."""
    parameters = file.values.get("parameters")
    return isinstance(parameters, dict) and bool(parameters) and "row" not in parameters


def read_search(path: str | Path) -> SearchFile:
    """Raises UserError naming file, line, key, value and the nearest valid key. Parameters are read by `space`."""
    file = read_yaml(path)
    valid = (*KEYS, "early_terminate")
    for key, value in file.values.items():
        if key not in valid:
            can = "this engine cannot honour it" if key in ELSEWHERE else nearest(key, valid)
            raise UserError(f"{file.where(key)}: unknown key '{key}' (value {value!r}): {can}")
    for key in ("method", "parameters", "command", "metric"):
        if key not in file.values:
            raise UserError(f"{file.path}: the key '{key}' is missing")
    method = file.values["method"]
    if method not in METHODS:
        raise UserError(f"{file.where('method')}: method={method!r}: {nearest(str(method), METHODS)}")
    parameters = file.values["parameters"]
    if not isinstance(parameters, dict) or not parameters:
        raise UserError(f"{file.where('parameters')}: parameters={parameters!r}: expected names with values")
    name = file.values.get("name", file.path.stem)
    if not isinstance(name, str) or not name:
        raise UserError(f"{file.where('name')}: name={name!r}: expected text")
    early = _early(file, file.values["early_terminate"]) if "early_terminate" in file.values else None
    metric = _metric(file, file.values["metric"])
    beside = _beside(file.path)
    objectives = _objectives(beside, metric) if beside and "objectives" in beside.values else metric
    pruner = _pruner(beside, beside.values["pruner"]) if beside and "pruner" in beside.values else Pruner()
    if beside and early and "pruner" in beside.values:
        raise UserError(f"{beside.where('pruner')}: {file.path} has 'early_terminate' already; one of the two")
    if (early or pruner.type != "none") and list(objectives) != ["dev/ppl"]:
        where = beside.path if beside else file.where("early_terminate")
        raise UserError(
            f"{where}: runs are stopped early by dev/ppl, the one metric they report on their way; with the objectives "
            f"{', '.join(objectives)} nothing can be stopped: remove the pruner or search by dev/ppl alone"
        )
    sampler, seed, trials = METHODS[method], 0, 0
    if beside:
        sampler = _sampler(beside, method)
        seed = _whole(beside, "seed", 0, least=0)
        trials = _whole(beside, "trials", 0, least=1)
    constraints = _constraints(beside) if beside and "constraints" in beside.values else {}
    fixed = [f"--{_argument(key)}={spec['value']}" for key, spec in parameters.items() if is_fixed(spec)]
    arguments = read_command(file, file.values["command"]) + fixed
    return SearchFile(
        name, file.path, method, sampler, seed, trials, objectives, constraints, pruner, early, arguments, file
    )


def _argument(key: str) -> str:
    return "training.seed" if key == "seed" else key


def _metric(file: YamlFile, metric: Any) -> dict[str, str]:
    if not isinstance(metric, dict) or "name" not in metric:
        raise UserError(f"{file.where('metric')}: metric={metric!r}: expected name and goal")
    for key in metric:
        if key not in ("name", "goal"):
            can = "this engine cannot honour it" if key == "target" else nearest(str(key), ("name", "goal"))
            raise UserError(f"{file.where('metric', key)}: unknown key 'metric.{key}': {can}")
    name = metric["name"]
    if name not in METRICS:
        raise UserError(f"{file.where('metric', 'name')}: no run reports '{name}': {nearest(str(name), METRICS)}")
    goal = metric["goal"] if "goal" in metric else "minimize"  # W&B's default
    if goal != METRICS[name]:
        raise UserError(f"{file.where('metric')}: goal={goal!r}: {name} is there to {METRICS[name]}")
    return {name: goal}


def _early(file: YamlFile, early: Any) -> dict[str, Any]:
    where = file.where("early_terminate")
    if not isinstance(early, dict) or early.get("type") != "hyperband":
        raise UserError(f"{where}: early_terminate={early!r}: expected type: hyperband and min_iter, or max_iter and s")
    valid = ("type", "min_iter", "max_iter", "s", "eta", "strict")
    for key, value in early.items():
        at = file.where("early_terminate", key)
        if key not in valid:
            raise UserError(f"{at}: unknown key 'early_terminate.{key}': {nearest(str(key), valid)}")
        if key == "strict" and value is not False:
            raise UserError(
                f"{at}: early_terminate.strict={value!r}: this engine cannot honour it; false, or leave it out"
            )
        if key in ("min_iter", "max_iter", "s", "eta") and (
            type(value) is not int or value < (2 if key == "eta" else 1)
        ):
            raise UserError(
                f"{at}: early_terminate.{key}={value!r}: expected a whole number of {2 if key == 'eta' else 1} at least"
            )
    if ("min_iter" in early) == ("max_iter" in early) or ("max_iter" in early) != ("s" in early):
        raise UserError(f"{where}: early_terminate needs either min_iter, or max_iter and s")
    return {"eta": 3} | early  # W&B's default


def _beside(path: Path) -> YamlFile | None:
    beside = path.with_name(f"{path.stem}.study.yaml")
    if not beside.is_file():
        return None
    file = read_yaml(beside)
    for key, value in file.values.items():
        if key not in STUDY_KEYS:
            raise UserError(f"{file.where(key)}: unknown key '{key}' (value {value!r}): {nearest(key, STUDY_KEYS)}")
    return file


def _sampler(beside: YamlFile, method: str) -> str:
    if "sampler" not in beside.values:
        return METHODS[method]
    sampler, where = beside.values["sampler"], beside.where("sampler")
    if sampler not in SAMPLERS:
        raise UserError(f"{where}: sampler={sampler!r}: {nearest(str(sampler), SAMPLERS)}")
    return check_sampler(sampler, method, where)


def check_sampler(sampler: str, method: str, where: str) -> str:
    """`sampler`, unless it contradicts the sweep file's method (UserError)."""
    if method != "bayes" and sampler != METHODS[method]:
        raise UserError(
            f"{where}: sampler={sampler}: the sweep file says method: {method}; bayes leaves the choice open"
        )
    if method == "bayes" and sampler in ("grid", "random"):
        raise UserError(f"{where}: sampler={sampler}: the sweep file says method: bayes; write method: {sampler} there")
    return sampler


def _objectives(beside: YamlFile, metric: dict[str, str]) -> dict[str, str]:
    objectives, where = beside.values["objectives"], beside.where("objectives")
    if not isinstance(objectives, dict) or not objectives:
        raise UserError(f"{where}: objectives={objectives!r}: expected names with minimize or maximize")
    for name, direction in objectives.items():
        at = beside.where("objectives", str(name))
        if name not in OBJECTIVES:
            raise UserError(f"{at}: no run reports '{name}': {nearest(str(name), OBJECTIVES)}")
        if direction != OBJECTIVES[name]:
            raise UserError(f"{at}: {name}={direction!r}: {name} is there to {OBJECTIVES[name]}")
    if next(iter(metric)) not in objectives:
        raise UserError(f"{where}: the sweep file's metric {next(iter(metric))} is not among the objectives")
    return dict(objectives)


def _constraints(beside: YamlFile) -> dict[str, float]:
    constraints, where = beside.values["constraints"], beside.where("constraints")
    if not isinstance(constraints, dict) or not constraints:
        raise UserError(f"{where}: constraints={constraints!r}: expected names with their upper limits")
    for name, limit in constraints.items():
        at = beside.where("constraints", str(name))
        if name not in CONSTRAINTS:
            raise UserError(f"{at}: unknown constraint '{name}': {nearest(str(name), CONSTRAINTS)}")
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
            raise UserError(f"{at}: {name}={limit!r}: expected a number above 0")
    return {name: float(limit) for name, limit in constraints.items()}


def _pruner(beside: YamlFile, pruner: Any) -> Pruner:
    where = beside.where("pruner")
    if not isinstance(pruner, dict) or "type" not in pruner:
        raise UserError(f"{where}: pruner={pruner!r}: expected type and its keys")
    kind = pruner["type"]
    if kind not in PRUNERS:
        raise UserError(f"{where}: pruner.type={kind!r}: {nearest(str(kind), PRUNERS)}")
    for key, value in pruner.items():
        at = beside.where("pruner", str(key))
        if key != "type" and key not in PRUNERS[kind]:
            raise UserError(f"{at}: unknown key 'pruner.{key}': {nearest(str(key), PRUNERS[kind])}")
        least = 2 if key == "eta" else 0
        if key != "type" and (type(value) is not int or value < least):
            raise UserError(f"{at}: pruner.{key}={value!r}: expected a whole number of {least} at least")
    return Pruner(kind, **(PRUNERS[kind] | {k: v for k, v in pruner.items() if k != "type"}))


def _whole(file: YamlFile, key: str, default: int, least: int) -> int:
    if key not in file.values:
        return default
    value = file.values[key]
    if type(value) is not int or value < least:
        raise UserError(f"{file.where(key)}: {key}={value!r}: expected a whole number of {least} at least")
    return value
