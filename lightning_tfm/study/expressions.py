"""Values of a row that follow others: the row's own fields, base's, or whatever makes the row cost as much as base.

    model.d_k: {tie: model.d_model / model.h}     whatever width and heads the row finally has
    model.N: {of_base: 1/3}                       a third of the depth of the base that the row is laid on
    training.average_every: {of_base: 2/5, if: training.average_last}     nothing where that field of base is 0
    model.d_ff: {solve: flops, pieces: 12}        as large as makes the row's operations those of base

The arithmetic knows names of fields (`model.*`, `training.*`), numbers, + - * / and parentheses, and is exact. All at
the paper's scale, before a miniature divides. A row is resolved when it is laid on a base; a fraction in a
field of whole numbers is refused: rounded sizes would not be what the row's name says.
"""

import ast
import operator
from collections.abc import Iterable
from dataclasses import fields
from fractions import Fraction
from typing import Any

from lightning_tfm.config import Experiment, Model, Training, override
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.model.size import count_parameters
from lightning_tfm.plural_words import signed
from lightning_tfm.study.cell import PIECES, predicted_cost
from lightning_tfm.study.user_classes import own_classes

TIE, OF_BASE, IF, SOLVE = "tie", "of_base", "if", "solve"
LONGEST = 200
"""characters of an expression"""
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
REMEDY = "give base other sizes, leave the row out, or declare your own row with the sizes you mean"


def _numbers() -> dict[str, type]:
    """Dotted names of the fields that a tie may read and set, and whether they are int or float."""
    default = Experiment()
    sections: dict[str, Model | Training] = {"model": default.model, "training": default.training}
    kinds = {f"{name}.{f.name}": type(getattr(s, f.name)) for name, s in sections.items() for f in fields(s)}
    return {key: kind for key, kind in kinds.items() if kind in (int, float) and key != "training.seed"}


NUMBERS = _numbers()


def literal_part(change: dict[str, Any], where: str) -> dict[str, Any]:
    """The values of a change that follow nothing. Raises UserError if one that does is malformed."""
    for key, value in change.items():
        if _is_solved(value):
            _check_solve(key, value, where)
        elif isinstance(value, dict):
            _parse_tie(key, value, where)
    return {key: value for key, value in change.items() if not isinstance(value, dict)}


def with_numbers(base: Experiment, change: dict[str, Any], where: str) -> dict[str, Any]:
    """The change with numbers in place of ties, in the same order.

    Raises UserError where a number does not fit its field, or ties form a circle.
    """
    change = {key: value for key, value in change.items() if _acts(base, value)}
    solved = [key for key, value in change.items() if _is_solved(value)]
    tied = {key: value for key, value in change.items() if isinstance(value, dict) and key not in solved}
    trees = {key: _parse_tie(key, value, where) for key, value in tied.items()}
    if not trees and not solved:
        return change
    for key, name in ((key, name) for key, tree in trees.items() for name in _names(tree) if name in solved):
        raise UserError(f"{where}: {key} follows {name}, which is solved for")
    numbers = {key: value for key, value in change.items() if key not in (*trees, *solved)}
    for key in [key for key in trees if OF_BASE in change[key]]:
        share, own = _value(trees.pop(key), base, key, where), _field(base, key)
        what = f"{key} should be {change[key][OF_BASE]} of base's {own}"
        numbers[key] = _fitting(key, share * Fraction(repr(own)), what, where)
    while trees:
        ready = [key for key, tree in trees.items() if not trees.keys() & set(_names(tree))]
        if not ready:
            raise UserError(f"{where}: {', '.join(trees)} are tied to each other in a circle")
        experiment = override(base, numbers, where)
        for key in ready:
            tree = trees.pop(key)
            values = ", ".join(f"{name} {_field(experiment, name)}" for name in dict.fromkeys(_names(tree)))
            what = f"{key} should be {change[key][TIE]}" + (f" with {values}" if values else "")
            numbers[key] = _fitting(key, _value(tree, experiment, key, where), what, where)
    for key in solved:
        numbers[key] = _solve(base, numbers, key, change[key], where)
    return {key: numbers[key] for key in change}


def _is_solved(value: Any) -> bool:
    """Whether a value of a change makes the row cost as much as base."""
    return isinstance(value, dict) and SOLVE in value


def _acts(base: Experiment, value: Any) -> bool:
    """Whether a value of a change takes part over this base."""
    return not isinstance(value, dict) or IF not in value or bool(_field(base, value[IF]))


def _parse_tie(key: str, value: dict[str, Any], where: str) -> ast.expr:
    """The expression of a tie, all its names and operations known."""
    if list(value) not in ([TIE], [OF_BASE], [TIE, IF], [OF_BASE, IF]):
        raise UserError(f"{where}: {key}={value!r}: expected a value, {{{TIE}: EXPRESSION}} or {{{OF_BASE}: NUMBER}}")
    if IF in value and value[IF] not in NUMBERS:
        raise UserError(f"{where}: {key}.{IF}={value[IF]!r}: unknown field: {_near(str(value[IF]))}")
    if key not in NUMBERS:
        raise UserError(
            f"{where}: {key}={value!r}: only numbers of a model or training can follow others: " + _near(key)
        )
    (kind, text) = next(iter(value.items()))
    if isinstance(text, bool) or not isinstance(text, str | int | float) or len(str(text)) > LONGEST:
        raise UserError(f"{where}: {key}.{kind}={text!r}: expected arithmetic such as model.d_model / model.h, or 1/3")
    try:
        tree = ast.parse(str(text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(f"{where}: {key}.{kind}={text!r}: not arithmetic") from None
    _check(tree, f"{where}: {key}.{kind}={text!r}")
    if kind == OF_BASE and _names(tree):
        raise UserError(f"{where}: {key}.{kind}={text!r}: expected a number such as 1/3; fields go into {TIE}")
    return tree


def _near(name: str) -> str:
    return nearest(name, tuple(NUMBERS))


def _check(node: ast.expr, what: str) -> None:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            _check(left, what)
            _check(right, what)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, what)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and abs(number) < 1e12:
            return
        case ast.Attribute(value=ast.Name()):
            if (name := ast.unparse(node)) not in NUMBERS:
                raise UserError(f"{what}: unknown field '{name}': {_near(name)}")
        case _:
            raise UserError(f"{what}: '{ast.unparse(node)}': only fields, numbers, + - * / and parentheses")


def _names(node: ast.expr) -> list[str]:
    return [ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Attribute)]


def _value(node: ast.expr, experiment: Experiment, key: str, where: str) -> Fraction:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            first, second = (_value(part, experiment, key, where) for part in (left, right))
            if isinstance(op, ast.Div) and second == 0:
                raise UserError(f"{where}: {key} should be {ast.unparse(node)}, a division by zero; {REMEDY}")
            return Fraction(OPERATIONS[type(op)](first, second))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, experiment, key, where)
        case ast.Constant(value=number):
            return Fraction(repr(number))
    return Fraction(repr(_field(experiment, ast.unparse(node))))


def _field(experiment: Experiment, name: str) -> int | float:
    section, field = name.split(".")
    number: int | float = getattr(getattr(experiment, section), field)
    return number


def _fitting(key: str, number: Fraction, what: str, where: str) -> int | float:
    """As the field holds it; exact, or refused."""
    if NUMBERS[key] is float:
        return float(number)
    if number.denominator != 1:
        raise UserError(f"{where}: {what}, which is {number}, not a whole number; {REMEDY}")
    if number < 1:
        raise UserError(f"{where}: {what}, which is {number}; {REMEDY}")
    return int(number)


# --- a row's size that makes it cost as much as base: `solve: {field: model.d_ff, equal: flops}` ---
#
# A row with another layer differs from base in parameters and operations, so its effect is that of two changes. A
# solved row changes one of its sizes until one of them equals base's again:
#
#     L-lstm-flops: {group: R, change: {model.layer: lstm}, solve: {field: model.d_ff, equal: flops, pieces: 12}}
#
# The field is solved where the row is laid on a base, at the sizes that are trained (of a miniature, its own): of the
# two neighbouring sizes the nearer one, so within half a unit of the field. `flops` are those of the whole training
# as `plan` predicts them, every step full and sentences of `pieces` on a side; the table has those of the text beside
# it. Seconds depend on the machine and are never solved for.

OF = "pieces"
FIELDS = {"model.d_ff": "width", "model.d_model": "width", "model.N": "depth", "training.steps": "steps"}
"""what may be solved for, and which divisor of a miniature divides it"""
EQUAL = ("flops", "parameters")
PAIRED = {"model.d_model": 2}
"""at trained sizes: sines and cosines, rotations and norms take pairs of channels"""
MOST = 2**24


def _check_solve(key: str, wanted: dict[str, Any], where: str) -> None:
    """Raise UserError where a field cannot be solved for, or not this way."""
    if key not in FIELDS:
        raise UserError(f"{where}: {SOLVE}: field={key}: {nearest(key, FIELDS)}")
    if wanted[SOLVE] not in EQUAL:
        raise UserError(f"{where}: {SOLVE}: equal={wanted[SOLVE]!r}: {nearest(str(wanted[SOLVE]), EQUAL)}")
    pieces = wanted.get(OF, PIECES)
    if isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1:
        raise UserError(f"{where}: {SOLVE}: {OF}={pieces!r}: expected a whole number above 0")


def _solve(base: Experiment, change: dict[str, Any], key: str, wanted: dict[str, Any], where: str) -> int:
    """The value of `key` at the paper's scale, beside the other values of the row's `change`. Raises UserError."""
    unit = getattr(base.miniature, FIELDS[key]) * PAIRED.get(key, 1)
    target = measure(base, wanted, where)

    def at(units: int) -> float:
        return measure(override(base, change | {key: units * unit}, where), wanted, where)

    if at(1) >= at(2):
        raise UserError(f"{where}: {SOLVE}: {key} does not change its {wanted[SOLVE]}")
    if at(1) > target:
        raise UserError(f"{where}: {SOLVE}: even with {key}={unit} it has more {wanted[SOLVE]} than base")
    low, high = 1, 2
    while at(high) < target:
        low, high = high, 2 * high
        if high > MOST:
            raise UserError(f"{where}: {SOLVE}: no {key} gives it as many {wanted[SOLVE]} as base")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) < target else (low, middle)
    return min((low, high), key=lambda units: abs(at(units) - target)) * unit


def measure(experiment: Experiment, wanted: dict[str, Any], where: str) -> float:
    """The quantity made equal, of an experiment at the paper's scale."""
    if own := own_classes(experiment):
        named = ", ".join(own.values())
        raise UserError(f"{where}: {SOLVE}: {named}: only classes that ship are counted before they are built")
    exact, V = experiment.scaled(where), experiment.data.vocab_size
    if wanted[SOLVE] == "parameters":
        return count_parameters(exact.model, V)["total"]
    return predicted_cost(exact, V, wanted.get(OF, PIECES))


def solved_lines(base: Experiment, rows: Iterable[Any]) -> list[str]:
    """What was solved for in each of `rows` (rows.Row), and the remainder."""
    lines = []
    for row in (row.on(base) for row in rows):
        for key, wanted in row.ties.items():
            if SOLVE in wanted:
                target = measure(base, wanted, row.where)
                left = measure(override(base, row.change, row.where), wanted, row.where) / target - 1
                unit = getattr(base.miniature, FIELDS[key])
                value, kind = row.change[key], wanted[SOLVE]
                at = f" at {wanted.get(OF, PIECES)} tokens per sentence" if kind == "flops" else ""
                apart = f"{signed(100 * left, 2)} % left"
                lines.append(f"{row.name}: {key} {value // unit} as trained, for base's {kind}{at}: {apart}")
    return lines
