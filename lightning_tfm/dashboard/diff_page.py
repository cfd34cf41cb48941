"""Runs beside each other: fields, curves, scores, and the same sentences."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lightning_tfm.dashboard.board import Board, Seen
from lightning_tfm.dashboard.chart import KEYED, Chart, Curve
from lightning_tfm.dashboard.markup import NOTHING, clock, number
from lightning_tfm.dashboard.page import NoSuchPage, Page
from lightning_tfm.dashboard.run_page import axes, fields_of
from lightning_tfm.dashboard.texts import Sentence, dev_lines, hypotheses, side_by_side
from lightning_tfm.metrics import METRICS, PPL, Metric
from lightning_tfm.plural_words import signed
from lightning_tfm.runs.record import RunRecord, Score, read_record
from lightning_tfm.watch.run_state import DEV, RunState

MOST = KEYED
"""runs beside each other"""
PARTS = ["scores", "fields", "texts"]
KEYS = {
    "loss": "Training loss",
    "nll": "Training NLL",
    DEV: "Dev perplexity",
    "lr": "Learning rate",
    "grad_norm": "Gradient norm",
}


def page(board: Board, seen: Seen, names: Sequence[str]) -> Page:
    """Two runs or more. Raises NoSuchPage."""
    names = list(dict.fromkeys(names))
    if not 2 <= len(names) <= MOST:
        raise NoSuchPage(f"choose two to {MOST} runs: /diff?run=…&run=…; studies: /compare?study=…&study=…")
    if unknown := [name for name in names if name not in seen.runs]:
        raise NoSuchPage(f"there is no run '{unknown[0]}'")
    views = [seen.runs[name] for name in names]
    called = [_called(seen, view, views) for view in views]
    folders = [board.root / "runs" / view.name for view in views]
    records = [
        found if isinstance(found := read_record(folder / "result.json"), RunRecord) else None for folder in folders
    ]
    fields = _fields([fields_of(seen, view) for view in views])
    sentences, why = _sentences(board, called, folders, records)
    data = {
        "sides": [{"name": called[i], "link": f"/run/{name}", "colour": i} for i, name in enumerate(names)],
        "scores": _run_scores(views, records),
        "fields": fields,
        "differing": any(field["differs"] for field in fields),
        "sentences": sentences,
        "why": why,
    }
    busy = any(view.state == "running" for view in views)
    title = " · ".join(called[:3])
    live = f"/diff/news?{urlencode([('run', name) for name in names])}"
    return Page("diff.html", title, live, PARTS, data, _charts(board, called, views), busy)


def _charts(board: Board, called: list[str], views: list[RunState]) -> dict[str, Chart]:
    courses = [board.course(view.name) for view in views]
    last = float(max((view.steps or 0 for view in views), default=0)) or None
    found = {}
    for key in (DEV, "loss", "nll", "grad_norm", "lr"):
        curves = [
            Curve(name, course.points(key), i, across=axes(course))
            for i, (name, course) in enumerate(zip(called, courses, strict=True))
            if course.points(key)
        ]
        if curves:
            found[f"chart-{key}"] = Chart(KEYS[key], curves, log=key == DEV, last=last)
    return found


def _sentences(
    board: Board, names: list[str], folders: list[Path], records: list[RunRecord | None]
) -> tuple[list[Sentence], str]:
    """The same dev sentences on all sides, or why they cannot be shown."""
    if not board.texts:
        return [], "Lines of the corpus are left out here."
    known = [record for record in records if record is not None]
    if len(known) < len(records):
        return [], "Not all of them have finished: their translations come with their scores."
    prints = {record.data.dev for record in known}
    if len(prints) > 1:
        return [], "They were scored on different dev texts."
    found = [hypotheses(folder, record) for folder, record in zip(folders, known, strict=True)]
    if not all(found):
        return [], "Their translations are not here (records that were packed travel without text)."
    return side_by_side(names, found, dev_lines(board.root, known[0])), ""


def _called(seen: Seen, view: RunState, views: list[RunState]) -> str:
    """Row and seed, with the study where several have the same."""
    name = seen.called(view.name)
    if sum(seen.called(other.name) == name for other in views) == 1:
        return name
    homes = seen.homes.get(view.name, ())
    return f"{homes[0].study}: {name}" if homes else f"{name}, {view.name[:8]}"


def _fields(sides: list[dict[str, dict[str, str]]]) -> list[dict[str, Any]]:
    """All fields of experiments, and whether they differ; a dash where one is missing on a side."""
    flat = [{f"{part}.{key}": value for part, keys in side.items() for key, value in keys.items()} for side in sides]
    keys = list(dict.fromkeys(key for side in flat for key in side))
    texts = {key: [side.get(key, NOTHING) for side in flat] for key in keys}
    return [{"name": key, "texts": of, "differs": len({*of}) > 1} for key, of in texts.items()]


def _run_scores(views: list[RunState], records: list[RunRecord | None]) -> list[tuple[str, list[str]]]:
    names = list(dict.fromkeys(name for record in records if record for name in record.scores))
    found: list[tuple[str, list[str]]] = [("state", [view.state for view in views])]
    pieces = [record.data.dev if record else "" for record in records]
    for name in names:
        scores = [record.scores.get(name) if record else None for record in records]
        for metric in (m for m in METRICS.values() if m.printed or m.more):
            values = [metric.of(score) if score else None for score in scores]
            kinds = pieces if metric is PPL else [_how(s, metric) for s in scores]
            if set(values) != {None}:
                found.append((f"{name} {metric.label}", _with_differences(values, metric, kinds)))
    found.append(("parameters", [f"{r.parameters.total:,}" if r else NOTHING for r in records]))
    found.append(("training FLOPs", [f"{r.flops:.3g}" if r else NOTHING for r in records]))
    found.append(
        ("tokens/s", [NOTHING if v.tokens_per_second is None else f"{v.tokens_per_second:,.0f}" for v in views])
    )
    return [*found, ("time", [clock(view.seconds) for view in views])]


def _how(score: Score | None, metric: Metric) -> object:
    """What two values of a metric must have in common: its signature, and a text of the same size, which for runs of
    other pieces is all that is known of it."""
    if score is None:
        return None
    return score.measures.get(metric.name, score).signature, score.sentences, score.words, score.characters


def _with_differences(values: list[float | None], metric: Metric, kinds: Sequence[object]) -> list[str]:
    """Each with its difference to the first; without one of other pieces, another text or another signature."""
    first = values[0]
    texts = []
    for i, value in enumerate(values):
        text, apart = number(value, metric.digits + 1), math.nan
        if i and value is not None and first is not None and kinds[i] == kinds[0]:
            apart = metric.in_units(metric.transform(value) - metric.transform(first))
        texts.append(
            f"{text} ({signed(apart, metric.difference_digits)}{' %' * metric.log})" if math.isfinite(apart) else text
        )
    return texts
