"""YAML files read strictly, and where files lie: the shipped ones in a clone or a wheel, the user's modules."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lightning_tfm.errors import UserError, nearest

PACKAGE = Path(__file__).parent
FOLDERS = ("experiments", "sweeps")


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads 1e-9 as a number, as YAML 1.2 does."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


@dataclass(frozen=True)
class YamlFile:
    """One file's content, and the line of every key."""

    path: Path
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int]

    def where(self, *keys: str) -> str:
        """`file:line` of a key, of the file alone where there is no such key."""
        return f"{self.path}:{self.lines[keys]}" if keys in self.lines else str(self.path)


def shipped(folder: str) -> Path:
    """The folder `experiments` or `sweeps` of this package: the clone's, else the wheel's."""
    packed = PACKAGE / "_files" / folder
    return packed if packed.is_dir() else PACKAGE.parent / folder


def see_working_directory() -> None:
    """Let modules of the user's be imported from the working directory, as `python -m` does and a script does not."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def find_file(name: str | Path) -> Path:
    """`name` as a path, or else a shipped file by that name (`experiments/base.yaml`). Raises UserError naming both."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if not path.is_absolute() and len(path.parts) == 2 and path.parts[0] in FOLDERS:
        candidate = shipped(path.parts[0]) / path.parts[1]
        if candidate.is_file():
            return candidate
    ours = sorted(f"{folder}/{file.name}" for folder in FOLDERS for file in shipped(folder).glob("*.yaml"))
    raise UserError(
        f"no such file: {name} (looked in {Path.cwd()} and among the shipped ones); {nearest(str(name), ours)}"
    )


def read_yaml(name: str | Path) -> YamlFile:
    """Keys and values of a YAML file. Raises UserError naming file and line where it is not YAML or repeats a key."""
    path = find_file(name)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8") from error
    try:
        node = yaml.compose(text, Loader=_Loader)
        lines: dict[tuple[str, ...], int] = {}
        if node is not None:
            _index(path, node, (), lines)
        values = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise UserError(f"{path}:{where}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected keys and values, got {values!r}")
    for key in values:
        if not isinstance(key, str):
            raise UserError(f"{path}: the key {key!r} is read as a {type(key).__name__}; put it in quotes")
    return YamlFile(path, values, lines)


def _index(path: Path, node: yaml.Node, keys: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        inner = (*keys, str(key_node.value))
        if inner in lines:
            raise UserError(f"{path}:{line}: '{key_node.value}' stands here twice, first in line {lines[inner]}")
        lines[inner] = line
        _index(path, value_node, inner, lines)
