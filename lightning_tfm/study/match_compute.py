"""A row's size that makes it cost as much as base: `solve: {field: model.d_ff, equal: flops}`.

A row with another layer differs from base in parameters and operations, so its effect is that of two changes. A
solved row changes one of its sizes until one of them equals base's again:

    L-lstm-flops: {group: R, change: {model.layer: lstm}, solve: {field: model.d_ff, equal: flops, pieces: 12}}

The field is solved where the row is laid on a base, at the sizes that are trained (of a miniature, its own): of the two
neighbouring sizes the nearer one, so within half a unit of the field. `flops` are those of the whole training
as `plan` predicts them, every step full and sentences of `pieces` on a side; the table has those of the text beside it.
Seconds depend on the machine and are never solved for.
"""

from collections.abc import Iterable
from typing import Any

from lightning_tfm.config import Experiment, override
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.model.size import count_parameters
from lightning_tfm.plural_words import signed
from lightning_tfm.study.cell import PIECES, SOLVE, predicted_cost
from lightning_tfm.study.user_classes import own_classes

OF = "pieces"
FIELDS = {"model.d_ff": "width", "model.d_model": "width", "model.N": "depth", "training.steps": "steps"}
"""what may be solved for, and which divisor of a miniature divides it"""
EQUAL = ("flops", "parameters")
PAIRED = {"model.d_model": 2}
"""at trained sizes: sines and cosines, rotations and norms take pairs of channels"""
MOST = 2**24


def check_solve(key: str, wanted: dict[str, Any], where: str) -> None:
    """Raise UserError where a field cannot be solved for, or not this way."""
    if key not in FIELDS:
        raise UserError(f"{where}: {SOLVE}: field={key}: {nearest(key, FIELDS)}")
    if wanted[SOLVE] not in EQUAL:
        raise UserError(f"{where}: {SOLVE}: equal={wanted[SOLVE]!r}: {nearest(str(wanted[SOLVE]), EQUAL)}")
    pieces = wanted.get(OF, PIECES)
    if isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1:
        raise UserError(f"{where}: {SOLVE}: {OF}={pieces!r}: expected a whole number above 0")


def solve(base: Experiment, change: dict[str, Any], key: str, wanted: dict[str, Any], where: str) -> int:
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
