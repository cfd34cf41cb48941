"""Configuration files and dotted overrides -> an experiment, checked before anything heavy is imported.

jsonargparse merges, left to right, files (`--config`) and overrides (`--model.h 16`) over the defaults of config.py.
What it would report in its own terms is said here in the user's: key, value, file and line, nearest valid key.
"""

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonargparse
import yaml

from lightning_tfm import config
from lightning_tfm.config import Experiment, Hardware, check, from_dict, override, to_dict
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.study.rows import Row, all_rows, apply, check_positions, find_row
from lightning_tfm.yaml_files import YamlFile, find_file, read_yaml

SECTIONS = {f.name: f.type for f in dataclasses.fields(Experiment)} | {"trainer": Hardware}
PLAIN = {
    "row": (str, "a row by name: the experiment becomes this row's (see experiments/table3.yaml)"),
    "seed": (int, "short for --training.seed"),
    "out": (str, "root folder of data, runs and studies [results]"),
}


@dataclass(frozen=True)
class Settings:
    """What the command line and its files ask for. `base` is without the row, at the paper's scale."""

    base: Experiment
    hardware: Hardware
    row: Row | None
    rows: dict[str, Row]
    out: Path
    verb: dict[str, Any] = field(default_factory=dict)
    """the verb's own arguments"""
    files: tuple[str, ...] = ()
    """experiment files, as they were named"""

    @property
    def experiment(self) -> Experiment:
        """`base` with the row's change, at the paper's scale."""
        return self.base if self.row is None else apply(self.base, self.row)

    @property
    def name(self) -> str:
        """What people may call the experiment: its row, else its files."""
        return self.row.name if self.row else "+".join(Path(file).stem for file in self.files) or "experiment"

    @property
    def exact(self) -> Experiment:
        """The experiment at its true sizes, checked. Raises UserError."""
        return checked(self.experiment, self.row.name if self.row else "experiment")


def checked(experiment: Experiment, row: str) -> Experiment:
    """`experiment` at its true sizes. Raises UserError where values contradict each other, naming `row`."""
    exact = experiment.scaled(row)
    try:
        check(exact)
        check_positions(exact.model.positions)
    except UserError as error:
        raise UserError(f"{row}: {error}") from None
    return exact


@cache
def documentation() -> dict[tuple[str, str], str]:
    """(class, field) -> the text that stands below the field in config.py."""
    texts = {}
    for node in ast.parse(Path(config.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for line, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
                    texts[node.name, line.target.id] = ast.literal_eval(below.value)
    return texts


def make_parser(verb: str, description: str, *, experiment: bool = True) -> jsonargparse.ArgumentParser:
    """A parser with --out and, for verbs that take an `experiment`, --config, every field, --row, --rows, --seed."""
    parser = jsonargparse.ArgumentParser(
        prog=f"lightning-tfm {verb}",
        description=description,
        exit_on_error=False,
        allow_abbrev=False,
        print_config=None,
    )
    if not experiment:
        parser.add_argument("--out", type=str, default="results", help=PLAIN["out"][1])
        return parser
    parser.add_argument("--config", action="config", help="YAML file; several merge left to right")
    for name, (kind, text) in PLAIN.items():
        parser.add_argument(f"--{name}", type=kind | None, default=None, help=text)
    parser.add_argument("--print_config", action="store_true", help="print the experiment as YAML and exit")
    parser.add_argument("--rows", type=list[str], default=[], help="file with rows of your own; may be repeated")
    for section, cls in SECTIONS.items():
        group = parser.add_argument_group(f"{section}: {cls.__doc__.splitlines()[0]}")
        for f in dataclasses.fields(cls):
            text = documentation().get((cls.__name__, f.name), "")
            group.add_argument(f"--{section}.{f.name}", type=f.type, default=f.default, help=text.replace("%", "%%"))
    return parser


def parse(parser: jsonargparse.ArgumentParser, argv: Sequence[str]) -> Settings:
    """Settings from arguments. Raises UserError; exits for --help."""
    argv = list(_resolved(argv))
    files = tuple(_values(argv, "--config"))
    for path in files:
        check_file(read_yaml(path))
    try:
        values = parser.parse_args(argv).as_dict()
    except jsonargparse.ArgumentError as error:
        raise _in_the_users_words(parser, argv, str(error)) from None
    hardware = from_dict(Hardware, values.pop("trainer"), "trainer")
    experiment = from_dict(Experiment, {name: values.pop(name) for name in SECTIONS if name in values})
    rows, name, seed = all_rows(values.pop("rows")), values.pop("row"), values.pop("seed")
    if seed is not None:
        experiment = override(experiment, {"training.seed": seed}, "--seed")
    row = None if name is None else find_row(rows, name)
    out = Path(values.pop("out") or "results")
    values.pop("config")
    return Settings(experiment, hardware, row, rows, out, values, files)


def parse_plain(parser: jsonargparse.ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    """The arguments of a verb without an experiment. Raises UserError; exits for --help."""
    try:
        return parser.parse_args(list(argv)).as_dict()
    except jsonargparse.ArgumentError as error:
        raise _in_the_users_words(parser, list(argv), str(error)) from None


def check_file(file: YamlFile) -> None:
    """Raise UserError naming file, line, key, value and the nearest valid key where an experiment file is wrong."""
    valid = [*SECTIONS, *PLAIN, "rows"]
    for key, value in file.values.items():
        if key in PLAIN:
            kind = PLAIN[key][0]
            if value is not None and type(value) is not kind:
                raise UserError(f"{file.where(key)}: {key}={value!r}: expected {kind.__name__}")
        elif key == "rows":
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise UserError(f"{file.where(key)}: rows={value!r}: expected a list of files")
        elif key not in SECTIONS:
            raise UserError(f"{file.where(key)}: unknown key '{key}' (value {value!r}): {nearest(key, valid)}")
        elif not isinstance(value, dict):
            raise UserError(f"{file.where(key)}: {key}={value!r}: expected keys and values")
        else:
            for inner, leaf in value.items():
                try:
                    from_dict(SECTIONS[key], {inner: leaf}, key)
                except UserError as error:
                    raise UserError(f"{file.where(key, str(inner))}: {error}") from None


def printed(settings: Settings) -> str:
    """YAML of the settings, row and seed applied, that --config reads back."""
    return yaml.safe_dump(to_dict(settings.experiment) | {"trainer": to_dict(settings.hardware)}, sort_keys=False)


def _resolved(argv: Sequence[str]) -> Iterator[str]:
    """`argv` with the shipped files of --config found wherever they lie, and --rows as jsonargparse's growing list."""
    previous = ""
    for token in argv:
        key, equals, value = token.partition("=")
        if previous == "--config":
            yield str(find_file(token))
        elif key == "--config" and equals:
            yield f"{key}={find_file(value)}"
        elif key == "--rows":
            yield f"--rows+{equals}{value}"
        else:
            yield token
        previous = token


def _values(argv: Sequence[str], key: str) -> Iterator[str]:
    for token, following in zip(argv, [*argv, ""][1:], strict=True):
        if token == key and following:  # else the parser says that the value is missing
            yield following
        elif token.startswith(f"{key}="):
            yield token.partition("=")[2]


def _in_the_users_words(parser: jsonargparse.ArgumentParser, argv: list[str], message: str) -> UserError:
    known = {option for action in parser._actions for option in action.option_strings}
    for token, following in zip(argv, [*argv, ""][1:], strict=True):
        key, equals, value = token.partition("=")
        if not key.startswith("--") or key == "--":
            continue
        if key not in known:
            said = value if equals else following
            return UserError(f"unknown option '{key}' (value '{said}') on the command line: {nearest(key, known)}")
        section, _, name = key[2:].partition(".")
        if name and section in SECTIONS:
            if not equals and (not following or following.startswith("--")):
                return UserError(f"command line: {key} needs a value")
            try:
                from_dict(SECTIONS[section], {name: yaml.safe_load(value if equals else following)}, section)
            except UserError as error:
                return UserError(f"command line: {error}")
            except yaml.YAMLError:
                continue
    return UserError(f"command line: {' '.join(message.split())}")
