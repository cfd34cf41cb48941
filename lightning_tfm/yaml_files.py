"""YAML files read strictly, and where the shipped ones are, in a clone or a wheel."""

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml

from lightning_tfm.errors import UserError
from lightning_tfm.schema import Flaw, Kind, make_from, with_control

PACKAGE = Path(__file__).parent
FOLDERS = ("experiments", "sweeps")
TEXT_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
DEEPEST, MOST, LONGEST = 50, 100_000, 100
"""levels of a file, values in it with those that its aliases repeat, and digits of a whole number"""


YES, NO = ("yes", "on"), ("no", "off")
AMBIGUOUS = "!ambiguous"
"""tag of a value that YAML 1.1 and 1.2 read differently"""


class _Ambiguous(yaml.MarkedYAMLError):
    """A value that YAML 1.1 and 1.2 read differently; `problem` says how to write it."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads 1e-9 as a number, as YAML 1.2 does, and refuses what 1.1 and 1.2 read differently."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        plain = kind is yaml.ScalarNode and implicit[0]
        return AMBIGUOUS if plain and _meanings(value) else super().resolve(kind, value, implicit)


def _meanings(text: str) -> str:
    """What may be meant by a value without quotes that YAML 1.1 and 1.2 read differently; empty for any other."""
    if text.lower() in YES + NO and (text.islower() or text.isupper() or text.istitle()):
        return "true" if text.lower() in YES else "false"
    if re.fullmatch(r"[-+]?0[0-9_]+", text):
        decimal = int(text.replace("_", ""))
        octal = int(text.replace("_", ""), 8) if re.fullmatch(r"[-+]?[0-7_]+", text) else decimal
        return f"{decimal}" if octal == decimal else f"{decimal} (or {octal}, if octal was meant)"
    if re.fullmatch(r"[-+]?0o[0-7][0-7_]*", text):
        return f"{int(text.replace('_', ''), 8)}"
    if re.fullmatch(r"[-+]?([1-9][0-9_]*(:[0-5]?[0-9])+|[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*)", text):
        return f"{yaml.safe_load(text)}"
    return ""


def _ambiguous(loader: _Loader, node: yaml.ScalarNode) -> None:
    text = loader.construct_scalar(node)
    raise _Ambiguous(
        problem=f"{text} means different things to YAML 1.1 and 1.2: write {_meanings(text)}, or '{text}' in quotes "
        "for text",
        problem_mark=node.start_mark,
    )


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    """As SafeLoader reads it; longer ones do not become a float, and some not even text."""
    if len(node.value) > LONGEST:
        raise yaml.MarkedYAMLError(problem=f"a number of {len(node.value)} digits", problem_mark=node.start_mark)
    return loader.construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_constructor(AMBIGUOUS, _ambiguous)
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
        """`file:line` of a key, or of the nearest one above it."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return f"{self.path}:{self.lines[keys]}" if keys else str(self.path)


def shipped_folder(folder: str) -> Path:
    """The folder `experiments` or `sweeps` of this package: the clone's, else the wheel's."""
    packed = PACKAGE / "_files" / folder
    return packed if packed.is_dir() else PACKAGE.parent / folder


def find_file(name: str | Path) -> Path:
    """`name` as a path, or else a shipped file by that name (`experiments/base.yaml`). Raises UserError naming both."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise UserError(f"{name}: is a folder; name a file in it")
    if not path.is_absolute() and len(path.parts) == 2 and path.parts[0] in FOLDERS:
        candidate = shipped_folder(path.parts[0]) / path.parts[1]
        if candidate.is_file():
            return candidate
    folders = sorted(FOLDERS, key=lambda folder: folder in path.parts)  # of equal names, the one that was asked for
    ours = {file.stem: f"{folder}/{file.name}" for folder in folders for file in shipped_folder(folder).glob("*.yaml")}
    close = [ours[near] for near in get_close_matches(path.stem, ours, n=1, cutoff=0.75)]
    hint = f"did you mean '{close[0]}'?" if close else f"those that ship are in {' and '.join(FOLDERS)}"
    raise UserError(f"no such file: {name} (searched {Path.cwd()} and the shipped files); {hint}")


def read_yaml(name: str | Path) -> YamlFile:
    """Keys and values of a YAML file. Raises UserError naming file and line where it is not YAML or repeats a key."""
    path = find_file(name)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8") from error
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines: dict[tuple[str, ...], int] = {}
        values: Any = None
        if node is not None:
            if _size(node, {}, DEEPEST) > MOST:
                raise RecursionError
            _index(path, node, (), lines)
            values = loader.construct_document(node)
    except RecursionError:
        raise UserError(
            f"{path}: more than {DEEPEST} levels or {MOST:,} values, those that aliases repeat included"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        wrong = "" if isinstance(error, _Ambiguous) else "not YAML: "
        raise UserError(f"{path}{mark}: {wrong}{error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:  # an invalid date
        raise UserError(f"{path}: not YAML: {error}") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected keys and values, got {values!r}")
    if controlled := with_control(values):
        raise UserError(f"{path}: {controlled!r} holds a control character: remove it")
    return YamlFile(path, values, lines)


def read_word(kind: Any, text: str) -> Any:
    """A word of the command line for a value of `kind`: text unchanged, anything else as in a file."""
    if kind is str or get_args(kind) or not text:  # a list of choices holds text
        return text
    try:  # 010 is ten to whoever types it, and eight to YAML
        plain = kind is int and text.isdecimal() and len(text) <= LONGEST
        return int(text) if plain else yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _size(node: yaml.Node, sizes: dict[int, float], levels: int) -> float:
    """Values below a node, each as often as aliases repeat it; infinite where one holds itself or is too deep."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        below = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
        sizes[id(node)] = 1 + sum(_size(part, sizes, levels - 1) for part in parts) if levels else math.inf
    return sizes[id(node)]


def _index(path: Path, node: yaml.Node, keys: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag not in TEXT_TAGS:
            raise UserError(f"{path}:{line}: YAML does not read the key {key_node.value!r} as text; put it in quotes")
        inner = (*keys, str(key_node.value))
        if inner in lines:
            raise UserError(f"{path}:{line}: '{key_node.value}' appears twice, first on line {lines[inner]}")
        lines[inner] = line
        _index(path, value_node, inner, lines)


def parse_as(kind: type[Kind], file: YamlFile) -> Kind:
    """A file as a dataclass of Schema. Raises UserError naming file, line, key, value and the nearest valid key."""
    try:
        return make_from(kind, file.values)
    except Flaw as flaw:
        raise UserError(f"{file.where(*flaw.keys)}: {flaw}") from None
