"""What the index says of a study: its definition, which runs are its cells, how far it is and what is best so far."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lightning_tfm.dashboard.files import Kept, read_object, stamp
from lightning_tfm.dashboard.runs import RunView
from lightning_tfm.errors import UserError
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.looks import NOT_ASKED, read_looks
from lightning_tfm.study.study import LOOKS, Ablation, Search, Study, file_of, load

OPEN = ("running", "waiting", "interrupted")


@dataclass(frozen=True, slots=True)
class Place:
    """One cell of a study and its run."""

    row: str
    seed: int
    run: str
    """name of the run's folder"""
    cost: float
    """predicted length in any unit"""


@dataclass(frozen=True)
class Outline:
    """A study as it is defined; `why_not` where that cannot be read."""

    name: str
    study: Study | None = None
    places: tuple[Place, ...] = ()
    why_not: str = ""

    @property
    def kind(self) -> str:
        return "damaged" if self.study is None else "search" if isinstance(self.study, Search) else "table"

    @property
    def total(self) -> int:
        """Runs when all is done."""
        if isinstance(self.study, Search):
            return max(self.study.budget * len(self.study.trial_seeds), len(self.places))
        return len(self.places)

    @property
    def objective(self) -> tuple[str, bool]:
        """What runs are ranked by, and whether more of it is better."""
        if isinstance(self.study, Search):
            name, direction = next(iter(self.study.objectives.items()))
            return name, direction == "maximize"
        return "dev/ppl", False

    def pieces(self, row: str) -> str:
        """Fingerprint of the dev text in a row's pieces: perplexities are comparable where it is the same."""
        rows = self.study.rows if isinstance(self.study, Ablation) else []
        own = next((one for one in rows if one.name == row), None)
        if isinstance(self.study, Ablation) and own is not None:
            return self.study.data_of(own).prints.dev
        return self.study.prints.dev if self.study else ""


class Outlines:
    """The studies of a results folder, each read again when one of its files has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read = Kept(self._outline)
        self._links: dict[Path, tuple[int, tuple[Place, ...]]] = {}

    def look(self) -> list[Outline]:
        """All of them, by name."""
        try:
            names = sorted(path.name for path in (self._root / "studies").iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        files = [file_of(self._root, name) for name in names]
        found = [self._with_trials(self._read(file), file.parent) for file in files if stamp(file) is not None]
        return [self._asked(outline, file_of(self._root, outline.name).parent) for outline in found]

    def _outline(self, file: Path) -> Outline:
        name = file.parent.name
        try:
            study = load(self._root, name)
            return Outline(name, study, tuple(_place(one) for cell in study.cells() for one in cell.runs))
        except (UserError, OSError, TypeError, ValueError, AttributeError, RecursionError) as error:
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            return Outline(name, why_not=f"{kind}{error}")

    def _with_trials(self, found: Outline, folder: Path) -> Outline:
        """A search with the trials that a sampler has made so far, which its folder links to."""
        if not isinstance(found.study, Search) or not found.study.budget:
            return found
        cost = found.places[0].cost if found.places else 1.0  # of base: sizes that a sampler tries are not far from it
        linked = (replace(place, cost=cost) for place in self._linked(folder / "cells"))
        known = {(place.row, place.seed): place for place in (*found.places, *linked)}
        return Outline(found.name, found.study, tuple(known.values()))

    def _asked(self, found: Outline, folder: Path) -> Outline:
        """A table without the cells that its looks never asked for: a row that is closed early gets fewer seeds."""
        if not isinstance(found.study, Ablation) or stamp(folder / LOOKS) is None:
            return found
        try:
            course = read_looks(folder)
        except UserError as error:
            return Outline(found.name, why_not=str(error))
        linked = {(place.row, place.seed) for place in self._linked(folder / "cells")}  # what failed is in no look
        left = (p for p in found.places if course is None or course.shown(p.row, p.seed) != NOT_ASKED)
        asked = {(place.row, place.seed) for place in left} | linked
        return replace(found, places=tuple(p for p in found.places if (p.row, p.seed) in asked))

    def _linked(self, cells: Path) -> tuple[Place, ...]:
        now = _newest(cells)
        if cells not in self._links or self._links[cells][0] != now:
            plain = [read_object(file) for file in sorted(cells.glob("*/*.json"))]
            places = [
                Place(str(one["row"]), int(one["seed"]), str(one["training_hash"])[:16], 1.0)
                for one in plain
                if {"row", "seed", "training_hash"} <= one.keys() and str(one["seed"]).isdecimal()
            ]
            self._links[cells] = now, tuple(places)
        return self._links[cells][1]


def _newest(folder: Path) -> int:
    """When a folder, or one in it, last took or lost a file, in nanoseconds; 0 where there is none."""
    try:
        with os.scandir(folder) as entries:
            return max([os.stat(folder).st_mtime_ns, *(entry.stat().st_mtime_ns for entry in entries)])
    except OSError:
        return 0


def _place(cell: Cell) -> Place:
    return Place(cell.row, cell.seed, cell.training_hash[:16], cell.cost)


@dataclass(frozen=True)
class StudyView:
    """A study at a moment. Times are seconds since 1970."""

    name: str
    kind: str
    """table, search or damaged"""
    total: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """runs by state; those that nobody began are waiting"""
    best: tuple[str, float] | None = None
    """row and value of what is ranked"""
    metric: str = ""
    """what is ranked: dev/ppl, dev/bleu, …"""
    seconds_left: float | None = None
    started: float | None = None
    changed: float | None = None
    words: str = ""
    """why it cannot be read"""

    @property
    def state(self) -> str:
        if self.kind == "damaged":
            return "damaged"
        order = ("running", "waiting", "interrupted", "failed", "damaged")
        open_state = next((state for state in order if self.counts.get(state)), "finished")
        return open_state

    @property
    def ended(self) -> int:
        """Runs that will not go on by themselves."""
        return self.total - sum(self.counts.get(state, 0) for state in OPEN)


def viewed(outline: Outline, runs: Mapping[str, RunView]) -> StudyView:
    """The study `outline` with its runs as they are now."""
    if outline.study is None:
        return StudyView(outline.name, "damaged", words=outline.why_not)
    here = [(place, runs[place.run]) for place in outline.places if place.run in runs]
    counts = Counter(view.state for _, view in here)
    counts["waiting"] += outline.total - len(here)
    metric, more = outline.objective
    return StudyView(
        name=outline.name,
        kind=outline.kind,
        total=outline.total,
        counts={state: number for state, number in counts.items() if number},
        best=best_of(outline, ((place.row, value_of(view, metric)) for place, view in here), more),
        metric=metric,
        seconds_left=seconds_left(outline, here),
        started=min((view.started for _, view in here if view.started), default=None),
        changed=max((view.changed for _, view in here if view.changed), default=None),
    )


def value_of(view: RunView, metric: str) -> float | None:
    """What a finished run scored; None for all others, and for what the index does not know of."""
    if view.state != "finished":
        return None
    known = {"dev/ppl": view.ppl, "dev/bleu": view.bleu, "seconds": view.train, "parameters": view.parameters}
    return known.get(metric)


def best_of(outline: Outline, found: Iterable[tuple[str, float | None]], more: bool) -> tuple[str, float] | None:
    """The best row: in a table by its mean over seeds, in a search the best trial.

    None where rows have data of their own: their perplexities are per different pieces.
    """
    if isinstance(outline.study, Ablation) and outline.study.data:
        return None
    values: dict[str, list[float]] = {}
    for row, value in found:
        if value is not None:
            values.setdefault(row, []).append(value)
    means = {row: sum(every) / len(every) for row, every in values.items()}
    if not means or outline.study is None:
        return None
    row = (max if more else min)(means, key=lambda name: means[name])
    return row, means[row]


def seconds_left(outline: Outline, here: list[tuple[Place, RunView]]) -> float | None:
    """Until the last run ends, if as many go on at once as do now; None where nothing runs or nothing is known.

    What finished runs took per unit of predicted cost, scoring included, stands for those to come.
    """
    running = [(place, view) for place, view in here if view.state == "running"]
    if not running:
        return None
    done = [(place, view) for place, view in here if view.state == "finished" and view.seconds]
    cost = sum(place.cost for place, _ in done)
    rate = sum(view.seconds or 0.0 for _, view in done) / cost if cost else None
    scoring = [view.decode for _, view in done if view.decode is not None]
    decode = sum(scoring) / len(scoring) if scoring else 0.0
    rate = rate or _rate_of_running(running)
    if rate is None:
        return None
    begun = [
        view.seconds_left + decode if view.seconds_left is not None else place.cost * rate for place, view in running
    ]
    mean = sum(place.cost for place in outline.places) / len(outline.places)
    ahead = [place.cost for place, view in here if view.state in ("waiting", "interrupted")]
    seen = {place.run for place, _ in here}
    ahead += [place.cost for place in outline.places if place.run not in seen]
    ahead += [mean] * (outline.total - len(outline.places))
    return max((sum(ahead) * rate + sum(begun)) / len(running), *begun)


def _rate_of_running(running: list[tuple[Place, RunView]]) -> float | None:
    """Seconds per unit of cost as the first runs show it, before any has finished."""
    found = [
        (view.seconds + view.seconds_left) / place.cost
        for place, view in running
        if view.seconds and view.seconds_left is not None
    ]
    return sum(found) / len(found) if found else None
