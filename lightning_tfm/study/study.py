"""What a study is: an ablation (rows at seeds) or a search (trials of a space) over one base, frozen in study.json."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from annotated_types import Gt

from lightning_tfm.config import (
    Experiment,
    Hardware,
    evaluation_hash,
    to_dict,
    training_hash,
    training_identity,
    without_gone,
)
from lightning_tfm.errors import UserError
from lightning_tfm.schema import Kept, make_from
from lightning_tfm.study.cell import Cell, Plan, predicted_cost
from lightning_tfm.study.rows import (
    WORDS,
    Fingerprints,
    Row,
    RowData,
    apply,
    base_of,
    data_key,
    differences,
    find_row,
    how_to_change,
    other_rows,
)
from lightning_tfm.study.user_classes import of_earlier_version, own_classes, user_classes

T = TypeVar("T")
SCHEMA = 1
LOOKS = "looks.json"
"""in the folder of a study whose seeds are added by looks (study/sequential.py)"""
HIDDEN = " (hidden)"
"""behind the name of a row that is hidden, which thereby is free for another one"""


@dataclass(frozen=True, kw_only=True)
class Study(Kept, ABC):
    """A set of runs over one base."""

    name: str
    base: Experiment
    """at the paper's scale, without any change"""
    prints: Fingerprints
    V: Annotated[int, Gt(0)]
    """pieces of the vocabulary"""
    store: str
    """name of the prepared data under <root>/data"""
    classes: dict[str, str] = field(default_factory=dict)
    """import path -> code of a user-defined class, as of the study's start (user_classes.py:user_classes)"""
    title: str = ""
    """what people call it, and `question` what it asks: words for pages and tables, which may change at any time"""
    question: str = ""

    KIND: ClassVar[str]
    """what users call it: table or search"""

    @property
    def directions(self) -> tuple[str, ...]:
        """minimize or maximize, of each value that a finished run reports."""
        return ("minimize",)

    @property
    def budget(self) -> int:
        """Cells that a sampler makes; 0 if all cells are listed."""
        return 0

    @abstractmethod
    def cells(self) -> list[Cell]:
        """All cells that are known beforehand, in order. Raises UserError where one's sizes do not fit the base."""

    @abstractmethod
    def experiment(self, cell: Cell) -> Experiment:
        """The experiment of a cell, at the paper's scale. Raises UserError."""

    def identity(self, cell: Cell) -> dict[str, Any]:
        """Training identity of a cell."""
        experiment = self.experiment(cell)
        return training_identity(experiment, self.prints.train, self.sources_of(experiment))

    def sources_of(self, experiment: Experiment) -> dict[str, str]:
        """Import path -> sha256, of the experiment's user-defined classes: as of the study's start, else as of now."""
        own = set(own_classes(experiment).values())
        frozen = {path: self.classes[path] for path in own if path in self.classes}
        return frozen if len(frozen) == len(own) else user_classes(experiment)

    @abstractmethod
    def _kinds(self) -> Iterable[Experiment]:
        """Experiments that name every user-defined class in this study."""

    def with_sources(self) -> Self:
        """This study with the current sources of its classes. Raises UserError if one is missing."""
        by_experiment = [user_classes(e) for e in self._kinds() if own_classes(e)]
        return replace(self, classes={path: source for classes in by_experiment for path, source in classes.items()})

    def _other_sources(self, old: Self) -> list[str]:
        """Messages about classes whose code has changed since the study was started."""
        earlier = of_earlier_version(old.classes)
        other = [path for path in old.classes.keys() & self.classes.keys() if old.classes[path] != self.classes[path]]
        return [
            f"the weights and the name of {path} are by the rules of an earlier version"
            if path in earlier
            else f"the code of {path} has changed"
            for path in sorted(other)
        ]

    def evaluation(self, cell: Cell, root: Path) -> str:
        """Evaluation hash of a cell's dev score; `root`: see plan."""
        return self.evaluation_of_text(self.texts(cell, root).dev)

    def evaluation_of_text(self, fingerprint: str) -> str:
        """Evaluation hash of the scores of a text; empty where it is not known."""
        if fingerprint not in self._evaluations:
            self._evaluations[fingerprint] = evaluation_hash(self.base, fingerprint) if fingerprint else ""
        return self._evaluations[fingerprint]

    @cached_property
    def _evaluations(self) -> dict[str, str]:
        return {}

    def texts(self, cell: Cell, root: Path) -> Fingerprints:
        """Of a cell's texts, as of the study's start; `root`: see plan."""
        return self.prints

    def plan(self, cell: Cell, root: Path) -> Plan:
        """What to train for a cell; rows added in the meantime are read from study.json below `root`.

        Raises UserError if the cell means a different run here than where the study was started.
        """
        experiment, identity = self.experiment(cell), self.identity(cell)
        identity = identity | {"user_classes": dict(sorted(user_classes(experiment).items()))}  # as they are now
        if training_hash(identity) != cell.training_hash:
            raise UserError(
                f"{cell.row}, seed {cell.seed}: here it is run {training_hash(identity)[:16]}, in the study run "
                f"{cell.training_hash[:16]}: the versions of lightning_tfm, or of your own class, differ"
            )
        return experiment.scaled(), identity

    def hardware_of(self, hardware: Hardware) -> Hardware:
        """`hardware`, with what the study itself sets. Raises UserError where they contradict each other."""
        return hardware

    @abstractmethod
    def to_plain(self) -> dict[str, Any]:
        """The content of study.json."""

    def _later(self, more: dict[str, Any]) -> dict[str, Any]:
        """What study.json holds only if present."""
        more = more | {"classes": self.classes, "title": self.title, "question": self.question}
        return {key: value for key, value in more.items() if value}

    def _with_words(self, old: Self) -> Self:
        """With the words that it had before, if it brings none."""
        return replace(self, title=self.title or old.title, question=self.question or old.question)

    def _other_texts(self, old: Self) -> list[str]:
        """Messages about texts that are not those that the study was started with."""
        roles = old.prints.differing(self.prints)
        unknown = self.prints.known().keys() - old.prints.known().keys()  # to a study of an older version
        roles += sorted(unknown) if not roles and self.store != old.store else []
        return [f"the text data.{role}={getattr(self.base.data, role)} has changed" for role in roles]

    @abstractmethod
    def with_earlier(self, old: Self, path: Path) -> Self:
        """This study with what study.json (`path`) held before, `old`. Raises UserError if that is another study."""


def _hashes(identity: dict[str, Any], seeds: Iterable[int]) -> list[str]:
    """`training_hash` at each seed: the rest becomes JSON once, which takes most of the time."""
    text = json.dumps(identity | {"training": identity["training"] | {"seed": None}}, sort_keys=True)
    before, after = text.split('"seed": null')  # within a text the quotes would be escaped
    return [hashlib.sha256(f'{before}"seed": {seed}{after}'.encode()).hexdigest() for seed in seeds]


@dataclass(frozen=True, kw_only=True)
class Ablation(Study):
    """Every row at every seed over one base. Rows and seeds may be added, nothing else may change."""

    rows: list[Row]
    seeds: list[int]
    data: dict[str, RowData] = field(default_factory=dict)
    """prepared data of the rows that change them, by rows.data_key"""
    hidden: list[Row] = field(default_factory=list)
    """rows that `study hide` put apart: no longer trained, in no table, and counted in every correction"""
    KIND: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        """Lay the rows on the base, which is frozen here: what they follow can no longer change."""
        for name in ("rows", "hidden"):
            object.__setattr__(self, name, [row.on(self.base) for row in getattr(self, name)])

    def cells(self) -> list[Cell]:
        return [*self._cells]

    @cached_property
    def _cells(self) -> list[Cell]:
        return [cell for row in self.rows for cell in self._cells_of(row)] if self.seeds else []

    def _cells_of(self, row: Row) -> list[Cell]:
        """All cells of a row, derived together as its seeds differ in nothing else."""

        def derive(row: Row) -> list[Cell]:
            exact = self.exact(row)
            hashes, cost = _hashes(self._identity(row, exact), self.seeds), self._cost(row, exact)
            return [Cell(row.name, seed, own, cost) for seed, own in zip(self.seeds, hashes, strict=True)]

        return self._once("cells", row, derive)

    def cell(self, row: Row, seed: int) -> Cell:
        if seed in self.seeds:
            return self._cells_of(row)[self.seeds.index(seed)]
        exact = self.exact(row, seed)
        return Cell(row.name, seed, training_hash(self._identity(row, exact)), self._cost(row, exact))

    def _cost(self, row: Row, exact: Experiment) -> float:
        return predicted_cost(exact, self.data_of(row).V)

    def data_of(self, row: Row) -> RowData:
        """The prepared data of a row: the study's, unless it changes them."""
        key = data_key(row.change)
        return self.data[key] if key else RowData(self.prints, self.V, self.store)

    def identity_of(self, row: Row, seed: int) -> dict[str, Any]:
        """Training identity of a row at a seed. Raises UserError where a miniature does not fit."""
        return self._identity(row, self.exact(row, seed))

    def written(self, row: Row, seed: int | None = None) -> Experiment:
        """A row laid on base, at the paper's scale, with base's own seed or another."""
        return _with_seed(self._once("written", row, lambda row: apply(self.base, row)), seed)

    def exact(self, row: Row, seed: int | None = None) -> Experiment:
        """The same at the sizes that are trained. Raises UserError where a miniature does not fit."""
        name = f"row '{row.name}'"
        return _with_seed(self._once("exact", row, lambda row: self.written(row).scaled(name)), seed)

    def _once(self, kind: str, row: Row, make: Callable[[Row], T]) -> T:
        """What is made of a row, kept with it: no other one gets its id, and in a copy, whose ids are others, none is
        taken for it."""
        made = self._made.get((kind, id(row)))
        if made is None or made[0] is not row:
            made = self._made[kind, id(row)] = row, make(row)
        own: T = made[1]
        return own

    @cached_property
    def _made(self) -> dict[tuple[str, int], tuple[Row, Any]]:
        return {}

    def _identity(self, row: Row, exact: Experiment) -> dict[str, Any]:
        return training_identity(exact, self.data_of(row).prints.train, self.sources_of(exact))

    def evaluation_of(self, row: Row) -> str:
        """Evaluation hash of the row's dev scores; that of all rows whose text has the same pieces."""
        return self.evaluation_of_text(self.data_of(row).prints.dev)

    @property
    def every_row(self) -> list[Row]:
        """The rows of the table, and the hidden ones: the family of every correction."""
        return [*self.rows, *self.hidden]

    @property
    def whole(self) -> "Ablation":
        """With the hidden rows among the others."""
        return replace(self, rows=self.every_row, hidden=[]) if self.hidden else self

    def hiding(self, name: str) -> "Ablation":
        """With a row among the hidden ones, under a name that leaves its own free. Raises UserError."""
        rows = {row.name: row for row in self.rows}
        if name not in rows and (before := [row.name for row in self.hidden if name in (row.name, own_name(row))]):
            raise UserError(f"study '{self.name}': {name} is hidden already, as '{before[-1]}'")
        mine = find_row(rows, name)
        if name == self.base_row:
            raise UserError(f"study '{self.name}': {name} is what every row is compared with, so it stays")
        taken, number = {row.name for row in self.every_row}, 1
        while (apart := f"{name}{HIDDEN}" if number == 1 else f"{name}{HIDDEN[:-1]} {number})") in taken:
            number += 1
        hidden = replace(mine, name=apart, place=self.rows.index(mine) + 1)
        return replace(self, rows=[row for row in self.rows if row is not mine], hidden=[*self.hidden, hidden])

    def showing(self, name: str) -> "Ablation":
        """With a hidden row in the table again, under its own name. Raises UserError where that is taken."""
        matching = [row for row in self.hidden if name in (row.name, own_name(row))]
        if len(matching) != 1:
            names = ", ".join(f"'{row.name}'" for row in self.hidden)
            why = f"the hidden ones are {names}" if names else "none is hidden"
            raise UserError(f"study '{self.name}': which hidden row is {name}? {why}")
        mine = matching[0]
        back = replace(mine, name=own_name(mine), place=None)
        if back.name in {row.name for row in self.rows}:
            raise UserError(f"study '{self.name}' has another row {back.name} now: hide that one first")
        above = len(self.rows) if mine.place is None else mine.place - 1
        rows, hidden = [*self.rows[:above], back, *self.rows[above:]], [row for row in self.hidden if row is not mine]
        return replace(self, rows=rows, hidden=hidden)

    @property
    def by_word(self) -> bool:
        """Whether rows have other pieces than others, so that they are compared by the nll per reference word."""
        return len({self.data_of(row).prints.dev for row in self.every_row}) > 1

    def foreign(self, to: str | None) -> list[str]:
        """Rows with pieces other than the row `to`: their perplexities are not comparable with its."""
        prints = {row.name: self.data_of(row).prints.dev for row in self.every_row}
        return [name for name in prints if to and prints[name] != prints[to]]

    def identity(self, cell: Cell) -> dict[str, Any]:
        return self.identity_of(next(row for row in self.rows if row.name == cell.row), cell.seed)

    @property
    def base_row(self) -> str | None:
        """The row that is base, whatever its name."""
        return base_of(self.rows)

    def twins(self) -> dict[str, str]:
        """Row -> the row with the same runs: base, else the first. Rows that equal no other row are left out.

        Raises UserError where a row's sizes do not fit the base.
        """
        seed = self.seeds[0] if self.seeds else self.base.training.seed
        first: dict[str, str] = {}
        twins = {}
        for row in sorted(self.every_row, key=lambda row: row.name != self.base_row):
            run = self.cell(row, seed).training_hash
            if (name := first.setdefault(run, row.name)) != row.name:
                twins[row.name] = name
        return {row.name: twins[row.name] for row in self.every_row if row.name in twins}

    def trained_values(self, row: Row, keys: Iterable[str]) -> dict[str, Any]:
        """Values of these fields in the row's runs, a miniature's at its own sizes. Raises UserError."""
        return {key: value_of(self.exact(row), key) for key in keys}

    def _kinds(self) -> Iterable[Experiment]:
        return map(self.written, self.every_row)

    def experiment(self, cell: Cell) -> Experiment:
        return self.written(next(row for row in self.rows if row.name == cell.row), cell.seed)

    def texts(self, cell: Cell, root: Path) -> Fingerprints:
        study = self._knowing(cell, root)
        return study.data_of(next(row for row in study.rows if row.name == cell.row)).prints

    def plan(self, cell: Cell, root: Path) -> Plan:
        study = self._knowing(cell, root)
        return super().plan(cell, root) if study is self else study.plan(cell, root)

    def _knowing(self, cell: Cell, root: Path) -> "Ablation":
        """This study, or with the rows that another process has added to study.json since."""
        if any(row.name == cell.row for row in self.rows):
            return self
        return make_from(Ablation, fields_of(json.loads((root / "studies" / self.name / "study.json").read_bytes())))

    def to_plain(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "name": self.name,
            "base": to_dict(self.base),
            "rows": [_plain_row(row) for row in self.rows],
            "seeds": self.seeds,
            "fingerprints": asdict(self.prints),
            "V": self.V,
            "store": self.store,
        } | self._later(
            {
                "data": {key: asdict(data) for key, data in self.data.items()},
                "hidden": [_plain_row(row) for row in self.hidden],
            }
        )

    def with_earlier(self, old: Self, path: Path) -> Self:
        before, after = (_without_seed(to_dict(study.base)) for study in (old, self))
        other = differences(before, after, "the study has") + self._other_texts(old)
        changed = other_rows(self.rows, old.rows)
        other += [
            f"the prepared data of {key} differ"
            for key in old.data.keys() & self.data.keys()
            if old.data[key] != self.data[key]
        ]
        other += self._other_sources(old)
        if changed and not other and not (path.parent / LOOKS).is_file():
            how = how_to_change(self.name, next(iter(changed)), path.parents[2])
            raise UserError(f"{path}: {'; '.join(changed.values())}: {how}")
        if other := [*other, *changed.values()]:
            back = "put the old text back and run the same command to resume, " * (other == self._other_texts(old))
            raise UserError(
                f"{path} was started with a different experiment ({'; '.join(other)}): {back}"
                "give this one its own name with --name, or remove that folder"
            )
        labels = {row.name: row.label for row in old.rows}
        rows = [replace(row, label=row.label or labels.get(row.name, "")) for row in self.rows]
        rows = _union(old.rows, without_hidden(rows, old), key=lambda row: row.name)
        seeds = _union(old.seeds, self.seeds, key=lambda seed: seed)
        data, classes = old.data | self.data, old.classes | self.classes
        return replace(
            self, base=old.base, rows=rows, hidden=old.hidden, seeds=seeds, data=data, classes=classes
        )._with_words(old)


def fields_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What a study is made from, of the content of study.json."""
    return {"based": False, **plain, "base": without_gone(plain.get("base")), "prints": plain.get("fingerprints")}


def without_hidden(rows: Iterable[Row], study: Ablation) -> list[Row]:
    """Of `rows` those that are not hidden in `study`: another change under the name of a hidden one is another row."""
    apart = [(own_name(row), row.change) for row in study.hidden]
    return [row for row in rows if (row.name, row.on(study.base).change) not in apart]


def own_name(row: Row) -> str:
    """Of a hidden row, without what HIDDEN adds."""
    return row.name[: row.name.rindex(HIDDEN[:-1])]


def check_reference(name: str | None, rows: Iterable[Row]) -> None:
    """Raise UserError where --reference names none of these rows."""
    names = [row.name for row in rows]
    if name is not None and name not in names:
        raise UserError(f"--reference={name}: no such row; the rows are {', '.join(names)}")


def value_of(experiment: Experiment, key: str) -> Any:
    """The value of a dotted key."""
    section, _, name = key.partition(".")
    return getattr(getattr(experiment, section), name)


def _with_seed(experiment: Experiment, seed: int | None) -> Experiment:
    return experiment if seed is None else replace(experiment, training=replace(experiment.training, seed=seed))


def _without_seed(base: dict[str, Any]) -> dict[str, Any]:
    """A base without its own seed, which no cell has if the seeds are listed."""
    return base | {"training": {key: value for key, value in base["training"].items() if key != "seed"}}


def _plain_row(row: Row) -> dict[str, Any]:
    """With its numbers; what they follow, and what others print, if any."""
    return {key: value for key, value in asdict(row).items() if key not in ("ties", "place", *WORDS) or value}


def _union(old: Iterable[Any], new: Iterable[Any], key: Any) -> list[Any]:
    return list(({key(x): x for x in old} | {key(x): x for x in new}).values())
