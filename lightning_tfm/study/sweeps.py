"""Sweep files, read strictly: W&B's, and NAME.study.yaml beside one for what W&B's schema has no place for.

An ablation is `method: grid` over `row` and `seed`, over fields and `seed` (all combinations), or over all of them; its
command names the experiment files, and parameters may have one fixed value. Anything else is a search.
Every file runs unchanged under `wandb agent`; what this engine cannot honour is an error, never ignored. The
dataclasses at the top are the schema of both files.
"""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from annotated_types import Ge, Gt, MinLen

from lightning_tfm.config import WORDS, Experiment, override
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.gone import GONE
from lightning_tfm.metrics import METRICS
from lightning_tfm.schema import Schema
from lightning_tfm.study import expressions
from lightning_tfm.study.file_kind import expect
from lightning_tfm.study.rows import MAY, Paper, Row, not_of_rows, one_line
from lightning_tfm.study.space import CANNOT, LISTS_ONLY, Parameter, Spec, Values, grid, read_parameter
from lightning_tfm.yaml_files import YamlFile, parse_as, read_yaml

__all__ = ["Parameter", "Pruner", "SearchFile", "Sweep", "grid", "is_search", "read_search", "read_sweep"]

SCALE = "miniature.width"
"""a parameter whose values are scales: a study each, as all rows of one have one width"""
SCORES = {
    f"dev/{metric.name}": "minimize" if metric.lower_is_better else "maximize"
    for metric in METRICS.values()
    if metric.printed or metric.more
}
OBJECTIVES = SCORES | {"parameters": "minimize", "seconds": "minimize"}
"""how a finished run is judged, and the only sensible direction"""
METHODS = {"grid": "grid", "random": "random", "bayes": "tpe"}
"""W&B's methods -> our samplers"""
Sampler = Literal["tpe", "random", "grid", "gp", "cmaes"]
SAMPLERS: tuple[str, ...] = get_args(Sampler)
PRUNERS = {"asha": ("min_step", "eta"), "hyperband": ("min_step", "eta"), "median": ("min_step", "startup")}
"""pruner -> its keys"""
ARGS = "${args}"
PROGRAMS = (["lightning-tfm", "fit"], ["${program}", "fit"], ["${env}", "lightning-tfm", "fit"])
Text = Annotated[str, MinLen(1)]
Count = Annotated[int, Ge(1)]
Goal = Literal["minimize", "maximize"]


@dataclass(frozen=True)
class Metric(Schema):
    """What W&B watches."""

    REFUSED: ClassVar = {"target": CANNOT}
    name: str
    """of SCORES, or dev/module.Class"""
    goal: Goal | None = None


@dataclass(frozen=True)
class EarlyTerminate(Schema):
    """W&B's hyperband, which counts validations."""

    type: Literal["hyperband"]
    min_iter: Count | None = None
    max_iter: Count | None = None
    s: Count | None = None
    eta: Annotated[int, Ge(2)] = 3
    strict: Literal[False] = False


@dataclass(frozen=True)
class Listed(Schema):
    """A parameter of an ablation."""

    REFUSED: ClassVar = dict.fromkeys(("min", "max", "distribution", "q"), LISTS_ONLY)
    value: Any = None
    values: Values | None = None


@dataclass(frozen=True, kw_only=True)
class _SweepFile(Schema):
    """The keys of W&B that ablations and searches share."""

    REFUSED: ClassVar = dict.fromkeys(("run_cap", "controller", "job", "imageuri", "prior_runs"), CANNOT)
    method: Literal["grid", "random", "bayes"]
    command: list[str]
    name: Text = ""
    description: Any = None
    project: Any = None
    entity: Any = None
    program: Any = None


@dataclass(frozen=True, kw_only=True)
class _Ablation(_SweepFile):
    REFUSED: ClassVar = _SweepFile.REFUSED | {"early_terminate": "in an ablation every row runs to its end; remove it"}
    parameters: dict[str, Listed]
    metric: Metric | None = None


@dataclass(frozen=True, kw_only=True)
class _Search(_SweepFile):
    parameters: dict[str, Spec]
    metric: Metric
    early_terminate: EarlyTerminate | None = None


@dataclass(frozen=True)
class Pruner(Schema):
    """Prunes unpromising trials, by dev perplexity at optimizer steps. `type` is none if nothing is stopped."""

    type: Literal["none", "asha", "hyperband", "median"] = "none"
    min_step: Annotated[int, Ge(0)] = 0
    """first optimizer step at which a trial may be stopped; 0: the first validation"""
    eta: Annotated[int, Ge(2)] = 3
    """of those that reach a rung, one in `eta` continues"""
    startup: Annotated[int, Ge(0)] = 5
    """median: finished trials before the first is stopped"""


@dataclass(frozen=True)
class _Words(Schema):
    """NAME.study.yaml: what people call the study and what it asks; not part of a run's name."""

    title: str = ""
    question: str = ""


@dataclass(frozen=True)
class Beside(_Words):
    """That of a search."""

    sampler: Sampler | None = None
    seed: Annotated[int, Ge(0)] = 0
    trials: Count = 0
    """0 if not given"""
    REFUSED: ClassVar = {"seeds": GONE["tune --seeds"]}
    objectives: dict[str, Goal] = field(default_factory=dict)
    """of OBJECTIVES, or dev/module.Class"""
    constraints: dict[Literal["parameters", "seconds"], Annotated[float, Gt(0)]] = field(default_factory=dict)
    pruner: Pruner = Pruner()
    prune_in_warmup: bool = False
    """trials may be stopped before their own warm-up ends, too"""


Words = TypeVar("Words", bound=_Words)


# --- what the files request ---


@dataclass(frozen=True)
class Sweep:
    """An ablation's content. `arguments` are those of its command and its fixed parameters, as typed."""

    name: str
    path: Path
    rows: list[str]
    seeds: list[int]
    """empty if the file names none: then the experiment's own"""
    arguments: list[str]
    factors: dict[str, list[Any]]
    """fields with several values, of which every row takes all combinations"""
    scales: list[int] = field(default_factory=list)
    """divisors of the paper's widths, a study each; empty: the experiment's own"""
    title: str = ""
    question: str = ""
    metric: str = "dev/ppl"
    """what W&B sorts its runs by; a table tests all that its runs are scored by regardless"""

    def factor_rows(self, rows: list[Row]) -> list[Row]:
        """The rows with every combination of the factors, base first: what a table of the file holds."""
        if not self.factors:
            return rows
        where = str(self.path)
        crossing = [Row("base", "base", {}, Paper(None, None, None), where)]
        for row in rows or crossing[:1]:
            for values in itertools.product(*self.factors.values()):
                change = dict(zip(self.factors, values, strict=True))
                if both := sorted(change.keys() & row.change.keys()):
                    raise UserError(f"{where}: row '{row.name}' changes {both[0]} already: it cannot be varied too")
                words = [f"{key.partition('.')[2]}={value}" for key, value in change.items()]
                name = ", ".join([row.name] * bool(row.change) + words).replace("/", "-")
                label = ", ".join([row.label, *words]) if row.label and row.change else ""
                change = row.change | change
                crossing.append(Row(name, words[0], change, Paper(None, None, None), where, label=label))
        return crossing


@dataclass(frozen=True)
class SearchFile:
    """What the two files request. `arguments` are those of the command and the fixed parameters, as typed."""

    name: str
    file: YamlFile
    method: str
    sampler: str
    objectives: dict[str, str]
    early: EarlyTerminate | None
    arguments: list[str]
    specs: dict[str, Spec]
    """the searched parameters"""
    ties: dict[str, Any]
    """parameters that follow others"""
    beside: Beside
    """what NAME.study.yaml holds"""

    @property
    def path(self) -> Path:
        return self.file.path

    def space(self, base: Experiment) -> list[Parameter]:
        """The searched parameters. Raises UserError where one does not fit `base` or the method."""
        space = [read_parameter(self.file, name, spec, base) for name, spec in self.specs.items()]
        if not space:
            raise UserError(f"{self.file.where('parameters')}: nothing to search: every parameter has one value")
        for p in space:
            where = self.file.where("parameters", p.name)
            if self.sampler == "grid" and p.listed is None:
                raise UserError(f"{where}: {p.name}: {LISTS_ONLY}")
            if self.sampler == "cmaes" and p.distribution == "categorical":
                raise UserError(f"{where}: CMA-ES does not support lists of values: give {p.name} a range, or use tpe")
        if self.sampler == "cmaes" and len(self.objectives) > 1:
            raise UserError(f"{self.path}: CMA-ES supports only one objective, got {', '.join(self.objectives)}")
        if self.sampler == "cmaes" and len(space) < 2:
            raise UserError(f"{self.path}: CMA-ES needs at least two parameters")
        return space

    def steps_of(self, validate_every: int, steps: int) -> Pruner:
        """The pruner on optimizer steps, for runs of `steps` that validate every `validate_every` of them."""
        e = self.early
        if e is None:
            return self.beside.pruner
        validations = e.min_iter if e.min_iter is not None else round((e.max_iter or 0) / e.eta ** (e.s or 0))
        first = max(1, validations) * validate_every
        if first >= steps:
            raise UserError(
                f"{self.file.where('early_terminate')}: its first rung (validation {validations}) is at step {first}, "
                f"but a run has {steps} steps: nothing would ever be stopped; lower it, or --trainer.validate_every"
            )
        return Pruner("asha", first, e.eta)


def is_search(file: YamlFile) -> bool:
    """Whether a sweep file describes a search: a table varies `row`, or it is a grid over seeds."""
    parameters = expect("sweep", file).values.get("parameters")
    if not isinstance(parameters, dict) or not parameters or "row" in parameters:
        return False
    seed = parameters.get("seed")
    return file.values.get("method") != "grid" or not (isinstance(seed, dict) and "values" in seed)


def read_sweep(file: YamlFile | str | Path) -> Sweep:
    """An ablation, of a file or its path. Raises UserError naming file, line, key, value and the nearest valid key."""
    file = file if isinstance(file, YamlFile) else read_yaml(file)
    content = parse_as(_Ablation, file)
    if content.method != "grid":
        raise UserError(f"{file.where('method')}: method={content.method!r}: an ablation needs 'grid'")
    if content.metric is not None:
        _objective(file, ("metric", "name"), content.metric.name, content.metric.goal, SCORES)
    lists = {key: _values(file, key, spec) for key, spec in content.parameters.items()}
    several = len(lists.get(SCALE, ())) > 1
    scales = lists.pop(SCALE) if several else []
    factors = {key: values for key, values in lists.items() if key not in ("row", "seed") and len(values) > 1}
    if "row" not in lists and not factors:
        raise UserError(f"{file.where('parameters')}: an ablation needs the parameter 'row', or fields with 'values'")
    rows, seeds = lists.pop("row", []), lists.pop("seed", [])
    for key, values, kind in (("row", rows, str), ("seed", seeds, int), (SCALE, scales, int)):
        where = file.where("parameters", key)
        for value in values:
            if type(value) is not kind:
                raise UserError(f"{where}: {key}={value!r}: expected {WORDS[kind]}")
        if len(set(values)) < len(values):
            raise UserError(f"{where}: a {key} appears twice")
    for key, values in lists.items():
        where = file.where("parameters", key)
        if "." not in key:
            raise UserError(f"{where}: unknown parameter '{key}': {nearest(key, ('row', 'seed'))}")
        if key in factors:
            for value in values:
                override(Experiment(), {key: value}, where)
            if not_of_rows(key):
                raise UserError(
                    f"{where}: {key} is the same for all rows of a table; vary 'seed', model, training or of the data "
                    f"{', '.join(MAY)}"
                )
            if len({repr(value) for value in values}) < len(values):
                raise UserError(f"{where}: {key}: a value appears twice")
    fixed = [f"--{key}={values[0]}" for key, values in lists.items() if key not in factors]
    name, arguments = content.name or file.path.stem, _command(file, content.command) + fixed
    metric = content.metric.name if content.metric else Sweep.metric
    beside = _beside(file.path, _Words)[1]
    words = (beside.title, beside.question)
    return Sweep(name, file.path, rows, seeds, arguments, factors, scales, *words, metric)


def read_search(file: YamlFile | str | Path) -> SearchFile:
    """A search, of a file or its path. Raises UserError naming file, line, key, value and the nearest valid key.

    `space` reads further.
    """
    file = file if isinstance(file, YamlFile) else read_yaml(file)
    content = parse_as(_Search, file)
    if not content.parameters:
        raise UserError(f"{file.where('parameters')}: parameters={{}}: expected names with values")
    goal = content.metric.goal or "minimize"  # W&B's default
    chief = _objective(file, ("metric", "name"), content.metric.name, goal, SCORES)
    early = content.early_terminate
    if early and (
        {"min_iter", "max_iter", "s"} & set(file.values["early_terminate"]) not in ({"min_iter"}, {"max_iter", "s"})
    ):
        raise UserError(f"{file.where('early_terminate')}: early_terminate needs either min_iter, or max_iter and s")
    beside, more = _beside_search(file.path)
    if beside and early and "pruner" in beside.values:
        raise UserError(
            f"{beside.where('pruner')}: {file.path} already has 'early_terminate'; give only one of the two"
        )
    objectives: dict[str, str] = {chief: goal}
    if beside and more.objectives:
        objectives = {
            _objective(beside, ("objectives", name), name, own, OBJECTIVES): own
            for name, own in more.objectives.items()
        }
    if beside and chief not in objectives:
        where = beside.where("objectives")
        raise UserError(f"{where}: the sweep file's metric {content.metric.name} is not among the objectives")
    if (early or more.pruner.type != "none") and list(objectives) != ["dev/ppl"]:
        raise UserError(
            f"{beside.path if beside else file.where('early_terminate')}: runs are stopped early by dev/ppl, the one "
            f"metric they report while they train; with the objectives {', '.join(objectives)} nothing can be stopped: "
            "remove the pruner or search only by dev/ppl"
        )
    if beside and more.prune_in_warmup and not early and more.pruner.type == "none":
        raise UserError(f"{beside.where('prune_in_warmup')}: prune_in_warmup=true: no pruner is given; remove it")
    sampler = METHODS[content.method]
    if beside and more.sampler:
        sampler = check_sampler(more.sampler, content.method, beside.where("sampler"))
    fixed = {key: spec.value for key, spec in content.parameters.items() if spec.given == ["value"]}
    tied = {
        key: {kind: getattr(spec, kind)}
        for key, spec in content.parameters.items()
        if (kind := "".join(spec.given)) in (expressions.TIE, expressions.OF_BASE) and spec.distribution is None
    }
    for key, tie in tied.items():
        expressions.literal_part({key: tie}, file.where("parameters", key))
    arguments = [f"--{'training.seed' if key == 'seed' else key}={value}" for key, value in fixed.items()]
    return SearchFile(
        name=content.name or file.path.stem,
        file=file,
        method=content.method,
        sampler=sampler,
        objectives=objectives,
        early=early,
        arguments=_command(file, content.command) + arguments,
        specs={key: spec for key, spec in content.parameters.items() if key not in fixed | tied},
        ties=tied,
        beside=more,
    )


def check_sampler(sampler: str, method: str, where: str) -> str:
    """`sampler`, unless it contradicts the sweep file's method (UserError)."""
    if method != "bayes" and sampler != METHODS[method]:
        raise UserError(
            f"{where}: sampler={sampler}: the sweep file says method: {method}; bayes leaves the choice open"
        )
    if method == "bayes" and sampler in ("grid", "random"):
        raise UserError(f"{where}: sampler={sampler}: the sweep file says method: bayes; write method: {sampler} there")
    return sampler


def _beside(path: Path, kind: type[Words]) -> tuple[YamlFile | None, Words]:
    """NAME.study.yaml and its content, checked; defaults if there is none."""
    beside = path.with_name(f"{path.stem}.study.yaml")
    if not beside.is_file():
        return None, kind()
    file = read_yaml(beside)
    content = parse_as(kind, file)
    for key in ("title", "question"):
        one_line(getattr(content, key), key, file.where(key))
    return file, content


def _beside_search(path: Path) -> tuple[YamlFile | None, Beside]:
    file, content = _beside(path, Beside)
    if file is None:
        return None, content
    for key in ("objectives", "constraints"):
        if key in file.values and not file.values[key]:
            raise UserError(f"{file.where(key)}: {key}={file.values[key]!r}: expected names with their values")
    for key in file.values.get("pruner", ()):
        valid = PRUNERS.get(content.pruner.type, ("type",))
        if key not in ("type", *valid):
            raise UserError(f"{file.where('pruner', key)}: unknown key 'pruner.{key}': {nearest(key, valid)}")
    if "pruner" in file.values and content.pruner.type == "none":
        raise UserError(f"{file.where('pruner')}: pruner needs a type: {', '.join(PRUNERS)}")
    return file, content


def _command(file: YamlFile, command: list[str]) -> list[str]:
    """The arguments of a sweep file's command, without '${args}'. Raises UserError."""
    where = file.where("command")
    start = next((start for start in PROGRAMS if command[: len(start)] == start), None)
    if start is None:
        raise UserError(f"{where}: command {' '.join(command)!r}: it must begin with 'lightning-tfm', 'fit'")
    rest = command[len(start) :]
    if rest.count(ARGS) != 1:
        raise UserError(f"{where}: command needs '{ARGS}' once, where row and seed go")
    rest.remove(ARGS)
    for word in rest:
        if "${" in word:
            raise UserError(f"{where}: '{word}' in command: only '{ARGS}' is filled in")
    return rest


def _objective(file: YamlFile, keys: tuple[str, str], name: str, goal: str | None, valid: dict[str, str]) -> str:
    """An objective by its full name: of `valid`, or dev/ and the path of a user-defined metric. Raises UserError."""
    where, own = f"{file.where(*keys)}: {'.'.join(keys)}", name.removeprefix("dev/")
    is_own = own != name and ("." in own or ":" in own)
    if name not in valid and not is_own:
        what = f"{file.where(*keys)}: unknown key '{'.'.join(keys)}'" if keys[1] == name else f"{where}={name!r}"
        raise UserError(f"{what}: {nearest(name, valid)}")
    try:
        metric = METRICS[own] if is_own else None
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    best = valid[name] if metric is None else "minimize" if metric.lower_is_better else "maximize"
    if goal not in (None, best):
        place = keys if keys[1] == name else (keys[0], "goal")
        raise UserError(f"{file.where(*place)}: {'.'.join(place)}={goal!r}: {name} must be {best}d")
    return f"dev/{metric.name}" if metric else name


def _values(file: YamlFile, key: str, spec: Listed) -> list[Any]:
    if (spec.value is None) == (spec.values is None):
        raise UserError(f"{file.where('parameters', key)}: {key} needs either 'value' or 'values'")
    return [spec.value] if spec.values is None else spec.values
