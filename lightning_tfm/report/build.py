"""A study's table and its report from its records."""

from dataclasses import dataclass, replace
from pathlib import Path

from lightning_tfm.atomic_io import write_atomic
from lightning_tfm.report.analyses import agreement, layer_table
from lightning_tfm.report.analyses.compute_multiplier import with_worth
from lightning_tfm.report.analyses.row_tuning import weighed
from lightning_tfm.report.analyses.softmax import softmax
from lightning_tfm.report.build_summary import summarise, tabulate
from lightning_tfm.report.pages.links import Link, nowhere
from lightning_tfm.report.pages.optional_sections import Extras, extras
from lightning_tfm.report.pages.page import page
from lightning_tfm.report.records import Cells, collect, read_cells
from lightning_tfm.report.render.data import to_csv, to_json
from lightning_tfm.report.render.markdown import to_markdown
from lightning_tfm.report.render.text import to_text
from lightning_tfm.report.summary import Summary, Table
from lightning_tfm.report.tables import data, views
from lightning_tfm.report.tables.latex import Layout, to_latex
from lightning_tfm.report.to_json import rounded
from lightning_tfm.report.wording.reference import reference_of
from lightning_tfm.report.wording.training_setup import regime_of
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import RunRecord
from lightning_tfm.study.row_tuning import read_tuning
from lightning_tfm.study.sequential import read_looks
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of, load_as
from lightning_tfm.watch.run_state import Curve


def write_table(study: Ablation, root: Path) -> Table:
    """Build the study's table and write table.md, table.csv and table.json beside study.json."""
    found = collect(study, root)
    table = tabulate(study, found)
    scored = {(row.name, int(seed)) for row in table.rows for seed in row.ppl.by_seed}
    runs = {key: RunFolder(root, run.training_hash) for key, run in found.items() if isinstance(run, RunRecord)}
    texts = {row.name: study.data_of(row).prints.dev[:16] for row in study.rows}
    curves = {key: Curve.of(runs[key].path, text=texts[key[0]]).validations for key in scored}
    agreed, fall = agreement.of_rows(table.rows, curves, table.foreign, bool(table.scale))
    rows = with_worth(table.rows, study, curves, study.base_row)
    folder = folder_of(root, study.name)
    table = replace(
        table, rows=rows, agreement=agreed, last_eighth=fall, tuning=weighed(read_tuning(folder), table.rows)
    )
    for name, text in (
        ("table.md", render_table(table, "markdown")),
        ("table.csv", render_table(table, "csv")),
        ("table.json", render_table(table, "json")),
    ):
        write_atomic(folder / name, text.encode())
    return table


def render_table(table: Table | Summary, kind: str, width: int = 80) -> str:
    """As text (of at most `width` columns where the words allow it), markdown, csv or json."""
    match kind:
        case "csv":
            return to_csv(data.csv(table))
        case "json":
            return to_json(table if isinstance(table, Summary) else data.json(table))
        case "markdown":
            return to_markdown(views.document(table))
        case "text":
            return to_text(views.terminal(table), width)
    raise ValueError(kind)


@dataclass(frozen=True)
class Report:
    """The summary and the cells it came from."""

    summary: Summary
    cells: Cells
    extras: Extras

    def render(self, kind: str, texts: bool = True, live: str = "", link: Link = nowhere) -> str:
        """As html, markdown, csv, json or latex; `texts=False` leaves out all lines of the corpus.

        `link`: from the page to a run's folder.
        """
        if kind == "html":
            return page(self.summary, self.cells, self.extras, texts, live, link)
        return to_latex(self.summary) if kind == "latex" else render_table(self.summary, kind)

    def latex(self, layout: Layout) -> str:
        """The table for a paper."""
        return to_latex(self.summary, layout)


def make(name: str, root: Path, reference: str | None = None) -> Report:
    """The report of the study `name` under `root`, its differences to the row `reference`, by default base.

    Raises UserError if there is no such study or row.
    """
    study = load_as(Ablation, root, name)
    against = reference_of(study, reference)
    cells = replace(read_cells(study, root, collect(study, root)), reference=against)
    course, costs = read_looks(folder_of(root, name)), layer_table.read(folder_of(root, name) / layer_table.FILE)
    more = {"softmax": softmax(cells), "regime": rounded(regime_of(cells, root)), "layers": costs}
    found = replace(summarise(cells, course), **more)
    return Report(found, cells, extras(cells, found))
