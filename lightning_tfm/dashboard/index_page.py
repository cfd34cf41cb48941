"""The page of all studies, searches and runs. The server filters, sorts and cuts the table of runs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.dashboard.board import Seen
from lightning_tfm.dashboard.fields import fields, typed
from lightning_tfm.dashboard.markup import NOTHING, blocks, render, spark
from lightning_tfm.dashboard.page import News, frame
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import OF_TEXT
from lightning_tfm.study.command import with_out
from lightning_tfm.watch.query import find_field, find_runs
from lightning_tfm.watch.run_state import STATES, RunState
from lightning_tfm.watch.study_state import StudyState

ORDER = {state: number for number, state in enumerate(STATES)}
FIRST, MOST = 100, 100_000
"""runs that the table begins with, and has at most"""


@dataclass(frozen=True)
class Asked:
    """Which runs the table has, and in which order: what stands in the page's address."""

    find: str = ""
    """words that each run has"""
    state: str = ""
    study: str = ""
    where: str = ""
    columns: str = ""
    """fields, by commas"""
    sort: str = ""
    """a key of SORTS or a column; with a minus from the top; empty: what runs, then the newest"""
    most: int = FIRST

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Asked":
        """From an address's parameters; others are left alone."""
        most = given.get("most", "")
        words = {key: given[key] for key in ("find", "state", "study", "where", "columns", "sort") if key in given}
        return cls(**words, most=min(int(most), MOST) if re.fullmatch("[0-9]{1,6}", most) else FIRST)


ALL = Asked()
SORTS: dict[str, Callable[[Seen, RunState], Any]] = {
    "run": lambda seen, run: _natural(_called(seen, run.name)),
    "study": lambda seen, run: _natural(",".join(home.study for home in seen.homes.get(run.name, ()))),
    "state": lambda seen, run: ORDER[run.state],
    "step": lambda seen, run: run.step / run.steps if run.step is not None and run.steps else None,
    "ppl": lambda seen, run: run.ppl,
    "score": lambda seen, run: run.score(run.metric),
    "rate": lambda seen, run: run.tokens_per_second,
    "seconds": lambda seen, run: run.seconds,
    "changed": lambda seen, run: run.changed,
}
"""column of the table -> what it is sorted by"""


def page(root: Path, seen: Seen, asked: Asked) -> str:
    """The whole page. Where a condition cannot be read, it says why, and all runs are shown."""
    wrong = ""
    try:
        table = _table(seen, asked)
    except UserError as error:
        wrong, table = str(error), _table(seen, replace(asked, where="", columns=""))
    return render(
        "index.html",
        **frame(root, "Runs and studies", "/news", str(seen.version)),
        **table,
        asked=asked,
        wrong=wrong,
        counts=_counts(seen),
        notes=seen.notes,
        names=_titles(seen),
        studies=[_study(seen, view) for view in newest_first(seen.studies.values())],
        starts=_starts(root),
        fields=list(fields(seen)),
    )


def runs(seen: Seen, asked: Asked) -> str:
    """The table of runs alone. Raises UserError."""
    return blocks("index.html", ["runs"], **_table(seen, asked))["runs"]


def news(seen: Seen, since: int, asked: Asked) -> News:
    """What is different since that version."""
    fresh = [seen.studies[name] for name in seen.studies if seen.since[f"study/{name}"] > since]
    parts = blocks("index.html", ["summary"], counts=_counts(seen), notes=seen.notes)
    try:
        parts["runs"] = runs(seen, asked)
    except UserError:
        pass  # as it was: the reader was told when asking
    studies = {"rows": [_study(seen, view) for view in fresh], "count": len(seen.studies)}
    busy = any(view.state == "running" for view in seen.runs.values())
    return News(str(seen.version), parts, rows={"table-studies": studies}, busy=busy)


def _table(seen: Seen, asked: Asked) -> dict[str, Any]:
    """For the block of runs. Raises UserError."""
    known = fields(seen) if asked.where or asked.columns else {}
    own = [find_field(name.strip(), known) for name in asked.columns.split(",") if name.strip()]
    found = newest_first(seen.runs.values())
    views = {run.name: run for run in reversed(seen.scored)} if own else {}
    if asked.where:
        chosen, _ = find_runs(asked.where, known, seen.scored)
        views = {run.name: run for run in reversed(chosen)}
        found = [run for run in found if run.name in views]
    words = asked.find.lower().split()
    found = [run for run in found if _has(seen, run, asked, words)]
    key, down = asked.sort.removeprefix("-"), asked.sort.startswith("-")
    by = next((field for field in own if field.name == key), None)
    if by is not None or key in SORTS:
        values = [by.of(views[run.name]) if by else SORTS[key](seen, run) for run in found]
        pairs = sorted(((v, i) for i, v in enumerate(values) if v is not None), key=lambda p: p[0], reverse=down)
        found = [found[i] for _, i in pairs] + [run for run, v in zip(found, values, strict=True) if v is None]
    rows = [
        _row(seen, run, [typed(field, field.of(views[run.name]), seen.miniature(run.name)) or NOTHING for field in own])
        for run in found[: asked.most]
    ]
    unscored = [OF_TEXT.label] * any(run.state != "finished" for run in seen.runs.values())
    return {
        "rows": rows,
        "own": [field.name for field in own],
        "sort": asked.sort,
        "count": len(found),
        "total": len(seen.runs),
        "metrics": seen.chiefs or unscored,
    }


def _has(seen: Seen, run: RunState, asked: Asked, words: list[str]) -> bool:
    if asked.state and run.state != asked.state:
        return False
    homes = [home.study for home in seen.homes.get(run.name, ())] if words or asked.study else []
    if asked.study and asked.study not in homes:
        return False
    text = " ".join([run.name, _called(seen, run.name), *homes, run.state, run.words]).lower() if words else ""
    return all(word in text for word in words)


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Numbers in a text by their value."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text)]


def _titles(seen: Seen) -> dict[str, str]:
    """name -> what a study is called; with its name where another is called so, too."""
    several = Counter(outline.called for outline in seen.outlines.values())
    outlines = [seen.outlines[name] for name in sorted(seen.studies)]
    return {one.name: one.called + f" ({one.name})" * (several[one.called] > 1) for one in outlines}


def _starts(root: Path) -> list[tuple[str, str]]:
    """Commands that begin something in this folder, and what each does."""
    named = {
        "lightning-tfm demo": "Half a minute: a model of one layer, three translations, a report.",
        "lightning-tfm sweep sweeps/table3.yaml": "Some fifteen minutes: Table 3 of the paper, scaled down, one seed.",
    }
    return [(with_out(command, root), about) for command, about in named.items()]


def newest_first(views: Iterable[Any]) -> list[Any]:
    """What runs comes first."""
    return sorted(views, key=lambda view: (view.state != "running", -(view.changed or 0.0), view.name))


def _row(seen: Seen, view: RunState, own: list[str]) -> str:
    homes, called, curve = seen.homes.get(view.name, ()), seen.called(view.name), spark(view.curve, view.steps)
    studies = list(dict.fromkeys(home.study for home in homes))
    data = {"homes": homes, "studies": studies, "called": called, "curve": curve, "own": own}
    return blocks("index.html", ["run_row"], view=view, **data)["run_row"]


def _study(seen: Seen, view: StudyState) -> str:
    return blocks("index.html", ["study_row"], view=view, outline=seen.outlines[view.name])["study_row"]


def _called(seen: Seen, name: str) -> str:
    """By which a run is sorted and found: what people call it, then its row's name where that is another."""
    homes = seen.homes.get(name)
    return f"{homes[0].called} {homes[0].row}" if homes and homes[0].label else seen.called(name)


def _counts(seen: Seen) -> list[tuple[str, int]]:
    found = Counter(view.state for view in seen.runs.values())
    return [(state, found[state]) for state in STATES]
