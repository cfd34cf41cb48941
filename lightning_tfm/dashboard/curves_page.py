"""Curves of the runs that a condition finds: one each, or the means of groups by a field."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any
from urllib.parse import urlencode

from lightning_tfm.dashboard.board import Board, Seen
from lightning_tfm.dashboard.chart import KEYED, Chart, Curve, mean_curve
from lightning_tfm.dashboard.diff_page import KEYS
from lightning_tfm.dashboard.fields import fields, value_in_words
from lightning_tfm.dashboard.index_page import newest_first
from lightning_tfm.dashboard.page import Page
from lightning_tfm.dashboard.run_page import axes
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import PPL
from lightning_tfm.watch.query import find_field, find_runs
from lightning_tfm.watch.run_state import DEV, Points, RunState

READ = 120
"""runs whose files are read; of more there is what the index knows, a thinned dev perplexity over steps"""


def page(board: Board, seen: Seen, where: str, by: str, measure: str) -> Page:
    """For a condition, a field to group by and a measure; each may be empty. It says what is wrong with them."""
    known, measure = fields(seen), measure or DEV
    found, charts, words = list[RunState](), dict[str, Chart](), ""
    try:
        found, _ = find_runs(where, known, newest_first(seen.scored))
        curves, note = _curves(board, seen, found, by and find_field(by, known), measure)
        charts = {"chart-curves": Chart(KEYS[measure], curves, note, log=measure == DEV, big=True)} if curves else {}
    except UserError as error:
        words = str(error)
    data = {
        "where": where,
        "by": by,
        "measure": measure,
        "measures": KEYS,
        "fields": list(known),
        "found": len(found),
        "words": words,
    }
    live = f"/curves/news?{urlencode({'where': where, 'by': by, 'measure': measure})}"
    return Page("curves.html", "Curves", live, [], data, charts, any(view.state == "running" for view in found))


def _curves(board: Board, seen: Seen, found: list[RunState], by: Any, measure: str) -> tuple[list[Curve], str]:
    """And what to know about them. Raises UserError if there are too many."""
    if measure not in KEYS or (measure != DEV and len(found) > READ):
        raise UserError(
            f"{KEYS.get(measure, measure)}: of at most {READ} runs; here are {len(found)}: narrow the condition"
        )
    if not by:
        names = [seen.called(view.name) for view in found[:KEYED]]
        shown = [
            _curve(board, name if names.count(name) == 1 else f"{name}, {view.name[:6]}", i, [view], measure)
            for i, (name, view) in enumerate(zip(names, found, strict=False))
        ]
        more = f"the newest {KEYED} of {len(found)} runs: group them by a field to see all" if found[KEYED:] else ""
        return [curve for curve in shown if curve.points], more
    groups: dict[Any, list[RunState]] = {}
    for view in found:
        groups.setdefault(by.of(view), []).append(view)
    if len(groups) > KEYED:
        raise UserError(f"{by.name} has {len(groups)} values here, more than {KEYED}: narrow the condition")
    shown = []
    ranks = _rows_in_order(seen, found) if by.name == "row" else {}
    labels = {(home.row,): home.label for view in found for home in seen.places(view)} if by.name == "row" else {}
    for value in sorted(
        groups, key=lambda v: (v is None, ranks.get(v, len(ranks)), isinstance(v, str | tuple), v or 0)
    ):
        done = [view for view in groups[value] if view.state == "finished"] or groups[value]
        name = f"{labels.get(value) or value_in_words(value) or 'none'} ({len(done)})"
        shown.append(_curve(board, name, len(shown), done, measure, len(found)))
    note = f"by {by.name}: mean, lowest and highest of finished runs (else of those under way) at common steps"
    return [curve for curve in shown if curve.points], note


def _curve(board: Board, name: str, colour: int, views: Sequence[RunState], measure: str, of: int = 1) -> Curve:
    mean = PPL.mean if measure == DEV else fmean
    if of > READ:
        return mean_curve(name, colour, [list(view.curve) for view in views if view.curve], mean)
    courses = [(view, board.course(view.name, view.text)) for view in views]
    known = [(view, course) for view, course in courses if course.points(measure)]
    across: dict[str, list[Points]] = {}
    for view, course in known:
        for axis, points in axes(course, view.record.flops if view.record else None).items():
            across.setdefault(axis, []).append(points)
    of_all = {axis: mean_curve("", 0, found).points for axis, found in across.items() if len(found) == len(known)}
    curve = mean_curve(name, colour, [course.points(measure) for _, course in known], mean)
    return replace(curve, across={axis: list(points) for axis, points in of_all.items()})


def _rows_in_order(seen: Seen, found: Sequence[RunState]) -> dict[tuple[str, ...], int]:
    """As the study has them that most of these runs are of, so that they have the colours of its page; then others."""
    studies = Counter(home.study for view in found for home in seen.places(view))
    rows = [run.row for study, _ in studies.most_common() for run in seen.outlines[study].runs]
    return {(row,): rank for rank, row in enumerate(dict.fromkeys(rows))}
