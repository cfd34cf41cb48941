"""A study's page while it runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from urllib.parse import quote

from lightning_tfm.dashboard.board import Seen
from lightning_tfm.dashboard.chart import Chart, Curve
from lightning_tfm.dashboard.page import NoSuchPage, Page
from lightning_tfm.dashboard.studies import Outline
from lightning_tfm.study.study import Ablation, Search, file_of
from lightning_tfm.watch.folder import Kept, read_object, tail
from lightning_tfm.watch.run_state import STATES, Points, RunState, name_of
from lightning_tfm.watch.study_state import CellState, StudyState, mean_of

BAD = ("failed", "damaged", "interrupted")
LOG_LINES = 12
PARTS = ["head", "cells", "failures"]


@dataclass(frozen=True)
class CellView:
    """A cell of the table; `view` is None where nobody has begun it."""

    view: RunState | None
    said: str


@dataclass(frozen=True)
class RowView:
    """A row of an ablation: its cells, and means over finished ones."""

    name: str
    change: str
    first: bool
    """of its group"""
    cells: list[CellView]
    ppl: float | None
    ppl_sd: float | None
    bleu: float | None
    bleu_sd: float | None
    against: float | None
    """by how many percent its (geometric) mean perplexity differs from base's; None for other pieces than base's"""


@dataclass(frozen=True)
class TrialView:
    """A trial of a search; values and scores in the order of the table's columns."""

    name: str
    runs: list[tuple[int, RunState | None]]
    """by seed; None where nobody has begun it"""
    values: list[Any]
    scores: list[float | None]
    """means over its seeds once all have finished"""

    @property
    def view(self) -> RunState | None:
        """Its first run."""
        return self.runs[0][1]

    @property
    def state(self) -> str:
        """Of its runs the one that one wants to see first."""
        found = {view.state if view else "waiting" for _, view in self.runs}
        return next(state for state in STATES if state in found)


@dataclass(frozen=True)
class Failure:
    """A run that ended badly, and the end of its log."""

    view: RunState
    said: str
    log: str


class StudyPages:
    """Makes the page of a study below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._experiment = Kept(read_object, 20_000)
        self._log = Kept(lambda path: tail(path, LOG_LINES), 200)

    def page(self, seen: Seen, name: str) -> Page:
        """Raises NoSuchPage."""
        if name not in seen.studies:
            raise NoSuchPage(f"there is no study '{name}'")
        view, outline = seen.studies[name], seen.outlines[name]
        rows = self._rows(outline, view, seen) if isinstance(outline.study, Ablation) else []
        trials = self._trials(outline, view, seen) if isinstance(outline.study, Search) else []
        data = {
            "view": view,
            "here": file_of(self._root, name).is_file(),
            "counts": [(word, number) for word, number in view.counts.items() if number],
            "seeds": outline.study.seeds if isinstance(outline.study, Ablation) else [],
            "rows": rows,
            "trials": trials,
            "parameters": [p.name for p in outline.study.space] if isinstance(outline.study, Search) else [],
            "objectives": list(outline.study.objectives) if isinstance(outline.study, Search) else [],
            "failures": self._failures(outline, seen),
        }
        charts = _charts(outline, seen, trials)
        busy = bool(view.counts.get("running"))
        return Page("study.html", name, f"/study/{quote(name, safe='')}/news", PARTS, data, charts, busy)

    def _rows(self, outline: Outline, now: StudyState, seen: Seen) -> list[RowView]:
        study = outline.study
        assert isinstance(study, Ablation)
        places = {(run.row, run.seed): now.runs[name_of(run)] for run in outline.runs if name_of(run) in seen.runs}
        found: dict[str, list[RunState | None]] = {
            row.name: [places.get((row.name, seed)) for seed in study.seeds] for row in study.rows
        }
        base = _perplexity(found.get(study.base_row or "", []))[0]
        made, group, twins, foreign = [], None, study.twins(), study.foreign(study.base_row)
        for row in study.rows:
            ppl, ppl_sd = _perplexity(found[row.name])
            bleu, bleu_sd = _bleu(found[row.name])
            known = ppl and base and math.isfinite(ppl - base) and row.name not in (study.base_row, *foreign)
            against = 100 * (ppl / base - 1) if ppl and base and known else None
            values = study.as_trained(row, row.change)
            change = ", ".join(f"{key.partition('.')[2]} {value}" for key, value in values.items())
            change = f"is {twins[row.name]}" if row.name in twins else change
            cells = [
                CellView(view, f"{row.name}, seed {seed}: {view.state if view else 'waiting'}")
                for view, seed in zip(found[row.name], study.seeds, strict=True)
            ]
            first = group is not None and row.group != group
            group = row.group
            made.append(RowView(row.name, change, first, cells, ppl, ppl_sd, bleu, bleu_sd, against))
        return made

    def _trials(self, outline: Outline, now: StudyState, seen: Seen) -> list[TrialView]:
        study = outline.study
        assert isinstance(study, Search)
        return [self._trial(study, state, seen) for state in now.cells]

    def _trial(self, study: Search, state: CellState, seen: Seen) -> TrialView:
        runs = [(run.seed, seen.runs.get(name_of(run))) for run in state.cell.runs]
        plain = self._experiment(self._root / "runs" / name_of(state.cell) / "experiment.json")
        values = [_value(plain, parameter.name) for parameter in study.space]
        done = state.state == "done" and len(state.values) == len(study.objectives)
        return TrialView(state.cell.row, runs, values, list(state.values) if done else [None] * len(study.objectives))

    def _failures(self, outline: Outline, seen: Seen) -> list[Failure]:
        bad = [(run, seen.runs[name_of(run)]) for run in outline.runs if name_of(run) in seen.runs]
        return [
            Failure(view, f"{run.row}, seed {run.seed}", self._log(self._root / "runs" / view.name / "log.txt"))
            for run, view in bad
            if view.state in BAD
        ]


def _value(plain: dict[str, Any], key: str) -> Any:
    section, _, name = key.partition(".")
    found = plain.get(section)
    value = found.get(name) if isinstance(found, dict) else None
    return f"{value:.4g}" if isinstance(value, float) else value


def _perplexity(views: list[RunState | None]) -> tuple[float | None, float | None]:
    """The geometric mean of the finished ones, and the standard deviation of the logarithms in percent."""
    values = [view.ppl for view in views if view is not None and view.state == "finished" and view.ppl is not None]
    known = len(values) > 1 and all(map(math.isfinite, values))
    return (mean_of(values) if values else None), (100 * stdev(map(math.log, values)) if known else None)


def _bleu(views: list[RunState | None]) -> tuple[float | None, float | None]:
    values = [view.bleu for view in views if view is not None and view.state == "finished" and view.bleu is not None]
    return (fmean(values) if values else None), (stdev(values) if len(values) > 1 else None)


def _charts(outline: Outline, seen: Seen, trials: list[TrialView]) -> dict[str, Chart]:
    if outline.study is None:
        return {}
    table = isinstance(outline.study, Ablation)
    curves = _row_curves(outline, seen) if table else _trial_curves(outline, trials, seen)
    last = max((seen.runs[name_of(p)].steps or 0 for p in outline.runs if name_of(p) in seen.runs), default=0)
    note = "mean over finished seeds, or over those under way" if table else "every trial; dashed: stopped early"
    if isinstance(outline.study, Ablation) and outline.study.foreign(outline.study.base_row):
        note += "; without rows that have other pieces than base"
    found = (
        {"chart-dev": Chart("Dev perplexity", curves, note, log=True, big=table, last=float(last) or None)}
        if curves
        else {}
    )
    if isinstance(outline.study, Search) and (history := _history(outline.study, trials)):
        name = next(iter(outline.study.objectives))
        found = {"chart-history": Chart(f"{name} by trial", history, "the line: the best so far", dots=True)} | found
    return found


def _row_curves(outline: Outline, seen: Seen) -> list[Curve]:
    """The mean of each row over its finished seeds; before there are any, over those under way.

    Without rows that have other pieces than base: their perplexities are not comparable.
    """
    assert isinstance(outline.study, Ablation)
    by_row: dict[str, list[RunState]] = {}
    foreign = outline.study.foreign(outline.study.base_row)
    for run in outline.runs:
        view = seen.runs.get(name_of(run))
        if view is not None and view.curve and run.row not in foreign:
            by_row.setdefault(run.row, []).append(view)
    colours = _colours([row.group for row in outline.study.rows])
    groups = {row.name: row.group for row in outline.study.rows}
    found = []
    for row, views in by_row.items():
        chosen = [view for view in views if view.state == "finished"] or views
        found.append(Curve(row, mean_curve([view.curve for view in chosen]), colours[groups[row]]))
    return found


def mean_curve(curves: Sequence[Sequence[tuple[float, float]]]) -> Points:
    """The mean of curves at the steps that all of them have."""
    steps: dict[float, list[float]] = {}
    for curve in curves:
        for step, value in curve:
            steps.setdefault(step, []).append(value)
    return sorted((step, fmean(values)) for step, values in steps.items() if len(values) == len(curves))


def _colours(groups: list[str]) -> dict[str, int]:
    return {group: number for number, group in enumerate(dict.fromkeys(groups))}


def _trial_curves(outline: Outline, trials: list[TrialView], seen: Seen) -> list[Curve]:
    """The mean of each trial's runs, the best trial in front."""
    best = seen.studies[outline.name].best
    found = []
    for trial in trials:
        curves = [view.curve for _, view in trial.runs if view is not None and view.curve]
        if curves and (mean := mean_curve(curves)):
            won = best is not None and trial.name == best.row
            found.append(Curve(trial.name, mean, 4, dashed=trial.state == "stopped early", rest=not won))
    return sorted(found, key=lambda curve: not curve.rest)


def _history(study: Search, trials: list[TrialView]) -> list[Curve]:
    """Values of the first objective by trial, and the best so far."""
    more = study.directions[0] == "maximize"
    points = [(float(i), trial.scores[0]) for i, trial in enumerate(trials) if trial.scores[0] is not None]
    known = [(x, value) for x, value in points if value is not None and math.isfinite(value)]
    if not known:
        return []
    line, best = [], known[0][1]
    for x, value in known:
        best = max(best, value) if more else min(best, value)
        line.append((x, best))
    return [Curve("trials", known, 3), Curve("best", line, 4, line=True)]
