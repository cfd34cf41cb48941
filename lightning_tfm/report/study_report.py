"""A study's table and its report from its records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_tfm.atomic_io import to_csv, write_atomic
from lightning_tfm.report.analyses.catalog import ANALYSES
from lightning_tfm.report.build_summary import summarise, summarise_untested
from lightning_tfm.report.pages.page import page
from lightning_tfm.report.pages.provenance import Link, nowhere
from lightning_tfm.report.records import Cells, read_cells, with_sentences
from lightning_tfm.report.render.markdown import to_markdown
from lightning_tfm.report.render.text import to_text
from lightning_tfm.report.sequential import next_course, undecided_rows
from lightning_tfm.report.serialize import to_json
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables import main_table
from lightning_tfm.report.tables.paper_table import LAYOUT, Layout, paper_latex
from lightning_tfm.study.sequential import Course
from lightning_tfm.study.study import Ablation, check_reference
from lightning_tfm.study.study_file import folder_of, load_as


def write_table(cells: Cells) -> Summary:
    """The study's table, without tests, written as table.md, table.csv and table.json beside study.json."""
    table, folder = summarise_untested(cells), folder_of(cells.root, cells.study.name)
    for kind, end in {"markdown": "md", "csv": "csv", "json": "json"}.items():
        write_atomic(folder / f"table.{end}", render_table(table, kind).encode())
    return table


def render_table(table: Summary, kind: str, width: int = 80) -> str:
    """As text (of at most `width` columns where the words allow it), markdown, csv or json."""
    match kind:
        case "csv":
            return to_csv(main_table.table_lines(table))
        case "json":
            read = {analysis.key for analysis in ANALYSES if analysis.json}
            return to_json(replace(table, analyses={k: result for k, result in table.analyses.items() if k in read}))
        case "markdown":
            return to_markdown(main_table.document(table))
        case "text":
            return to_text(main_table.terminal(table), width)
    raise ValueError(kind)


@dataclass(frozen=True)
class Report:
    """The summary and the cells it came from."""

    summary: Summary
    cells: Cells

    def render(
        self, kind: str, texts: bool = True, live: str = "", link: Link = nowhere, layout: Layout = LAYOUT
    ) -> str:
        """As html, markdown, csv, json or latex; `texts=False` leaves out all lines of the corpus.

        `link`: from the page to a run's folder; `layout`: of LaTeX.
        """
        if kind == "html":
            return page(self.summary, self.cells, texts, live, link)
        return paper_latex(self.summary, layout) if kind == "latex" else render_table(self.summary, kind)


def make(name: str, root: Path, reference: str | None = None) -> Report:
    """The report of the study `name` under `root`, its differences to the row `reference`, by default base.

    Raises UserError if there is no such study or row.
    """
    study = load_as(Ablation, root, name)
    against = reference_row(study, reference)
    return report_of(with_sentences(read_cells(study, root)), against)


def report_of(cells: Cells, reference: str | None = None) -> Report:
    """The report of cells with sentences, its differences to the row `reference`, by default base.

    Everything is computed as against base, with the row in its place: the same family (all rows but the reference,
    base among them), the same corrections. They hold for a reference that was named before the results were seen: one
    that is chosen for its score differs from the others only by that choice (benchmarks/results/verdicts.txt).
    """
    cells = replace(cells, reference=reference)
    return Report(summarise(cells), cells)


def reference_row(study: Ablation, name: str | None) -> str | None:
    """The row of `study` that is named; None where it is base, or another row that is. Raises UserError for no row."""
    if name is None:
        return None
    check_reference(name, study.rows)
    row = study.twins().get(name, name)
    return None if row == study.base_row else row


def page_name(reference: str | None) -> str:
    """Of the page: report.html, with another reference report-to-ROW.html beside it."""
    return f"report-to-{reference.replace('/', '-')}.html" if reference else "report.html"


def look(course: Course, study: Ablation, root: Path, seeds: Sequence[int]) -> tuple[Course, str]:
    """Look at the requested runs: the course with the next request, and what is still open, in words."""
    assert course.asked is not None, "there is something to look at"
    wanted = course.asked
    cells = with_sentences(read_cells(study, root, course.after_look(wanted)))
    finished = {row: [seed for seed in taken if (row, seed) in cells.filled] for row, taken in wanted.items()}
    course = course.after_look(finished)
    summary = summarise(replace(cells, course=course))
    course = next_course(course, summary, wanted, seeds)
    still, hopeless = undecided_rows(summary)
    more = f"; next: {max(map(len, course.asked.values()))} seeds of each" if course.asked else ""
    words = f"undecided: {', '.join(still)}{more}" if still else "no row is undecided"
    words += f"; dropped for futility: {', '.join(hopeless)}" if hopeless else ""
    return course, f"interim analysis {len(course.looks)} of at most {len(course.plan.sizes)}; {words}"
