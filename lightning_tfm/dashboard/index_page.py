"""The page of all studies, searches and runs. All runs are sent as numbers to sort and to filter by; as rows of the
table those that somebody looks at."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lightning_tfm.dashboard.board import Seen
from lightning_tfm.dashboard.fields import fields, said
from lightning_tfm.dashboard.markup import blocks, render, spark
from lightning_tfm.dashboard.page import Frame, News
from lightning_tfm.metrics import OF_TEXT, Metric, chief
from lightning_tfm.study.command import with_out
from lightning_tfm.watch.query import Field, find_field, find_runs
from lightning_tfm.watch.run_state import STATES, RunState
from lightning_tfm.watch.study_state import StudyState

ORDER = {state: number for number, state in enumerate(STATES)}
FIRST = 100
"""runs that the page begins with; the script asks for others by `rows`"""


def page(frame: Frame, seen: Seen) -> str:
    """The whole page, what runs on top, then the newest."""
    runs, studies = newest_first(seen.runs.values()), newest_first(seen.studies.values())
    scores = [run.scores for run in runs]
    scored = dict.fromkeys(_chief(*found).label for found in scores if found)
    return render(
        "index.html",
        **frame.plain("Runs and studies", "/news", str(seen.version)),
        counts=_counts(seen),
        notes=seen.notes,
        names={name: seen.outlines[name].called for name in sorted(seen.studies)},
        studies=[_study(seen, view) for view in studies],
        runs=[_row(seen, view) for view in runs[:FIRST]],
        count=len(runs),
        metrics=[*scored] or [OF_TEXT.label] * any(run.state != "finished" for run in runs),
        index=_index(seen, runs, scores),
        starts=_starts(frame.root),
        fields=list(fields(seen)),
    )


def _starts(root: Path) -> list[tuple[str, str]]:
    """Commands that begin something in this folder, and what each does."""
    named = {
        "lightning-tfm demo": "Half a minute: a model of one layer, three translations, a report.",
        "lightning-tfm sweep sweeps/table3.yaml": "Twelve minutes: Table 3 of the paper, scaled down, at one seed.",
    }
    return [(with_out(command, root), about) for command, about in named.items()]


def news(seen: Seen, since: int) -> News:
    """What is different since that version."""
    fresh = [key for key, version in seen.since.items() if version > since]
    runs = [seen.runs[key[4:]] for key in fresh if key.startswith("run/")]
    studies = [_study(seen, seen.studies[key[6:]]) for key in fresh if key.startswith("study/")]
    index = _index(seen, runs, [run.scores for run in runs])
    tables: dict[str, Any] = {"table-runs": {"index": index, "count": len(seen.runs)}}
    if seen.studies:
        tables["table-studies"] = {"rows": studies, "count": len(seen.studies)}
    parts = blocks("index.html", ["summary"], counts=_counts(seen), notes=seen.notes)
    busy = any(view.state == "running" for view in seen.runs.values())
    return News(str(seen.version), parts, rows=tables, pause=2000 if busy else 5000)


def rows(seen: Seen, names: Sequence[str]) -> dict[str, str]:
    """Name -> row of the table; of those that are there, and of no more than the page begins with."""
    return {name: _row(seen, seen.runs[name]) for name in names[:FIRST] if name in seen.runs}


def newest_first(views: Iterable[Any]) -> list[Any]:
    """What runs comes first."""
    return sorted(views, key=lambda view: (view.state != "running", -(view.changed or 0.0), view.name))


def chosen(seen: Seen, where: str, columns: Sequence[str]) -> dict[str, Any]:
    """Names of the runs that a condition finds, all without one, and their values of these fields. Raises UserError."""
    known = fields(seen)
    runs, _ = find_runs(where, known, seen.scored)
    found = list({run.name: run for run in reversed(runs)}.values())[::-1]
    asked = [find_field(name, known) for name in columns]
    values = {field.name: [_plain(field, field.of(run)) for run in found] for field in asked}
    return {"name": [run.name for run in found], "columns": values}


def _plain(field: Field, value: Any) -> Any:
    if isinstance(value, bool | int):
        return value
    return _short(value) if field.kind == "number" and isinstance(value, float) else said(field, value)


def _row(seen: Seen, view: RunState) -> str:
    homes, said, curve = seen.homes.get(view.name, ()), seen.called(view.name), spark(view.curve, view.steps)
    data = {"homes": homes, "said": said, "order": ORDER, "curve": curve}
    return blocks("index.html", ["run_row"], view=view, **data)["run_row"]


def _study(seen: Seen, view: StudyState) -> str:
    return blocks("index.html", ["study_row"], view=view, outline=seen.outlines[view.name])["study_row"]


def _index(seen: Seen, views: Sequence[RunState], scores: Sequence[dict[str, float]]) -> dict[str, list[Any]]:
    """What runs are sorted and found by, in columns, which compress better than rows."""
    homes = ["|".join(home.study for home in seen.homes.get(view.name, ())) for view in views]
    return {
        "name": [view.name for view in views],
        "said": [_called(seen, view.name) for view in views],
        "study": homes,
        "state": [ORDER[view.state] for view in views],
        "words": [view.words[:60] for view in views],
        "step": [_short(view.step / view.steps if view.step is not None and view.steps else None) for view in views],
        "ppl": [_short(view.ppl) for view in views],
        "score": [_short(found.get(_chief(*found).name)) for found in scores],
        "rate": [_short(view.tokens_per_second) for view in views],
        "seconds": [_short(view.seconds) for view in views],
        "changed": [None if view.changed is None else round(view.changed) for view in views],
    }


def _called(seen: Seen, name: str) -> str:
    """By which a run is sorted and found: what people call it, then its row's name where that is another."""
    homes = seen.homes.get(name)
    return f"{homes[0].called} {homes[0].row}" if homes and homes[0].label else seen.called(name)


@cache
def _chief(*names: str) -> Metric:
    """The same for thousands of runs."""
    return chief(names)


def _short(value: float | None) -> float | str | None:
    """With as many digits as order needs; infinity as JavaScript reads it."""
    return None if value is None else "Infinity" if value == float("inf") else float(f"{value:.5g}")


def _counts(seen: Seen) -> list[tuple[str, int]]:
    found = Counter(view.state for view in seen.runs.values())
    return [(state, found[state]) for state in STATES]
