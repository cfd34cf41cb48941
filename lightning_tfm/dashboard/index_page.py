"""The page of all studies, searches and runs."""

from collections import Counter

from lightning_tfm.dashboard.board import Seen
from lightning_tfm.dashboard.markup import blocks, render, spark
from lightning_tfm.dashboard.page import Frame, News
from lightning_tfm.watch.run_state import STATES, RunState
from lightning_tfm.watch.study_state import StudyState

ORDER = {state: number for number, state in enumerate(STATES)}


class Index:
    """Keeps every row as it was rendered, until the run or study is different."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, str]] = {}

    def page(self, frame: Frame, seen: Seen) -> str:
        """The whole page, what runs on top, then the newest."""
        runs = sorted(seen.runs.values(), key=lambda view: (view.state != "running", -(view.changed or 0.0), view.name))
        studies = sorted(
            seen.studies.values(), key=lambda view: (view.state != "running", -(view.changed or 0.0), view.name)
        )
        return render(
            "index.html",
            **frame.plain("Runs and studies", "/news", str(seen.version)),
            counts=_counts(seen),
            notes=seen.notes,
            names=sorted(seen.studies),
            studies=[self._study(seen, view) for view in studies],
            runs=[self._run(seen, view) for view in runs],
        )

    def news(self, seen: Seen, since: int) -> News:
        """What is different since that version."""
        fresh = [key for key, version in seen.since.items() if version > since]
        runs = [self._run(seen, seen.runs[key[4:]]) for key in fresh if key.startswith("run/")]
        studies = [self._study(seen, seen.studies[key[6:]]) for key in fresh if key.startswith("study/")]
        tables = {"table-runs": {"rows": runs, "count": len(seen.runs)}}
        if seen.studies:
            tables["table-studies"] = {"rows": studies, "count": len(seen.studies)}
        parts = blocks("index.html", ["summary"], counts=_counts(seen), notes=seen.notes)
        busy = any(view.state == "running" for view in seen.runs.values())
        return News(str(seen.version), parts, rows=tables, pause=2000 if busy else 5000)

    def _run(self, seen: Seen, view: RunState) -> str:
        key, version = f"run/{view.name}", seen.since[f"run/{view.name}"]
        known = self._rows.get(key)
        if known is None or known[0] != version:
            homes = seen.homes.get(view.name, ())
            said = seen.called(view.name)
            made = blocks(
                "index.html",
                ["run_row"],
                view=view,
                homes=homes,
                said=said,
                order=ORDER,
                curve=spark(view.curve, view.steps),
            )
            known = self._rows[key] = (version, made["run_row"])
        return known[1]

    def _study(self, seen: Seen, view: StudyState) -> str:
        key, version = f"study/{view.name}", seen.since[f"study/{view.name}"]
        known = self._rows.get(key)
        if known is None or known[0] != version:
            known = self._rows[key] = (version, blocks("index.html", ["study_row"], view=view)["study_row"])
        return known[1]


def _counts(seen: Seen) -> list[tuple[str, int]]:
    found = Counter(view.state for view in seen.runs.values())
    return [(state, found[state]) for state in STATES]
