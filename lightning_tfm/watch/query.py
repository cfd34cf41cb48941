"""The language that chooses runs: `model.d_model > 64 and positions == rotary and ppl < 2.2`.

It is read by Python's own parser, and of its result only and, or, not, comparisons, names and values are accepted;
nothing is ever evaluated. A run that has no such value is found neither by a comparison nor by its opposite.
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import eq, ge, gt, le, lt, ne
from statistics import fmean
from typing import Any, Literal, NoReturn

from lightning_tfm.errors import UserError, nearest

LONGEST = 2_000
"""characters"""
OPERATORS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: eq,
    ast.NotEq: ne,
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: gt,
    ast.GtE: ge,
}
SWAPPED: dict[type, type] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
WORD = re.compile(r"[\w.:+-]+")
"""a text that needs no quotes"""
WORDS = {"true": True, "false": False, "none": None}
EXAMPLE = "for example: d_model > 64 and positions == rotary and ppl < 2.2"
Test = Callable[[Any], bool | None]
"""of a run; None if it has no such value"""


@dataclass(frozen=True)
class Field:
    """What runs are queried by. Several texts are several of a run, such as its studies: one of them must fit."""

    name: str
    kind: Literal["number", "text", "truth", "time"]
    of: Callable[[Any], Any]
    """its value for a run; None if there is none"""
    known: tuple[str, ...] = ()
    """texts that it may hold, whether or not a run does"""
    mean: Callable[[Collection[float]], float] = fmean
    """of its values, over the runs of a row"""


@dataclass(frozen=True)
class Query:
    """A condition, and the fields that it names."""

    test: Test
    fields: list[Field]

    def __call__(self, run: Any) -> bool:
        return self.test(run) is True


def parse(text: str, fields: Mapping[str, Field], runs: Collection[Any]) -> Query:
    """The condition `text` over these fields of `runs`. Raises UserError: what is wrong, and what would work.

    A text that no run holds in the field is an error, too: misspelt, it would find nothing, or everything.
    """
    if len(text) > LONGEST:
        raise UserError(f"the condition has {len(text):,} characters, more than {LONGEST:,}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{text.strip()!r} cannot be read: {_hint(text, error)}") from None
    reader = _Reader(text.strip(), fields, runs)
    return Query(reader.test(tree.body), list(dict.fromkeys(reader.named)))


def _hint(text: str, error: BaseException) -> str:
    for wrong, right in ((r"&&|&", "and"), (r"\|\|?", "or"), (r"(?<![<>=!])=(?!=)", "=="), (r"<>", "!=")):
        if found := re.search(wrong, text):
            return f"write {right} in place of {found[0]}"
    if re.search(r"\d[A-Za-z_]|\b0\d|[A-Za-z_]\d*\.\d", text):
        return 'a text that begins with a digit or has one after a dot, and a date, need quotes: "4x", "2026-01-31"'
    return f"{error.msg if isinstance(error, SyntaxError) else 'it is nested too deeply'}; {EXAMPLE}"


def find_field(name: str, fields: Mapping[str, Field]) -> Field:
    """By its whole name, or the part after the dot where no other has it. Raises UserError naming near ones."""
    if name in fields:
        return fields[name]
    short = [whole for whole in fields if whole.rpartition(".")[2] == name]
    if len(short) == 1:
        return fields[short[0]]
    if short:
        raise UserError(f"'{name}' may be {' or '.join(short)}: write the whole name")
    ends: dict[str, str] = {whole.rpartition(".")[2]: whole for whole in reversed(list(fields))}
    near = nearest(name, fields if "." in name else {**ends, **dict.fromkeys(fields)})
    raise UserError(f"no run has a field '{name}': {near}")


class _Reader:
    """Makes tests of a parsed condition."""

    def __init__(self, text: str, fields: Mapping[str, Field], runs: Collection[Any]) -> None:
        self._text, self._fields, self._runs = text, fields, runs
        self.named: list[Field] = []

    def test(self, node: ast.expr) -> Test:
        match node:
            case ast.BoolOp(op=op, values=values):
                tests, decides = [self.test(value) for value in values], isinstance(op, ast.Or)
                return lambda run: _joined([test(run) for test in tests], decides)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.test(operand)
                return lambda run: None if (found := inner(run)) is None else not found
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                parts = [self._compared(*part) for part in zip(sides, ops, others, strict=False)]
                return parts[0] if len(parts) == 1 else lambda run: _joined([part(run) for part in parts], False)
            case ast.Name() | ast.Attribute():
                field = self._field(node)
                if field.kind != "truth":
                    self._refuse(node, f"is not a condition: compare {field.name} with something")
                return field.of
        self._refuse(node, f"is not a condition; {EXAMPLE}")

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Test:
        if isinstance(op, ast.In | ast.NotIn):
            return self._among(left, right, isinstance(op, ast.In))
        if type(op) not in OPERATORS:
            self._refuse(right, "follows 'is', which is unknown here: write ==")
        if not self._names(left) and self._names(right):
            left, right, op = right, left, SWAPPED.get(type(op), type(op))()
        field, compare = self._field(left), OPERATORS[type(op)]
        if field.kind in ("text", "truth") and type(op) not in (ast.Eq, ast.NotEq):
            self._refuse(left, f"is {'text' if field.kind == 'text' else 'true or false'}: compare it by == or !=")
        if field.kind == "number" and self._names(right) and not self._is_none(right):
            other = self._field(right)
            if other.kind != "number":
                self._refuse(right, f"is not a number, as {field.name} is")
            return lambda run: _held(compare, field.of(run), other.of(run))
        value = self._value(field, right)
        if value is None:
            wanted = type(op) is ast.Eq
            if type(op) not in (ast.Eq, ast.NotEq):
                self._refuse(right, "is not a value to compare by order")
            return lambda run: (field.of(run) in (None, (), "", "none")) is wanted
        return lambda run: _held(compare, field.of(run), value)

    def _among(self, left: ast.expr, right: ast.expr, wanted: bool) -> Test:
        """`row in (base, big)`, or `"h1" in row`."""
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            field = self._field(left)
            values = [self._value(field, value) for value in right.elts]
            lacks = wanted if None in values else None
            values += ["none", ""] * (None in values)
            return lambda run: _any_of(field.of(run), lambda value: value in values, wanted, lacks)
        field = self._field(right)
        if field.kind != "text":
            self._refuse(right, "is neither a text nor a list: write (…, …)")
        part = str(left.value if isinstance(left, ast.Constant) else self._word(left)).lower()
        return lambda run: _any_of(field.of(run), lambda value: part in value.lower(), wanted)

    def _names(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name | ast.Attribute)

    def _is_none(self, node: ast.expr) -> bool:
        return self._source(node).lower() == "none"

    def _field(self, node: ast.expr) -> Field:
        if not self._names(node):
            self._refuse(node, f"is not a field; {EXAMPLE}")
        found = find_field(self._source(node), self._fields)
        self.named.append(found)
        return found

    def _value(self, field: Field, node: ast.expr) -> Any:
        """What `field` is compared with. Raises UserError where it can never hold that."""
        value = node.value if isinstance(node, ast.Constant) else self._word(node)
        if isinstance(value, str) and value.lower() in WORDS and field.kind != "text":
            value = WORDS[value.lower()]
        if value is None or self._is_none(node):
            return None
        match field.kind:
            case "number" if type(value) in (int, float):
                return value
            case "truth" if type(value) is bool:
                return value
            case "text" if type(value) in (str, int, float, bool):
                return self._held_by_one(field, value if isinstance(value, str) else self._source(node))
            case "time" if type(value) is str:
                try:
                    return datetime.fromisoformat(value).timestamp()
                except ValueError:
                    pass
        wanted = {"number": "a number", "text": "text", "truth": "true or false", "time": 'a time: "2026-01-31 12:00"'}
        self._refuse(node, f"is not what {field.name} holds: {wanted[field.kind]}")

    def _held_by_one(self, field: Field, value: str) -> str:
        held = {*field.known, *(one for run in self._runs for one in _values(field.of(run)))}
        if held and value not in held:
            raise UserError(f"no run has the {field.name} '{value}': {nearest(value, held)}")
        return value

    def _word(self, node: ast.expr) -> Any:
        """A number with its sign, or a text without quotes."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = node.operand.value if isinstance(node.operand, ast.Constant) else None
            if isinstance(inner, int | float) and not isinstance(inner, bool):
                return -inner if isinstance(node.op, ast.USub) else inner
        source = self._source(node)
        if not WORD.fullmatch(source):
            self._refuse(node, "is not a value: a number, a word, or text in quotes")
        return source

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ""

    def _refuse(self, node: ast.expr, why: str) -> NoReturn:
        raise UserError(f"{self._source(node)!r} {why}")


def _joined(found: list[bool | None], decides: bool) -> bool | None:
    """`or` where True decides, else `and`."""
    return decides if decides in found else None if None in found else not decides


def _held(compare: Callable[[Any, Any], bool], mine: Any, other: Any) -> bool | None:
    if isinstance(mine, tuple):
        equal = _any_of(mine, lambda value: value == other, True)
        return equal if equal is None or compare is eq else not equal
    return compare(mine, other) if _values(mine) and _values(other) else None


def _any_of(mine: Any, fits: Callable[[Any], bool], wanted: bool, lacks: bool | None = None) -> bool | None:
    """`lacks`: of a run that has no such value."""
    values = _values(mine)
    return any(map(fits, values)) is wanted if values else lacks


def _values(mine: Any) -> tuple[Any, ...]:
    """None for what is missing, and NaN."""
    return mine if isinstance(mine, tuple) else () if mine is None or mine != mine else (mine,)
