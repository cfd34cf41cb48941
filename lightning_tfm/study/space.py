"""The parameters of a search, in the words of a W&B sweep file: strictly read, and turned into Optuna's suggestions."""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

from lightning_tfm.config import Experiment, override, to_dict
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.yaml_files import YamlFile

SPEC_KEYS = ("value", "values", "min", "max", "distribution", "q")
RANGES = {
    "int_uniform": {"min", "max"},
    "uniform": {"min", "max"},
    "q_uniform": {"min", "max", "q"},
    "log_uniform_values": {"min", "max"},
}
SECTIONS = ("model", "training")
"""what a search may change; text, decoding and scoring are the same for all its trials"""


@dataclass(frozen=True)
class Parameter:
    """One searched key: a list of `values`, or the range from `low` to `high`."""

    name: str
    """dotted, as in a configuration file"""
    distribution: str
    """categorical, int_uniform, uniform, q_uniform or log_uniform_values, as W&B names them"""
    values: list[Any]
    low: float = 0.0
    high: float = 0.0
    step: float = 0.0

    @property
    def listed(self) -> list[Any] | None:
        """All values where there are finitely many, else None."""
        if self.distribution == "categorical":
            return self.values
        return list(range(int(self.low), int(self.high) + 1)) if self.distribution == "int_uniform" else None

    def suggest(self, trial: Any) -> Any:
        """The value that an Optuna trial suggests."""
        match self.distribution:
            case "categorical":
                return trial.suggest_categorical(self.name, self.values)
            case "int_uniform":
                return trial.suggest_int(self.name, int(self.low), int(self.high))
            case "q_uniform":
                return trial.suggest_float(self.name, self.low, self.high, step=self.step)
            case _:
                log = self.distribution == "log_uniform_values"
                return trial.suggest_float(self.name, self.low, self.high, log=log)


def grid(space: list[Parameter]) -> list[dict[str, Any]]:
    """Every combination of a space without ranges of fractions."""
    lists = [parameter.listed or [] for parameter in space]
    return [dict(zip((p.name for p in space), values, strict=True)) for values in product(*lists)]


def read_space(file: YamlFile, base: Experiment) -> list[Parameter]:
    """The searched parameters of a sweep file. Raises UserError naming file, line, key and the nearest valid one."""
    space = []
    for name, spec in file.values["parameters"].items():
        if not is_fixed(spec):
            space.append(_parameter(file, name, spec, base))
    if not space:
        raise UserError(f"{file.where('parameters')}: nothing to search: every parameter has one value")
    return space


def is_fixed(spec: Any) -> bool:
    """Whether a parameter has one value, which is then an argument like those of the command."""
    return isinstance(spec, dict) and (set(spec) <= {"value", "distribution"} and "value" in spec)


def check_key(file: YamlFile, name: str, base: Experiment) -> None:
    """Raise UserError unless `name` is a key that a search may set."""
    where = file.where("parameters", name)
    plain = to_dict(base)
    valid = [f"{section}.{key}" for section in SECTIONS for key in plain[section] if key != "seed"]
    if name in ("seed", "training.seed"):
        raise UserError(f"{where}: a seed is nothing to search for: give it one value, or leave it out")
    if name not in valid:
        section, _, key = name.partition(".")
        if section in plain and key in plain[section]:
            raise UserError(f"{where}: '{name}' is the same for all trials of a search: set it in the experiment file")
        raise UserError(f"{where}: unknown parameter '{name}': {nearest(name, valid)}")


def _parameter(file: YamlFile, name: str, spec: Any, base: Experiment) -> Parameter:
    where = file.where("parameters", name)
    check_key(file, name, base)
    if not isinstance(spec, dict) or not spec:
        raise UserError(f"{where}: {name}={spec!r}: expected 'values', or 'min' and 'max'")
    for key in spec:
        if key not in SPEC_KEYS:
            ours = (
                "this engine cannot honour it"
                if key in ("mu", "sigma", "a", "b", "probabilities", "parameters")
                else ""
            )
            raise UserError(
                f"{file.where('parameters', name, key)}: unknown key '{name}.{key}': "
                f"{ours or nearest(str(key), SPEC_KEYS)}"
            )
    section, _, field = name.partition(".")
    whole = type(to_dict(base)[section][field]) is int
    distribution = spec["distribution"] if "distribution" in spec else _implied(spec)
    if distribution == "categorical":
        return _categorical(file, name, spec, base)
    if distribution not in RANGES:
        raise UserError(
            f"{where}: {name}.distribution={distribution!r}: this engine cannot honour it; valid: categorical, "
            f"{', '.join(RANGES)}"
        )
    given = set(spec) - {"distribution"}
    if given != RANGES[distribution]:
        raise UserError(
            f"{where}: {name}: {distribution} takes {', '.join(sorted(RANGES[distribution]))}, "
            f"got {', '.join(sorted(given))}"
        )
    if whole != (distribution == "int_uniform"):
        kind = "whole numbers: use int_uniform or values" if whole else "fractions: use uniform or log_uniform_values"
        raise UserError(f"{where}: {name}: {distribution} does not fit, it takes {kind}")
    for key in given:
        if isinstance(spec[key], bool) or not isinstance(spec[key], (int, float)) or not math.isfinite(spec[key]):
            raise UserError(f"{file.where('parameters', name, key)}: {name}.{key}={spec[key]!r}: expected a number")
    low, high, step = spec["min"], spec["max"], spec["q"] if "q" in given else 0.0
    if not low < high:
        raise UserError(f"{where}: {name}: min={low} must lie below max={high}")
    if distribution == "log_uniform_values" and low <= 0:
        raise UserError(f"{where}: {name}.min={low}: a logarithm needs numbers above 0")
    if distribution == "q_uniform" and step <= 0:
        raise UserError(f"{where}: {name}.q={step}: must be above 0")
    if distribution == "q_uniform" and abs(low / step - round(low / step)) > 1e-9:
        raise UserError(f"{where}: {name}.min={low} must be a multiple of q={step}: the two engines round differently")
    for value in (low, high):
        override(base, {name: value}, where)
    return Parameter(name, distribution, [], low, high, step)


def _implied(spec: dict[str, Any]) -> str:
    """What W&B takes for the distribution where none is named."""
    if "values" in spec:
        return "categorical"
    return "int_uniform" if all(type(spec.get(key)) is int for key in ("min", "max")) else "uniform"


def _categorical(file: YamlFile, name: str, spec: dict[str, Any], base: Experiment) -> Parameter:
    where = file.where("parameters", name)
    if set(spec) - {"distribution"} != {"values"}:
        raise UserError(f"{where}: {name}: categorical takes 'values' alone, got {', '.join(spec)}")
    values = spec["values"]
    if not isinstance(values, list) or not values:
        raise UserError(f"{where}: {name}.values={values!r}: expected a list that is not empty")
    if len({repr(value) for value in values}) < len(values):
        raise UserError(f"{where}: {name}: a value stands there twice")
    for value in values:
        override(base, {name: value}, where)
    return Parameter(name, "categorical", values)
