"""The requested experiment: files and single settings, merged left to right, for the command line and Python.

A setting is a dotted key with its value (`model.h`, 16), or one of `row`, `seed`, `out` and `rows`, all of which may
also be in a file.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.config import WORDS, Experiment, Hardware, from_dict, to_dict
from lightning_tfm.config_validation import check, check_ranges
from lightning_tfm.errors import UserError
from lightning_tfm.gone import refuse
from lightning_tfm.study.file_kind import expect
from lightning_tfm.study.preflight import check_hardware, check_scoring
from lightning_tfm.study.ratios import FOLLOW, HOLD, SEEN, BudgetRequest
from lightning_tfm.study.user_classes import own_classes
from lightning_tfm.yaml_files import read_yaml

if TYPE_CHECKING:
    from lightning_tfm.study.ratios import Regime
    from lightning_tfm.study.rows import Row

SECTIONS: dict[str, Any] = {f.name: f.type for f in fields(Experiment)} | {"trainer": Hardware}
PLAIN: dict[str, type] = {"row": str, "seed": int, "out": str}
NAMED = ("model", "training", "miniature")
"""sections whose typed values name a run; those of data may be folders"""
TYPED = "command line"
"""where a setting was written that no file holds"""
APPENDED = "rows+"
"""as `rows`, in addition to those given before"""

Setting = tuple[str, Any, str]
"""key, value, and where it was written, for errors"""


@dataclass(frozen=True)
class Settings:
    """What files and single settings request. `base` is without the row, at the paper's scale."""

    base: Experiment
    hardware: Hardware
    row: "Row | None"
    read_rows: Callable[[], dict[str, "Row"]] = field(compare=False)
    """reads all existing rows, once: a run without a row reads none"""
    out: Path
    verb: dict[str, Any] = field(default_factory=dict)
    """a verb's own arguments"""
    files: tuple[str, ...] = ()
    """experiment files, as named"""
    typed: frozenset[str] = frozenset()
    """dotted keys that the command line itself gives"""
    held: BudgetRequest | None = None
    """that `base` still needs its regime by the paper's ratios (study/ratios.py), which requires its text"""
    regime: "Regime | None" = None
    """by which it got it"""

    @property
    def rows(self) -> dict[str, "Row"]:
        return self.read_rows()

    @property
    def experiment(self) -> Experiment:
        """`base` with the row's change, at the paper's scale."""
        if self.row is None:
            return self.base
        from lightning_tfm.study.rows import apply

        return apply(self.base, self.row)

    @property
    def name(self) -> str:
        """What people may call the experiment: its row, else its files; and what the command line changes."""
        name = self.row.name if self.row else "+".join(Path(file).stem for file in self.files) or "experiment"
        typed = (key.partition(".") for key in sorted(self.typed - {HOLD, SEEN}) if key.partition(".")[0] in NAMED)
        changed = (f"{field}={getattr(getattr(self.base, section), field)}" for section, _, field in typed)
        return " ".join([name, *(word for word in changed if not word.startswith("seed="))])

    @property
    def exact(self) -> Experiment:
        """The experiment at its true sizes, checked. Raises UserError."""
        return check_experiment(self.experiment, self.row.name if self.row else "experiment")


def check_experiment(experiment: Experiment, row: str) -> Experiment:
    """`experiment` at its true sizes. Raises UserError where values contradict each other, naming `row`."""
    try:
        for section in fields(experiment):  # at the scale at which they were written
            check_ranges(getattr(experiment, section.name), section.name)
    except UserError as error:
        raise UserError(f"{row}: {error}") from None
    exact = experiment.scaled(row)
    try:
        check(exact)
        check_scoring(exact.evaluation)
        own_classes(exact)
    except UserError as error:
        raise UserError(f"{row}: {error}") from None
    return exact


def load_experiment(*files: str | Path, row: str | None = None, seed: int | None = None) -> Experiment:
    """The experiment of YAML files merged left to right, as the command line reads them, with a row's change applied.

    At the paper's scale: call `.scaled()` for the true sizes. A file's `trainer` (hardware) is ignored. Raises
    UserError naming file, line, key and the nearest valid one.
    """
    settings = [setting for file in files for setting in in_file(file)]
    settings += [(key, value, "Python") for key, value in (("row", row), ("seed", seed)) if value is not None]
    merged = merge(settings)
    if merged.held:
        raise UserError(
            f"{merged.held.where}: {HOLD}=ratios takes the text: load what `fit --config … --print_config` prints"
        )
    return merged.experiment


def _is_foreign(name: str) -> bool:
    from lightning_tfm.suggestions import FOREIGN  # only where something is wrong

    return name in FOREIGN


def in_file(name: str | Path) -> Iterator[Setting]:
    """The settings of an experiment file. Raises UserError where it is not YAML, or a section is not a mapping."""
    file = expect("experiment", read_yaml(name))
    for key, value in file.values.items():
        if key not in SECTIONS:
            yield key, value, file.where(key)
        elif not isinstance(value, dict):
            raise UserError(f"{file.where(key)}: {key}={value!r}: expected keys and values")
        else:
            yield from ((f"{key}.{inner}", leaf, file.where(key, str(inner))) for inner, leaf in value.items())


def merge(settings: Iterable[Setting], base: Experiment | None = None) -> Settings:
    """Settings over `base` (the paper's base model), later ones over earlier ones.

    Raises UserError naming where it was written, key, value and the nearest valid key.
    """
    sections = to_dict(base or Experiment()) | {"trainer": {}}
    plain: dict[str, Any] = dict.fromkeys(PLAIN)
    files: list[str] = []
    written = sections["training"]["seed"]
    requested: dict[str, tuple[Any, str]] = {}
    given: dict[str, tuple[Any, str]] = {}
    """what HOLD derives, where files do not give it before HOLD"""
    seeds: dict[str, dict[str, Any]] = {}
    """file, or "" for the command line -> what `seed` and `training.seed` were last given there"""
    for key, value, where in settings:
        if key in ("seed", "training.seed"):
            here = seeds.setdefault(where.rpartition(":")[0], {})
            here[key] = value
            if None not in here.values() and len(set(map(str, here.values()))) > 1:
                both = " and ".join(f"{name}={seed}" for name, seed in here.items())
                raise UserError(f"{where}: {both}: two names of one setting; give one of them")
        if key == "seed" and value is None:  # resets what `seed` set, not what training.seed did
            sections["training"]["seed"] = written
        # one field by two names: the later one counts
        if key in (HOLD, SEEN):
            requested[key] = (value, where)
            for part, name in FOLLOW if key == HOLD else ():  # over what was set before it
                sections[part][name] = getattr(SECTIONS[part], name)
            continue
        section, _, name = ("training.seed" if key == "seed" and type(value) is int else key).partition(".")
        if section in sections and name and (hasattr(SECTIONS[section], name) or not _is_foreign(name)):
            try:
                sections[section][name] = getattr(from_dict(SECTIONS[section], {name: value}, section), name)
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
            written = sections["training"]["seed"] if key == "training.seed" else written
            if (section, name) in FOLLOW and (HOLD in requested or where == TYPED):
                given[key] = (sections[section][name], where)
        elif key in PLAIN:
            if value is not None and type(value) is not PLAIN[key]:
                raise UserError(f"{where}: {key}={value!r}: expected {WORDS[PLAIN[key]]}")
            plain[key] = value
        elif key in ("rows", APPENDED):
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise UserError(f"{where}: rows={value!r}: expected a list of files")
            files = value if key == "rows" else [*files, *value]
        else:
            refuse(key, where=where)
            from lightning_tfm.suggestions import suggestion

            fields_of = [f"{part}.{f.name}" for part, cls in SECTIONS.items() for f in fields(cls)]
            name = key.rpartition(".")[2]
            of_a_field = _is_foreign(name) or any(field.endswith(f".{name}") for field in fields_of)
            valid = [*(fields_of if of_a_field else [*SECTIONS, "rows"]), *PLAIN]
            raise UserError(f"{where}: unknown key '{key}' (value {value!r}): {suggestion(key, valid)}")
    hardware = from_dict(Hardware, sections.pop("trainer"))
    check_hardware(hardware)
    experiment = from_dict(Experiment, sections)

    @cache
    def rows() -> dict[str, "Row"]:
        from lightning_tfm.study.rows import all_rows

        return all_rows(files)

    row = None
    if files or plain["row"] is not None:
        from lightning_tfm.study.rows import find_row

        by_name = rows()
        row = None if plain["row"] is None else find_row(by_name, plain["row"])
    root = Path(plain["out"] or "results")
    return Settings(experiment, hardware, row, rows, root, held=BudgetRequest.of(requested, given))


# --- a smoke test: ten steps of everything that a command would train, in a folder apart from results ---

SMOKE_STEPS = 10
"""enough to validate, to write a checkpoint and to score"""
SHORTENED = tuple(f"training.{name}" for name in "steps warmup average_last average_every".split())
"""what is the same for all runs of a smoke test"""


def smoke_test(settings: Settings) -> Settings:
    """`settings` with SMOKE_STEPS steps of base and of its row, in their own folder; no ratios decide their regime."""
    base, t = settings.base, settings.base.training
    t = replace(t, average_last=min(t.average_last, 2), average_every=min(t.average_every, SMOKE_STEPS // 2))
    t = replace(t, steps=SMOKE_STEPS, warmup=min(t.warmup, SMOKE_STEPS // 2))
    base = replace(base, training=t, miniature=replace(base.miniature, steps=1))
    hardware = replace(settings.hardware, validate_every=0, checkpoint_every=0)
    row = settings.row and smoke_row(settings.row, base)
    return replace(settings, base=base, hardware=hardware, row=row, out=smoke_folder(settings.out), held=None)


def smoke_folder(out: Path) -> Path:
    return out if out.name == "smoke" else out / "smoke"


def smoke_row(row: "Row", base: Experiment) -> "Row":
    """`row` with base's steps where it has its own."""
    of_base = {key: getattr(base.training, key.partition(".")[2]) for key in SHORTENED if key in row.change}
    return replace(row, change=row.change | of_base)
