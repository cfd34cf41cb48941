"""The parameters of a search: as in a sweep file, checked, and as Optuna's suggestions."""

from dataclasses import dataclass, fields
from itertools import product
from typing import Annotated, Any, ClassVar

from annotated_types import MinLen

from lightning_tfm.config import Experiment, override, to_dict
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.schema import Number, Schema
from lightning_tfm.yaml_files import YamlFile

RANGES = {
    "categorical": {"values"},
    "int_uniform": {"min", "max"},
    "uniform": {"min", "max"},
    "q_uniform": {"min", "max", "q"},
    "log_uniform_values": {"min", "max"},
}
SECTIONS = ("model", "training")
"""what a search may change; text, decoding and scoring are the same for all its trials"""
CANNOT = "this engine cannot honour it"
LISTS_ONLY = "a grid cannot search a continuous range; give 'values'"
Values = Annotated[list[Any], MinLen(1)]


@dataclass(frozen=True)
class Parameter:
    """One searched key: a list of `values`, or the range from `low` to `high`."""

    name: str
    """dotted, as in a configuration file"""
    distribution: str
    """categorical, int_uniform, uniform, q_uniform or log_uniform_values, as W&B names them"""
    values: list[Any]
    low: Number = 0.0
    high: Number = 0.0
    step: Number = 0.0

    @property
    def listed(self) -> list[Any] | None:
        """All values if there are finitely many, else None."""
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


@dataclass(frozen=True)
class Spec(Schema):
    """A parameter of a search."""

    REFUSED: ClassVar = dict.fromkeys(("mu", "sigma", "a", "b", "probabilities", "parameters"), CANNOT)
    value: Any = None
    values: Values | None = None
    min: Number | None = None
    max: Number | None = None
    q: Number | None = None
    distribution: str | None = None
    tie: str | Number | None = None
    """not sampled: arithmetic on the others (study/expressions.py), as is `of_base`"""
    of_base: str | Number | None = None

    @property
    def given(self) -> list[str]:
        """Which keys the file has, except the distribution."""
        return [f.name for f in fields(self) if f.name != "distribution" and getattr(self, f.name) is not None]


def read_parameter(file: YamlFile, name: str, spec: Spec, base: Experiment) -> Parameter:
    """A searched parameter. Raises UserError if it does not fit the field of `base`."""
    where = file.where("parameters", name)
    _check_key(where, name, base)
    distribution = spec.distribution
    if distribution is None:  # W&B's default
        whole = type(spec.min) is int and type(spec.max) is int
        distribution = "categorical" if spec.values is not None else "int_uniform" if whole else "uniform"
    takes = RANGES.get(distribution)
    if takes is None:
        raise UserError(f"{where}: {name}.distribution={distribution!r}: {CANNOT}; valid: {', '.join(RANGES)}")
    if set(spec.given) != takes:
        got = ", ".join(sorted(spec.given)) or "nothing"
        raise UserError(f"{where}: {name}: {distribution} takes {', '.join(sorted(takes))}, got {got}")
    if spec.values is not None:
        if len({repr(value) for value in spec.values}) < len(spec.values):
            raise UserError(f"{where}: {name}: a value appears twice")
        parameter = Parameter(name, distribution, spec.values)
    else:
        assert spec.min is not None and spec.max is not None
        parameter = Parameter(name, distribution, [], spec.min, spec.max, spec.q or 0.0)
        _check_range(where, parameter, base)
    for value in parameter.values or (parameter.low, parameter.high):
        override(base, {name: value}, where)
    return parameter


def _check_key(where: str, name: str, base: Experiment) -> None:
    """Raise UserError unless `name` is a key that a search may set."""
    plain = to_dict(base)
    valid = [f"{section}.{key}" for section in SECTIONS for key in plain[section] if key != "seed"]
    if name in ("seed", "training.seed"):
        raise UserError(f"{where}: a seed is not something to search over: give it one value, or remove it")
    if name not in valid:
        section, _, key = name.partition(".")
        if section in plain and key in plain[section]:
            raise UserError(
                f"{where}: '{name}' must be the same for all trials of a search: set it in the experiment file"
            )
        raise UserError(f"{where}: unknown parameter '{name}': {nearest(name, valid)}")


def _check_range(where: str, p: Parameter, base: Experiment) -> None:
    section, _, key = p.name.partition(".")
    whole = type(to_dict(base)[section][key]) is int
    if whole != (p.distribution == "int_uniform"):
        kind = "whole numbers: use int_uniform or values" if whole else "fractions: use uniform or log_uniform_values"
        raise UserError(f"{where}: {p.name}: {p.distribution} does not fit: it takes {kind}")
    if not p.low < p.high:
        raise UserError(f"{where}: {p.name}: min={p.low} must be below max={p.high}")
    if p.distribution == "log_uniform_values" and p.low <= 0:
        raise UserError(f"{where}: {p.name}.min={p.low}: a logarithm needs numbers above 0")
    if p.distribution == "q_uniform" and p.step <= 0:
        raise UserError(f"{where}: {p.name}.q={p.step}: must be above 0")
    if p.distribution == "q_uniform" and abs(p.low / p.step - round(p.low / p.step)) > 1e-9:
        raise UserError(
            f"{where}: {p.name}.min={p.low} must be a multiple of q={p.step}: the two engines round differently"
        )
