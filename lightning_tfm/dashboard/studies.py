"""What the index says about a study: its definition, which runs are its cells, and where it is."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_tfm.config import from_record
from lightning_tfm.errors import UserError
from lightning_tfm.study.cell import Cell, predicted_cost
from lightning_tfm.study.search import Search
from lightning_tfm.study.sequential import NOT_ASKED, read_looks
from lightning_tfm.study.study import LOOKS, Ablation, Study
from lightning_tfm.study.study_file import file_of, folder_of, load
from lightning_tfm.watch.file_cache import Cached, read_object, stamp
from lightning_tfm.watch.study_state import CellState


@dataclass(frozen=True)
class Outline:
    """A study's definition; `why_not` if that cannot be read."""

    name: str
    study: Study | None = None
    cells: tuple[CellState, ...] = ()
    """without a queue: of unknown state"""
    why_not: str = ""

    @property
    def called(self) -> str:
        """Its title, or its name where it has none."""
        return (self.study and self.study.title) or self.name

    @property
    def question(self) -> str:
        return self.study.question if self.study else ""

    @property
    def labels(self) -> dict[str, str]:
        """row -> what people call it; empty for a row without a label."""
        return {row.name: row.label for row in self.study.rows} if isinstance(self.study, Ablation) else {}

    @property
    def runs(self) -> list[Cell]:
        """A cell for each run."""
        return [run for state in self.cells for run in state.cell.runs]


class Outlines:
    """The studies of a results folder, each read again when one of its files has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: Cached[Outline | None] = Cached(self._outline, None)
        self._links: dict[Path, tuple[int, list[Cell]]] = {}

    def look(self) -> list[Outline]:
        """All of them, by name."""
        try:
            names = sorted(path.name for path in (self._root / "studies").iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        found = (self._read(file_of(self._root, name)) for name in names)
        return [self._with_links(outline) for outline in found if outline is not None]

    def _outline(self, file: Path) -> Outline:
        name = file.parent.name
        try:
            study = load(self._root, name)
            return Outline(name, study, tuple(CellState(cell) for cell in study.cells()))
        except (UserError, OSError, TypeError, ValueError, AttributeError, RecursionError) as error:
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            return Outline(name, why_not=f"{kind}{error}")

    def _with_links(self, found: Outline) -> Outline:
        """A search with the trials that a sampler has made so far, which its folder links to; a table without the cells
        that its looks never requested, but with those that ran all the same: what failed is in no look."""
        study = found.study
        if study is None:
            return found
        folder, known = folder_of(self._root, found.name), found.cells
        if isinstance(study, Search):
            if not study.budget:
                return found
            linked = [CellState(trial) for trial in self._trials(folder / "cells", study)]
            cells = {s.cell.row: s for s in (*known, *linked)}
            return replace(found, cells=tuple(cells.values()))
        if stamp(folder / LOOKS) is None:
            return found
        try:
            course = read_looks(folder)
        except UserError as error:
            return Outline(found.name, why_not=str(error))
        ran = {(path.parent.name, path.stem) for path in folder.glob("cells/*/*.json")}
        asked = (course is None or course.why_left_out(s.cell.row, s.cell.seed) != NOT_ASKED for s in known)
        shown = (s for s, due in zip(known, asked, strict=True) if due or (s.cell.row, str(s.cell.seed)) in ran)
        return replace(found, cells=tuple(shown))

    def _trials(self, cells: Path, study: Search) -> list[Cell]:
        """Those that a study's folder links to, each with all its seeds."""
        now = _newest(cells)
        if cells not in self._links or self._links[cells][0] != now:
            plain = [read_object(file) for file in sorted(cells.glob("*/*.json"))]
            found: dict[str, list[tuple[int, str]]] = {}
            for one in plain:
                if {"row", "seed", "training_hash"} <= one.keys() and str(one["seed"]).isdecimal():
                    found.setdefault(str(one["row"]), []).append((int(one["seed"]), str(one["training_hash"])))
            groups = [(row, sorted(runs)) for row, runs in found.items()]
            made = [Cell(row, *runs[0], self._cost(study, runs), {}, tuple(runs[1:])) for row, runs in groups]
            self._links[cells] = now, made
        return self._links[cells][1]

    def _cost(self, study: Study, runs: Sequence[tuple[int, str]]) -> float:
        """Predicted, of all runs of a trial, once their folders say what they train."""
        plain = read_object(self._root / "runs" / runs[0][1][:16] / "experiment.json")
        try:
            return len(runs) * predicted_cost(from_record(plain) if plain else study.base.scaled(), study.V)
        except (UserError, TypeError, ValueError):
            return len(runs) * predicted_cost(study.base.scaled(), study.V)


def _newest(folder: Path) -> int:
    """When a folder, or one in it, last took or lost a file, in nanoseconds; 0 where there is none."""
    try:
        with os.scandir(folder) as entries:
            return max([os.stat(folder).st_mtime_ns, *(entry.stat().st_mtime_ns for entry in entries)])
    except OSError:
        return 0
