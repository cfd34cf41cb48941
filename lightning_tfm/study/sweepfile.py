"""A W&B sweep file read strictly: what this engine cannot honour is an error, never ignored.

An ablation is `method: grid` over `row` and `seed`; its command names the experiment files. Other parameters may have
one fixed value. The same file runs under `wandb agent` as it stands.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.yaml_files import YamlFile, read_yaml

KEYS = ("name", "description", "project", "entity", "program", "method", "metric", "parameters", "command")
ELSEWHERE = ("early_terminate", "run_cap", "controller", "job", "imageuri", "prior_runs")
METRICS = {"dev/ppl": "minimize", "dev/bleu": "maximize"}
ARGS = "${args}"
PROGRAMS = (["lightning-tfm", "fit"], ["${program}", "fit"], ["${env}", "lightning-tfm", "fit"])


@dataclass(frozen=True)
class Sweep:
    """A sweep file's content. `arguments` are those of its command and its fixed parameters, as typed."""

    name: str
    path: Path
    rows: list[str]
    seeds: list[int]
    """empty where the file names none: then the experiment's own"""
    arguments: list[str]


def read_sweep(path: str | Path) -> Sweep:
    """Raises UserError naming file, line, key, value and the nearest valid key."""
    file = read_yaml(path)
    for key, value in file.values.items():
        if key == "early_terminate":
            raise UserError(
                f"{file.where(key)}: 'early_terminate' in an ablation: every row of a table runs to its end; remove it"
            )
        if key not in KEYS:
            can = "this engine cannot honour it" if key in ELSEWHERE else nearest(key, KEYS)
            raise UserError(f"{file.where(key)}: unknown key '{key}' (value {value!r}): {can}")
    for key in ("method", "parameters", "command"):
        if key not in file.values:
            raise UserError(f"{file.path}: the key '{key}' is missing")
    if file.values["method"] != "grid":
        raise UserError(f"{file.where('method')}: method={file.values['method']!r}: an ablation is a 'grid'")
    if "metric" in file.values:
        _check_metric(file, file.values["metric"])
    name = file.values.get("name", file.path.stem)
    if not isinstance(name, str) or not name:
        raise UserError(f"{file.where('name')}: name={name!r}: expected text")
    rows, seeds, fixed = _parameters(file, file.values["parameters"])
    return Sweep(name, file.path, rows, seeds, read_command(file, file.values["command"]) + fixed)


def _check_metric(file: YamlFile, metric: Any) -> None:
    if not isinstance(metric, dict) or "name" not in metric:
        raise UserError(f"{file.where('metric')}: metric={metric!r}: expected name and goal")
    for key in metric:
        if key not in ("name", "goal"):
            raise UserError(
                f"{file.where('metric', key)}: unknown key 'metric.{key}': {nearest(key, ('name', 'goal'))}"
            )
    name = metric["name"]
    if name not in METRICS:
        raise UserError(f"{file.where('metric', 'name')}: no run reports '{name}': {nearest(str(name), METRICS)}")
    if "goal" in metric and metric["goal"] != METRICS[name]:
        raise UserError(f"{file.where('metric', 'goal')}: goal={metric['goal']!r}: {name} is there to {METRICS[name]}")


def _parameters(file: YamlFile, parameters: Any) -> tuple[list[str], list[int], list[str]]:
    """Rows, seeds, and what the other parameters are as arguments."""
    if not isinstance(parameters, dict) or not parameters:
        raise UserError(f"{file.where('parameters')}: parameters={parameters!r}: expected names with values")
    lists = {key: _values(file, key, spec) for key, spec in parameters.items()}
    if "row" not in lists:
        raise UserError(f"{file.where('parameters')}: an ablation needs the parameter 'row' (and may have 'seed')")
    fixed = []
    for key, values in lists.items():
        if key in ("row", "seed"):
            continue
        if "." not in key:
            raise UserError(
                f"{file.where('parameters', key)}: unknown parameter '{key}': {nearest(key, ('row', 'seed'))}"
            )
        if len(values) != 1:
            raise UserError(
                f"{file.where('parameters', key)}: {key} has {len(values)} values: an ablation varies 'row' "
                "and 'seed'; declare a row for each value, or give one value"
            )
        fixed.append(f"--{key}={values[0]}")
    for key, kind in (("row", str), ("seed", int)):
        for value in lists.get(key, []):
            if type(value) is not kind:
                raise UserError(f"{file.where('parameters', key)}: {key} {value!r}: expected {kind.__name__}")
        if len(set(lists.get(key, []))) < len(lists.get(key, [])):
            raise UserError(f"{file.where('parameters', key)}: a {key} stands there twice")
    return lists["row"], lists.get("seed", []), fixed


def _values(file: YamlFile, key: str, spec: Any) -> list[Any]:
    where = file.where("parameters", key)
    if not isinstance(spec, dict):
        raise UserError(f"{where}: {key}={spec!r}: expected 'value' or 'values'")
    for inner in spec:
        if inner not in ("value", "values"):
            ranged = (
                "a grid has no continuous ranges, give 'values'" if inner in ("min", "max", "distribution") else None
            )
            raise UserError(f"{where}: unknown key '{key}.{inner}': {ranged or nearest(inner, ('value', 'values'))}")
    if len(spec) != 1:
        raise UserError(f"{where}: {key} needs either 'value' or 'values'")
    values = spec["values"] if "values" in spec else [spec["value"]]
    if not isinstance(values, list) or not values:
        raise UserError(f"{where}: {key}.values={values!r}: expected a list that is not empty")
    return values


def read_command(file: YamlFile, command: Any) -> list[str]:
    """The arguments of a sweep file's command, without '${args}'. Raises UserError."""
    where = file.where("command")
    if not isinstance(command, list) or not all(isinstance(part, str) for part in command):
        raise UserError(f"{where}: command={command!r}: expected a list of words")
    start = next((start for start in PROGRAMS if command[: len(start)] == start), None)
    if start is None:
        raise UserError(f"{where}: command {' '.join(command)!r}: it has to begin with 'lightning-tfm', 'fit'")
    rest = command[len(start) :]
    if rest.count(ARGS) != 1:
        raise UserError(f"{where}: command needs '{ARGS}' once, where row and seed go")
    rest.remove(ARGS)
    for word in rest:
        if "${" in word:
            raise UserError(f"{where}: '{word}' in command: only '{ARGS}' is filled in")
    return rest
