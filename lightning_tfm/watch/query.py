"""Which runs a condition finds, in SQL: `d_model > 64 and positions = 'rotary' and ppl < 2.2`.

SQLite reads it, over a table in memory that it may only compare the columns of. A run with several texts in a field,
such as its studies, has a line for each. What a run lacks is NULL: found neither by a comparison nor by its opposite.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from statistics import fmean
from typing import Any, Literal

from lightning_tfm.errors import UserError, nearest

LONGEST = 2_000
"""characters"""
SECONDS = 2.0
"""that a condition may take"""
FUNCTIONS = ("abs", "coalesce", "count", "glob", "length", "like", "lower", "max", "min", "round", "upper")
ACTIONS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
TOKEN = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\d+\.?\d*(?:[eE][+-]?\d+)?|[^\W\d]\w*(?:\.\w+)*|[<>=!]+|\S""")
"""a text, a field in quotes, a number, a word or field, a comparison, or a single sign"""
COMPARISONS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")
TIME = re.compile(r"\d{4}(-\d\d(-\d\d( \d\d:\d\d(:\d\d)?)?)?)?")
EXAMPLE = "for example: d_model > 64 and positions = 'rotary' and ppl < 2.2"


@dataclass(frozen=True)
class Field:
    """What runs are queried by."""

    name: str
    kind: Literal["number", "text", "truth", "time"]
    of: Callable[[Any], Any]
    """its value for a run; a tuple of several texts; None if there is none"""
    known: tuple[str, ...] = ()
    """texts that it may hold, whether or not a run does"""
    mean: Callable[[Collection[float]], float] = fmean
    """of its values, over the runs of a row"""


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


def find_runs(text: str, fields: Mapping[str, Field], runs: Sequence[Any]) -> tuple[list[Any], list[Field]]:
    """The runs that a condition finds, in their order, and the fields that it names; all runs for an empty one.

    Raises UserError. A text that no run holds in the field is an error, too: misspelt, it would find nothing, or all.
    """
    if len(text) > LONGEST:
        raise UserError(f"the condition has {len(text):,} characters, more than {LONGEST:,}")
    tokens = TOKEN.findall(text)
    if not tokens:
        return list(runs), []
    if text.count("'") % 2:
        raise UserError(f"{text.strip()!r}: a text begins and ends with a single quote; {EXAMPLE}")
    named = {token: field for token in tokens if (field := _field_named(token, fields)) is not None}
    _check(tokens, named, runs)
    columns = list({field.name: field for field in named.values()}.values())
    words = [_quote(named[token].name) if token in named else token for token in tokens]
    try:
        return [runs[i] for i in _matching_indices(" ".join(words), columns, runs)], columns
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise UserError(_explanation(str(error), fields)) from None


def _field_named(token: str, fields: Mapping[str, Field]) -> Field | None:
    """The field that a token names; in quotes it must."""
    if token.startswith('"') or token in fields or any(name.endswith(f".{token}") for name in fields):
        return _field(token.strip('"'), fields)
    return None


def _field(name: str, fields: Mapping[str, Field]) -> Field:
    try:
        return find_field(name, fields)
    except UserError as unknown:
        raise UserError(f"{unknown}; a text is written in single quotes: '{name}'") from None


def _check(tokens: Sequence[str], named: Mapping[str, Field], runs: Sequence[Any]) -> None:
    """Raise UserError where SQL would find something else than it reads like, or compare what cannot be equal."""
    for i, token in enumerate(tokens):
        if token in COMPARISONS and len(tokens) > i + 1:
            left, right = (tokens[i - 1], tokens[i + 1]) if i else ("", "")
            if len(tokens) > i + 2 and tokens[i + 2] in COMPARISONS:
                raise UserError(f"'{' '.join(tokens[i - 1 : i + 4])}': two comparisons are joined by and")
            if right.lower() in ("null", "none"):
                raise UserError(f"'{left} {token} {right}': what is missing is found by {left} is null, or is not null")
            for field, value in ((named.get(left), right), (named.get(right), left)):
                if field is not None:
                    _check_value(field, value, runs, token in ("=", "==", "!=", "<>"))
        if token.lower() == "in" and (field := named.get(tokens[i - 2 if tokens[i - 1].lower() == "not" else i - 1])):
            for value in tokens[i + 1 : (tokens.index(")", i) if ")" in tokens[i:] else i)]:
                _check_value(field, value, runs, True)


def _check_value(field: Field, value: str, runs: Sequence[Any], exact: bool) -> None:
    text = value[1:-1].replace("''", "'") if value.startswith("'") else None
    if text is None:
        if value[:1].isdigit() and field.kind in ("text", "time"):
            raise UserError(f"{field.name} is no number: write {value} in single quotes")
    elif field.kind == "time":
        if not TIME.fullmatch(text):
            raise UserError(f"{field.name}: {value} is no time such as '2026-01-31' or '2026-01-31 12:00'")
    elif field.kind != "text":
        wanted = "a number" if field.kind == "number" else "true or false"
        raise UserError(f"{field.name}: {value} is text; compare it with {wanted}, without quotes")
    elif exact:
        values = {
            *field.known,
            *(held_value for run in runs for held_value in _values(field, run) if held_value is not None),
        }
        if values and text not in values:
            raise UserError(f"no run has the {field.name} '{text}': {nearest(text, values)}")


def _matching_indices(where: str, columns: Sequence[Field], runs: Sequence[Any]) -> list[int]:
    """Places of the runs."""
    base, until = sqlite3.connect(":memory:"), time.monotonic() + SECONDS

    def allowed(action: int, first: str | None, second: str | None, *_: object) -> int:
        ours = first == "runs" if action == sqlite3.SQLITE_READ else True
        safe = second in FUNCTIONS if action == sqlite3.SQLITE_FUNCTION else True
        return sqlite3.SQLITE_OK if action in ACTIONS and ours and safe else sqlite3.SQLITE_DENY

    try:
        base.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
        heads = ["#", *(field.name for field in columns)]
        base.execute(f"create table runs ({', '.join(map(_quote, heads))})")
        lines = ((i, *line) for i, run in enumerate(runs) for line in product(*(_values(f, run) for f in columns)))
        base.executemany(f"insert into runs values ({', '.join('?' * len(heads))})", lines)
        base.set_authorizer(allowed)
        base.set_progress_handler(lambda: time.monotonic() > until, 1_000)
        return [place for (place,) in base.execute(f'select distinct "#" from runs where ({where}) order by "#"')]
    finally:
        base.close()


def _values(field: Field, run: Any) -> tuple[Any, ...]:
    """As SQLite compares them; one None for nothing."""
    value = field.of(run)
    if isinstance(value, tuple):
        return value or (None,)
    if field.kind == "time" and value is not None:
        return (f"{datetime.fromtimestamp(value):%Y-%m-%d %H:%M:%S}",)
    if isinstance(value, int) and abs(value) >= 2**63:
        return (float(value),)
    return (str(value) if field.kind == "text" and value is not None else value,)


def _quote(name: str) -> str:
    return f'"{name}"'


def _explanation(error: str, fields: Mapping[str, Field]) -> str:
    """SQLite's words in the user's."""
    word = error.rpartition(": ")[2]
    if error.startswith("no such column"):
        _field(word, fields)
    if error.startswith("no such table"):
        return f"'in {word}': a list is written in brackets; a part of a text is found by FIELD like '%part%'"
    if error == "interrupted":
        return f"the condition takes more than {SECONDS:g} seconds"
    if "authorized" in error or "prohibited" in error:
        return f"a condition compares fields, and knows the functions {', '.join(FUNCTIONS)}"
    return f"{error}; {EXAMPLE}"
