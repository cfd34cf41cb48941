"""Rows: base + a declared change -> an experiment, and its identity."""

import shlex
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Protocol
from unicodedata import normalize

from annotated_types import Gt, MinLen

from lightning_tfm.config import Data, Experiment, override
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.gone import GONE, refuse
from lightning_tfm.schema import Flaw, Number, Schema, make_from
from lightning_tfm.study import expressions
from lightning_tfm.study.command import with_out
from lightning_tfm.study.file_kind import expect
from lightning_tfm.study.user_classes import own_classes
from lightning_tfm.yaml_files import YamlFile, read_yaml

TABLE3 = "experiments/table3.yaml"
WORDS = ("label", "elsewhere")
"""keys that hold a line of words"""
ROW_DATA = tuple(
    f"data.{name}"
    for name in (
        "train pairs vocab_size byte_fallback share max_words max_ratio check_encoding check_script drop_duplicates"
    ).split()
)
"""what a row may change in the data, getting its own: training text and pieces; never what is scored. Rows of earlier
studies hold what is gone, too"""
MAY = tuple(key for key in (*ROW_DATA, "data.max_len") if key not in GONE)
"""all that a row may change in the data"""


def not_of_rows(key: str) -> bool:
    """Whether a field must be the same for all rows of a table."""
    section = key.partition(".")[0]
    return (section in ("data", "evaluation", "miniature") and key not in MAY) or key == "training.seed"


@dataclass(frozen=True)
class Paper:
    """What the paper prints for a row, None if it leaves a blank or the row is not the paper's."""

    ppl: Number | None
    """dev perplexity per piece"""
    bleu: Number | None
    """dev BLEU"""
    params: int | None
    """parameters in millions"""

    @property
    def printed(self) -> bool:
        return (self.ppl, self.bleu, self.params) != (None, None, None)

    def of(self, metric: str) -> float | None:
        """What it prints in a metric; None also if it has no such column."""
        return getattr(self, metric, None)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    group: str
    change: dict[str, Any]
    """dotted keys and values at the paper's scale; a value may follow others (study/expressions.py)"""
    paper: Paper
    where: str
    """file:line that declares it"""
    ties: dict[str, Any] = field(default_factory=dict)
    """of a row laid on a base, where `change` holds numbers: what its values follow"""
    elsewhere: str = ""
    """what others print about this change, with the source: words beside the table, compared with nothing"""
    label: str = ""
    """what people call it, shown beside its name; not part of a run's name"""
    place: int | None = None
    """of a hidden row: its line in the table when it was hidden, from 1"""

    def on(self, base: Experiment) -> "Row":
        """This row laid on `base`: then it holds numbers. Raises UserError where its sizes are not whole there."""
        if not any(isinstance(value, dict) for value in self.change.values()):
            return self
        change = expressions.with_numbers(base, self.change, f"{self.where}: row '{self.name}'")
        tied = {key: value for key, value in self.change.items() if key in change and change[key] != value}
        return replace(self, change=change, ties=tied)

    @property
    def declared(self) -> "Row":
        """As it was before it was laid on a base."""
        return replace(self, change=self.change | self.ties, ties={})


Printed = Annotated[Number, Gt(0)] | None


@dataclass(frozen=True)
class _Solve(Schema):
    """What makes a row cost as much as base (study/expressions.py)."""

    field: str
    equal: str
    pieces: int | None = None


@dataclass(frozen=True)
class _Line(Schema):
    """A row as in a file."""

    group: Annotated[str, MinLen(1)]
    change: dict[str, Any]
    PPL: Printed = None
    BLEU: Printed = None
    params: Annotated[int, Gt(0)] | None = None
    label: str = ""
    elsewhere: str = ""
    solve: _Solve | None = None


def base_of(rows: Iterable[Row]) -> str | None:
    """The row that changes nothing, whatever its name: the paper's if there are several."""
    plain = [row for row in rows if not row.change]
    return next((row.name for row in sorted(plain, key=lambda row: not row.paper.printed)), None)


def load_rows(path: str | Path) -> list[Row]:
    """The rows of one file. Raises UserError naming file, line, row, key and the nearest valid one."""
    file = expect("rows", read_yaml(path))
    rows = [_row(file, name, values) for name, values in file.values.items()]
    if not rows:
        raise UserError(f"{file.path}: holds no rows")
    return rows


def all_rows(extra: Iterable[str | Path] = ()) -> dict[str, Row]:
    """The paper's rows and those of further files, by name.

    Raises UserError where two share a name, be it spelt by other code points (é by one or two) or with other blanks.
    """
    rows: dict[str, Row] = {}
    for path in (TABLE3, *extra):
        for row in load_rows(path):
            letters = " ".join(normalize("NFC", row.name).split())
            if (before := rows.setdefault(letters, row)) is not row:
                raise UserError(f"{row.where}: the row '{row.name}' is already declared in {before.where}")
    return {row.name: row for row in rows.values()}


def find_row(rows: dict[str, Row], name: str) -> Row:
    """The row of that name. Raises UserError naming those near it."""
    if name not in rows:
        raise UserError(f"no row '{name}': {near_rows(name, rows)}")
    return rows[name]


def near_rows(name: str, rows: Collection[str]) -> str:
    """A clause that names the rows near a wrong name, or the valid ones."""
    near = get_close_matches(name, rows, n=4, cutoff=0.6)
    return f"near it: {', '.join(near)}" if near else nearest(name, rows)


def apply(base: Experiment, row: Row, seed: int | None = None) -> Experiment:
    """`base` with the row's change, and with `seed` unless it is None; at the paper's scale (see Experiment.scaled)."""
    seeded = {} if seed is None else {"training.seed": seed}
    change = {key: value for key, value in row.on(base).change.items() if key not in GONE}
    return override(base, change | seeded, f"{row.where}: row '{row.name}'")


def _row(file: YamlFile, name: str, values: Any) -> Row:
    if name in ("", ".", "..") or "/" in name or not name.isprintable() or len(name.encode()) > 255:
        raise UserError(
            f"{file.where(name)}: {name[:60]!r} is not a valid name of a row: it is also the name of a folder, in one "
            "line, without / and of at most 255 bytes"
        )
    where = f"{file.where(name)}: row '{name}'"
    try:
        line = make_from(_Line, values)
    except Flaw as flaw:
        raise UserError(f"{file.where(name, *flaw.keys)}: row '{name}': {flaw}") from None
    change = line.change | _solve_value(line, where)
    for key, value in change.items():
        refuse(key, where=where)
        if not_of_rows(key):
            raise UserError(
                f"{where}: '{key}' (value {value!r}) must be the same for all rows of a table: set it in "
                f"the experiment file; a row changes model, training and, of the data, {', '.join(MAY)}"
            )
    for key in WORDS:
        one_line(getattr(line, key), key, f"{file.where(name, key)}: row '{name}'")
    paper = Paper(line.PPL, line.BLEU, line.params)
    changed = override(Experiment(), expressions.literal_part(change, where), where)
    try:
        own_classes(changed)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    words = {key: getattr(line, key) for key in WORDS}
    return Row(name, line.group, change, paper, file.where(name), **words)


def one_line(value: Any, key: str, where: str) -> None:
    """Raise UserError unless the key holds one line of words."""
    if not isinstance(value, str) or value != " ".join(value.split()):
        raise UserError(f"{where}: {key}={value!r}: expected one line of words")


def _solve_value(line: _Line, where: str) -> dict[str, Any]:
    """`solve: {field: F, equal: flops}` as a value of the change (study/expressions.py)."""
    if line.solve is None:
        return {}
    if line.solve.field in line.change:
        raise UserError(f"{where}: it changes {line.solve.field}, which is solved for")
    pieces = {} if line.solve.pieces is None else {"pieces": line.solve.pieces}
    return {line.solve.field: {expressions.SOLVE: line.solve.equal} | pieces}


class PreparedText(Protocol):
    """Prepared data, as far as rows know them (data/prepare.py)."""

    @property
    def train_fingerprint(self) -> str: ...

    def fingerprint(self, split: str) -> str: ...


@dataclass(frozen=True)
class Fingerprints:
    """What the prepared data contributes to the two hashes."""

    train: str
    dev: str
    test: str = field(default="", compare=False)
    """empty where there is no such text, as is `long`, and in studies from before 2026-11-25: `differing` compares"""
    long: str = field(default="", compare=False)

    @classmethod
    def of(cls, prepared: PreparedText, data: Data) -> "Fingerprints":
        """Those of the prepared `data`."""
        held_out = (prepared.fingerprint(split) if split else "" for split in (data.dev, data.test, data.long))
        return cls(prepared.train_fingerprint, *held_out)

    def known(self) -> dict[str, str]:
        """Role -> fingerprint, of the texts that are known."""
        return {role: text for role, text in asdict(self).items() if text}

    def differing(self, other: "Fingerprints") -> list[str]:
        """Roles of the texts that both know and that differ."""
        theirs = other.known()
        return [role for role, text in self.known().items() if theirs.get(role, text) != text]


def differences(wanted: dict[str, Any], there: dict[str, Any], asker: str, prefix: str = "") -> list[str]:
    """One phrase for each leaf in which two nested dicts differ: `model.h is 8, the cell asks for 16`."""
    phrases = []
    for key in sorted(wanted.keys() | there.keys()):
        a, b = wanted.get(key), there.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            phrases += differences(a, b, asker, f"{prefix}{key}.")
        elif a != b:
            phrases.append(f"{prefix}{key} is {_short(b)}, {asker} {_short(a)}")
    return phrases


def other_rows(rows: Iterable[Row], study: Iterable[Row]) -> dict[str, str]:
    """Row -> in what it is not the study's row of that name; both are laid on one base."""
    before = {row.name: row.change for row in study}
    return {
        row.name: f"row '{row.name}' changes {row.change}, the study has {before[row.name]}"
        for row in rows
        if before.get(row.name, row.change) != row.change
    }


def how_to_change(study: str, row: str, root: Path) -> str:
    """What to do where a row is another one in the file."""
    hide = with_out(f"lightning-tfm study hide {study} {shlex.quote(row)}", root)
    return (
        f"put the old change back, give the new one another name, or hide the old one ({hide}; its runs stay) and "
        "repeat the sweep, which trains the row as it is now"
    )


def _short(value: Any) -> str:
    text = str(value) or "empty"
    return text if len(text) <= 16 else text[:12] + "…"


@dataclass(frozen=True)
class RowData:
    """Prepared data, as far as a study knows them."""

    prints: Fingerprints
    V: Annotated[int, Gt(0)]
    """pieces of the vocabulary"""
    store: str
    """name under <root>/data"""


def data_key(change: dict[str, Any]) -> str:
    """What a row changes in the data, as a key to its prepared data; empty if it changes nothing."""
    return ", ".join(f"{key}={change[key]}" for key in ROW_DATA if key in change)
