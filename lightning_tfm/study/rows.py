"""Rows: base + a declared change -> an experiment, and its identity."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from lightning_tfm.config import Experiment, override
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.study import ties
from lightning_tfm.study.classes import own_classes
from lightning_tfm.study.kinds import expect
from lightning_tfm.yaml_files import YamlFile, read_yaml

TABLE3 = "experiments/table3.yaml"
PAPER_KEYS = ("PPL", "BLEU", "params")
ROW_KEYS = ("group", "change", *PAPER_KEYS, "elsewhere")
ROW_DATA = tuple(
    f"data.{name}"
    for name in (
        "train pairs vocab_size byte_fallback share max_words max_ratio check_encoding check_script drop_duplicates"
    ).split()
)
"""what a row may change of the data and has data of its own for: training text and pieces; never what is scored"""
MAY = (*ROW_DATA, "data.max_len")
"""all that a row may change of the data"""


def not_of_rows(key: str) -> bool:
    """Whether a field must be the same for all rows of a table."""
    section = key.partition(".")[0]
    return (section in ("data", "evaluation", "miniature") and key not in MAY) or key == "training.seed"


@dataclass(frozen=True)
class Paper:
    """What the paper prints for a row, None where it leaves a blank or the row is not the paper's."""

    ppl: float | None
    """dev perplexity per piece"""
    bleu: float | None
    """dev BLEU"""
    params: int | None
    """parameters in millions"""

    @property
    def printed(self) -> bool:
        return (self.ppl, self.bleu, self.params) != (None, None, None)

    def of(self, metric: str) -> float | None:
        """What it prints in a metric; None where it has no such column, too."""
        return getattr(self, metric, None)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    group: str
    change: dict[str, Any]
    """dotted keys and values at the paper's scale; a value may follow others (study/ties.py)"""
    paper: Paper
    where: str
    """file:line that declares it"""
    ties: dict[str, Any] = field(default_factory=dict)
    """of a row laid on a base, where `change` holds numbers: what its values follow"""
    elsewhere: str = ""
    """what others print of this change, with the source: words beside the table, compared with nothing"""

    def on(self, base: Experiment) -> "Row":
        """This row laid on `base`. Raises UserError where its sizes do not come out there."""
        change = ties.resolved(base, self.change, f"{self.where}: row '{self.name}'")
        tied = {key: value for key, value in self.change.items() if key in change and change[key] != value}
        return replace(self, change=change, ties=tied) if tied else self

    @property
    def declared(self) -> "Row":
        """As it was before it was laid on a base."""
        return replace(self, change=self.change | self.ties, ties={})


def base_of(rows: Iterable[Row]) -> str | None:
    """The row that changes nothing, whatever its name: the paper's where there are several."""
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
    """The paper's rows and those of further files, by name. Raises UserError where two share a name."""
    rows: dict[str, Row] = {}
    for path in (TABLE3, *extra):
        for row in load_rows(path):
            if row.name in rows:
                raise UserError(f"{row.where}: the row '{row.name}' is already declared in {rows[row.name].where}")
            rows[row.name] = row
    return rows


def find_row(rows: dict[str, Row], name: str) -> Row:
    """The row of that name. Raises UserError naming the nearest."""
    if name not in rows:
        raise UserError(f"no row '{name}': {nearest(name, rows)}")
    return rows[name]


def apply(base: Experiment, row: Row, seed: int | None = None) -> Experiment:
    """`base` with the row's change, and with `seed` unless it is None; at the paper's scale (see Experiment.scaled)."""
    seeded = {} if seed is None else {"training.seed": seed}
    return override(base, row.on(base).change | seeded, f"{row.where}: row '{row.name}'")


def _row(file: YamlFile, name: str, values: Any) -> Row:
    where = file.where(name)
    if not isinstance(values, dict):
        raise UserError(f"{where}: row '{name}': expected {{group: …, change: {{…}}}}, got {values!r}")
    for key in values:
        if key not in ROW_KEYS:
            raise UserError(
                f"{file.where(name, key)}: row '{name}': unknown key '{key}': {nearest(str(key), ROW_KEYS)}"
            )
    for key in ("group", "change"):
        if key not in values:
            raise UserError(f"{where}: row '{name}' needs the key '{key}'")
    group, change = values["group"], values["change"]
    if not isinstance(group, str) or not group:
        raise UserError(f"{where}: row '{name}': group={group!r}: expected a name")
    if not isinstance(change, dict):
        raise UserError(f"{where}: row '{name}': change={change!r}: expected dotted keys and values, or {{}}")
    for key, value in change.items():
        if not_of_rows(str(key)):
            raise UserError(
                f"{where}: row '{name}': '{key}' (value {value!r}) must be the same for all rows of a table: set it in "
                f"the experiment file; a row changes model, training and of the data {', '.join(MAY)}"
            )
    printed = {key: _number(where, name, key, values[key]) if key in values else None for key in PAPER_KEYS}
    elsewhere = values.get("elsewhere", "")
    if not isinstance(elsewhere, str) or elsewhere != " ".join(elsewhere.split()):
        raise UserError(f"{where}: row '{name}': elsewhere={elsewhere!r}: expected one line: numbers and their source")
    paper = Paper(printed["PPL"], printed["BLEU"], printed["params"])
    row = Row(name, group, change, paper, where, elsewhere=elsewhere)
    changed = override(Experiment(), ties.untied(change, f"{where}: row '{name}'"), f"{where}: row '{name}'")
    try:
        own_classes(changed)
    except UserError as error:
        raise UserError(f"{where}: row '{name}': {error}") from None
    return row


def _number(where: str, name: str, key: str, value: Any) -> Any:
    kind = int if key == "params" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind) or value <= 0:
        expected = "a whole number of millions" if key == "params" else "a number"
        raise UserError(f"{where}: row '{name}': {key}={value!r}: expected {expected} above 0, or leave the key out")
    return value


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

    @classmethod
    def of(cls, prepared: PreparedText, dev: str) -> "Fingerprints":
        """Those of prepared data whose dev split is `dev`."""
        return cls(prepared.train_fingerprint, prepared.fingerprint(dev))


def differences(asked: dict[str, Any], found: dict[str, Any], asker: str, prefix: str = "") -> list[str]:
    """One phrase for each leaf in which two nested dicts differ: `model.h is 8, the cell asks for 16`."""
    phrases = []
    for key in sorted(asked.keys() | found.keys()):
        a, b = asked.get(key), found.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            phrases += differences(a, b, asker, f"{prefix}{key}.")
        elif a != b:
            phrases.append(f"{prefix}{key} is {_short(b)}, {asker} {_short(a)}")
    return phrases


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 16 else text[:12] + "…"
