"""A study's page while it runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from lightning_tfm.config import Experiment, Miniature, typed_and_trained
from lightning_tfm.dashboard.board import Board, Seen
from lightning_tfm.dashboard.chart import Chart, Curve, mean_curve
from lightning_tfm.dashboard.fields import as_column, fields, over_runs
from lightning_tfm.dashboard.markup import NOTHING
from lightning_tfm.dashboard.page import NoSuchPage, Page
from lightning_tfm.dashboard.run_page import experiment_of
from lightning_tfm.dashboard.studies import Outline
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import PPL, Metric
from lightning_tfm.report.search_summary import field_name, objective_name
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation, own_name, value_of
from lightning_tfm.study.user_classes import earlier_words
from lightning_tfm.watch.query import Field, find_field
from lightning_tfm.watch.run_state import STATES, RunState, name_of
from lightning_tfm.watch.study_state import CellState, StudyState

BAD = ("failed", "damaged", "interrupted")
PARTS = ["head", "cells", "failures"]
Asked = tuple[Field, str, str, Callable[[Any], str]]
"""a field that the reader asked for, its head, what it is, and how a value is written"""
Shown = tuple[Any, str]
"""a value to sort by, and in print"""


def page(board: Board, seen: Seen, name: str, columns: str = "") -> Page:
    """`columns`: fields that its table shows, too, by commas. Raises NoSuchPage."""
    if name not in seen.studies:
        raise NoSuchPage(f"there is no study '{name}'")
    view, outline = seen.studies[name], seen.outlines[name]
    more, wrong = _more(seen, columns, outline.study.base.miniature if outline.study else Miniature())
    table = outline.study if isinstance(outline.study, Ablation) else None
    rows = _rows(table, outline, view, seen, more) if table else []
    search = outline.study if isinstance(outline.study, Search) else None
    trials = [_trial(search, state, seen, more) for state in view.cells] if search else []
    data = {
        "view": view,
        "called": outline.called,
        "labels": outline.labels,
        "question": outline.question,
        "earlier": earlier_words(outline.study.classes) if outline.study else "",
        "counts": [(word, number) for word, number in view.counts.items() if number],
        "here": f"/study/{quote(name, safe='')}",
        "hidden": [row.label or own_name(row) for row in table.hidden] if table else [],
        "seeds": table.seeds if table else [],
        "rows": rows,
        "metrics": [metric.label for metric, _ in rows[0]["scores"]] if rows else [],
        "trials": trials,
        "parameters": [(field_name(p.name), p.name) for p in search.space] if search else [],
        "objectives": list(search.objectives) if search else [],
        "failures": _failures(board, outline, seen),
        "columns": columns,
        "more": [column[1:3] for column in more],
        "wrong": wrong,
        "fields": lambda: fields(seen),
    }
    charts = _charts(outline, seen, trials)
    busy = bool(view.counts.get("running"))
    live = f"/study/{quote(name, safe='')}/news" + f"?{urlencode({'columns': columns})}" * bool(columns)
    return Page("study.html", outline.called, live, PARTS, data, charts, busy)


def _rows(study: Ablation, outline: Outline, now: StudyState, seen: Seen, more: list[Asked]) -> list[dict[str, Any]]:
    """Each row's cells by seed, None for one that nobody has started, and the means over its finished runs.

    `against`: by how many percent its perplexity differs from base's; None for other pieces than base's, and for a row
    whose runs are another's. `first`: of its group.
    """
    places = {(run.row, run.seed): now.runs[name_of(run)] for run in outline.runs if name_of(run) in seen.runs}
    found = {row.name: [(seed, places.get((row.name, seed))) for seed in study.seeds] for row in study.rows}
    base = _mean(found.get(study.base_row or "", []), PPL)["mean"]
    metrics = now.metrics(study)
    made, group, twins, foreign = [], None, study.twins(), study.foreign(study.base_row)
    for row in study.rows:
        ppl, *scores = (_mean(found[row.name], metric) for metric in (PPL, *metrics))
        compared = row.name not in (study.base_row, *foreign, *twins)
        against = _difference(ppl["mean"], base) if compared else None
        trained = study.trained_values(row, row.change)
        values = {key: typed_and_trained(value, trained[key]) for key, value in row.change.items()}
        change = ", ".join(f"{key.partition('.')[2]} {value}" for key, value in values.items())
        change = f"is {twins[row.name]}" if row.name in twins else change
        own = {"name": row.name, "label": row.label, "cells": found[row.name], "ppl": ppl, "against": against}
        own |= {"change": change, "first": group is not None and row.group != group}
        group = row.group
        asked = _over_runs(more, [view for _, view in found[row.name]])
        made.append(own | {"scores": [*zip(metrics, scores, strict=True)], "more": asked})
    return made


def _failures(board: Board, outline: Outline, seen: Seen) -> list[tuple[RunState, str, str]]:
    """Each run that ended badly: its state, what it is called, and the end of its log."""
    bad = [(run, view) for run in outline.runs if (view := seen.runs.get(name_of(run))) and view.state in BAD]
    log = {view.name: board.log(board.root / "runs" / view.name / "log.txt") for _, view in bad}
    labels = outline.labels
    return [(view, f"{labels.get(run.row) or run.row}, seed {run.seed}", log[view.name]) for run, view in bad]


def _more(seen: Seen, columns: str, miniature: Miniature) -> tuple[list[Asked], str]:
    """The fields asked for, or what is wrong with them."""
    names, known = [name.strip() for name in columns.split(",") if name.strip()], fields(seen) if columns else {}
    try:
        return [(field, *as_column(field, miniature)) for field in (find_field(name, known) for name in names)], ""
    except UserError as error:
        return [], str(error)


def _over_runs(more: list[Asked], views: Sequence[RunState | None]) -> list[Shown]:
    done = [view for view in views if view is not None and view.state == "finished"]
    values = [over_runs(field, done) for field, *_ in more]
    return [(value, written(value)) for value, (*_, written) in zip(values, more, strict=True)]


def _trial(study: Search, state: CellState, seen: Seen, more: list[Asked]) -> dict[str, Any]:
    """A trial: its runs by seed, None for one that nobody has started, its parameters and its scores."""
    now = seen.studies[study.name].runs
    runs = [(run.seed, now[name_of(run)] if name_of(run) in seen.runs else None) for run in state.cell.runs]
    trained = experiment_of(runs[0][1].experiment) if runs[0][1] else None
    shown = [_typed_value(trained, study, p.name) if trained else (NOTHING, NOTHING) for p in study.space]
    done = state.state == "finished" and len(state.values) == len(study.objectives)
    scores: list[float | None] = list(state.values) if done else [None] * len(study.objectives)
    there = {view.state if view else "waiting" for _, view in runs}
    trial = {"name": state.cell.row, "runs": runs, "view": runs[0][1], "parameters": shown, "scores": scores}
    trial |= {"state": next(word for word in STATES if word in there)}
    return trial | {"more": _over_runs(more, [view for _, view in runs])}


def _typed_value(trained: Experiment, study: Search, key: str) -> Shown:
    typed, exact = (value_of(one, key) for one in (trained.unscaled(study.base.miniature), trained))
    return exact, f"{exact:.4g}" if isinstance(exact, float) else typed_and_trained(typed, exact)


def _mean(cells: list[tuple[int, RunState | None]], metric: Metric) -> dict[str, Any]:
    """Over the finished runs of a row, all with such a score and none diverged, the standard deviation in print, or
    what to say."""
    ended = [view for _, view in cells if view is not None and (view.state == "finished" or view.diverged)]
    values = [value for view in ended if (value := view.score(metric)) is not None]
    if lost := sum(view.diverged for view in ended):
        return {"mean": None, "spread": "", "instead": f"diverged ({lost} of {len(ended)})"}
    if not values or len(values) < len(ended):
        return {"mean": None, "spread": "", "instead": NOTHING}
    sd = metric.sd(values)
    return {"mean": metric.mean(values), "spread": "" if sd is None else metric.spread(sd)}


def _difference(ppl: float | None, base: float | None) -> float | None:
    if ppl is None or base is None or not math.isfinite(ppl - base):
        return None
    return PPL.in_units(PPL.transform(ppl) - PPL.transform(base))


def _charts(outline: Outline, seen: Seen, trials: list[dict[str, Any]]) -> dict[str, Chart]:
    if outline.study is None:
        return {}
    table = isinstance(outline.study, Ablation)
    curves = _row_curves(outline, seen) if table else _trial_curves(outline, trials, seen)
    last = max((seen.runs[name_of(p)].steps or 0 for p in outline.runs if name_of(p) in seen.runs), default=0)
    note, to = "every trial, the best in front; hollow at the end: stopped early", ""
    if isinstance(outline.study, Ablation):
        base_row = outline.study.base_row
        base = next((curve.name for curve in curves if curve.row == base_row and len(curves) > 1), "")
        at = f"against {base} at the same share of each row’s own training; " * bool(base)
        note, to = f"{at}mean over finished seeds, or over those under way", base
        note += "; without rows that have another vocabulary than base" * bool(outline.study.foreign(base_row))
    dev = Chart("Dev perplexity", curves, note, True, big=table, from_zero=table, last=float(last) or None, to=to)
    found = {"chart-dev": dev} if curves else {}
    if isinstance(outline.study, Search) and (history := _history(outline.study, trials)):
        name = next(iter(outline.study.objectives))
        note = "the line: the best so far" + "; hollow: stopped early, at the last value" * (len(history) > 2)
        found = {
            "chart-history": Chart(f"{objective_name(name)} by trial", history, note, name == "dev/ppl", dots=True)
        } | found
    return found


def _row_curves(outline: Outline, seen: Seen) -> list[Curve]:
    """The mean of each row over its finished seeds; before there are any, over those under way.

    Without rows that have other pieces than base: their perplexities are not comparable.
    """
    assert isinstance(outline.study, Ablation)
    by_row: dict[str, list[RunState]] = {}
    foreign = outline.study.foreign(outline.study.base_row)
    for run in outline.runs:
        view = seen.studies[outline.name].runs[name_of(run)]
        if view.curve and run.row not in foreign:
            by_row.setdefault(run.row, []).append(view)
    labels = seen.outlines[outline.name].labels
    colours = {row.name: number for number, row in enumerate(outline.study.rows)}
    found = []
    for row, views in by_row.items():
        chosen = [view for view in views if view.state == "finished"] or views
        curve = mean_curve(labels[row] or row, colours[row], [list(view.curve) for view in chosen], PPL.mean)
        steps = chosen[0].steps or int(max(view.curve[-1][0] for view in chosen))
        found.append(replace(curve, row=row, steps=steps))
    return found


def _trial_curves(outline: Outline, trials: list[dict[str, Any]], seen: Seen) -> list[Curve]:
    """The mean of each trial's runs, the best trial in front."""
    best = seen.studies[outline.name].best
    found = []
    for trial in trials:
        curves = [list(view.curve) for _, view in trial["runs"] if view is not None and view.curve]
        if curves and (mean := mean_curve(trial["name"], 4, curves, PPL.mean)).points:
            won = best is not None and trial["name"] == best.row
            found.append(replace(mean, hollow=trial["state"] == "stopped early", rest=not won, band=()))
    return sorted(found, key=lambda curve: not curve.rest)


def _history(study: Search, trials: list[dict[str, Any]]) -> list[Curve]:
    """Values of the first objective by trial, the best so far, and, of dev perplexity, where the stopped ones stood."""
    more = study.directions[0] == "maximize"
    points = [(float(i), trial["scores"][0]) for i, trial in enumerate(trials)]
    known = [(x, value) for x, value in points if value is not None and math.isfinite(value)]
    if not known:
        return []
    line, best = [], known[0][1]
    for x, value in known:
        best = max(best, value) if more else min(best, value)
        line.append((x, best))
    of_ppl = next(iter(study.objectives)) == "dev/ppl"
    ends = [(float(i), t["view"].ppl) for i, t in enumerate(trials) if t["state"] == "stopped early" and of_ppl]
    stopped = [(x, value) for x, value in ends if value is not None and math.isfinite(value)]
    early = [Curve("stopped early", stopped, 0, hollow=True)] * bool(stopped)
    return [*early, Curve("trials", known, 3), Curve("best", line, 4, line=True)]
