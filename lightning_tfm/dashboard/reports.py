"""The report pages of studies, made again only when a record has changed, and without writing anything."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of, load, load_as

if TYPE_CHECKING:
    from lightning_tfm.report.study_report import Report

OWN = ("study.json", "looks.json", "trials.json", "importance.json")
KEPT = 8
"""pages kept in memory"""


def version(name: str, root: Path) -> str:
    """Changes whenever a run of the study may have: counts and newest times of the records."""
    folder = folder_of(root, name)
    times = [path.stat().st_mtime_ns for path in map(folder.joinpath, OWN) if path.is_file()]
    for pattern in ("*/result.json", "*/outcome.json", "*/attempts", "*/report/*.json"):  # an attempt may only score
        times += [path.stat().st_mtime_ns for path in (root / "runs").glob(pattern)]
    return f"{len(times)}-{max(times, default=0)}"


def _own_page(run: Path) -> str:
    """Of a run, in the dashboard."""
    return f"/run/{run.name}"


class Reports:
    """Pages of the newest version, made once for each version however many ask. Imports statistics when first asked."""

    def __init__(self, root: Path, texts: bool = True) -> None:
        self._root, self._texts = root, texts
        self._lock = threading.RLock()  # a comparison keeps the tables of its studies
        self._made: dict[tuple[str, ...], tuple[str, Any]] = {}

    def version(self, name: str) -> str:
        return version(name, self._root)

    def page(self, name: str, reference: str | None = None) -> str:
        """The report of a study, which asks at its own address + /version for newer ones. Raises UserError.

        `reference` is the row that differences are to, None for base.
        """
        key = ("report", name, reference or "")
        return cast(str, self._kept(key, self.version(name), lambda now: self._report(name, reference, now)))

    def forest(self, name: str) -> str:
        """The main figure of a table with its sentence, where something is compared, and the pictures of the analyses
        that ask for it (Analysis.on_dashboard). Raises UserError."""
        from lightning_tfm.report.analyses.catalog import findings
        from lightning_tfm.report.blocks import Block, Figures, Main
        from lightning_tfm.report.charts.forest_picture import both
        from lightning_tfm.report.charts.study_forest import forest_of
        from lightning_tfm.report.charts.svg import tag
        from lightning_tfm.report.pages.document import environment

        report = self._table(name).summary
        found = forest_of(report)
        shown: list[Block] = []
        for section in (s for one, what in findings(report) if one.on_dashboard for s in one.sections(what, report)):
            pictures = [block for block in section.blocks if isinstance(block, Main | Figures)]
            shown += [replace(block, title=block.title or section.title) for block in pictures[:1]] + pictures[1:]
        further = str(environment().get_template("macros.html").module.show(shown))  # type: ignore[attr-defined]
        words = tag("p", tag("strong", escape(found.title)) + " " + tag("span", escape(found.scope), class_="soft"))
        return (words + str(both(found))) * bool(found.lines) + further

    def row(self, name: str, row: str) -> dict[str, Any] | None:
        """What is known of one row of a table, for row.html; None where it has no such row. Raises UserError."""
        from lightning_tfm.report.analyses.quality import strip
        from lightning_tfm.report.charts.curves import curves
        from lightning_tfm.report.charts.forest_picture import tip
        from lightning_tfm.report.charts.study_forest import forest_of
        from lightning_tfm.report.tables.columns import change_text

        made = self._table(name)
        report, forest = made.summary, forest_of(made.summary)
        own = next((one for one in report.rows if one.name == row), None)
        if own is None:
            return None
        line = next((line for line in forest.lines if line.row == row), None)
        entries = zip(forest.axes, line.entries, strict=True) if line else ()
        each = [tip(replace(line, entries=[e]), replace(forest, axes=[axis])) for axis, e in entries if line and e]
        pair = replace(report, rows=[one for one in report.rows if one is own or one is report.against])
        course = curves(pair, made.cells, forest) if own.same_as is None and not own.diverged else None
        return {
            "row": own,
            "words": ["; ".join(lines) for _, *lines in each],
            "verdict": line.entries[0].sure if line and line.entries[0] else "",
            "colour": forest.classes.get(row, ""),
            "change": change_text(own),
            "strip": strip(pair, forest.classes),
            "curve": course and (course.difference or course.itself),
            "to": report.to if course and course.difference else "",
            "runs": [(cell.seed, _own_page(cell.folder)) for cell in made.cells.of(row)],
        }

    def comparison(self, names: Sequence[str]) -> str:
        """Studies of tables side by side, with tests. Raises UserError."""
        now = " ".join(map(self.version, names))
        return cast(str, self._kept(("compare", *names), now, lambda _: self._comparison(names)))

    def _table(self, name: str) -> "Report":
        from lightning_tfm.report.study_report import make

        load_as(Ablation, self._root, name)
        return cast("Report", self._kept(("table", name), self.version(name), lambda _: make(name, self._root)))

    def _kept(self, names: tuple[str, ...], now: str, make: Callable[[str], Any]) -> Any:
        with self._lock:  # one at a time: a report takes memory, too
            known = self._made.pop(names, None)
            if known is None or known[0] != now:
                known = (now, make(now))
            self._made[names] = known
            for old in list(self._made)[:-KEPT]:
                del self._made[old]
            return known[1]

    def _report(self, name: str, reference: str | None, now: str) -> str:
        study = load(self._root, name)
        if isinstance(study, Search):
            return self._search(study, now)
        from lightning_tfm.report.study_report import make

        return make(name, self._root, reference).render("html", self._texts, now, _own_page)

    def _search(self, study: Search, now: str) -> str:
        """From its present storage; from trials.json if there is none."""
        from lightning_tfm.queue.search_results import trials_or_kept
        from lightning_tfm.queue.storage import JOURNAL
        from lightning_tfm.report.search_report import of_trials

        journal = str(folder_of(self._root, study.name) / JOURNAL)
        made = of_trials(study, *trials_or_kept(study, self._root, lambda text: None, journal), root=self._root)
        return made.render("html", live=now, link=_own_page)

    def _comparison(self, names: Sequence[str]) -> str:
        from lightning_tfm.report.across.comparison import compare
        from lightning_tfm.report.render.every_format import render

        return render(compare([self._table(name) for name in names]), "html")
