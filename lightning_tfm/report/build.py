"""A study's table and its report from its records."""

from dataclasses import dataclass, replace
from pathlib import Path

from lightning_tfm.durable import write_atomic
from lightning_tfm.report import agreement, formats
from lightning_tfm.report.extras import Extras, extras
from lightning_tfm.report.latex import Layout, to_latex
from lightning_tfm.report.links import Link, nowhere
from lightning_tfm.report.page import page
from lightning_tfm.report.records import Cells, collect, read_cells
from lightning_tfm.report.reference import reference_of
from lightning_tfm.report.softmax import softmax
from lightning_tfm.report.summarise import summarise, tabulate
from lightning_tfm.report.summary import Summary, Table
from lightning_tfm.report.tuning import read_tuning, weighed
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import RunRecord
from lightning_tfm.study.looks import read_looks
from lightning_tfm.study.study import Ablation, folder_of, load_as
from lightning_tfm.watch.run_state import Curve


def write_table(study: Ablation, root: Path) -> Table:
    """Build the study's table and write table.md, table.csv and table.json beside study.json."""
    found = collect(study, root)
    table = tabulate(study, found)
    scored = {(row.name, int(seed)) for row in table.rows for seed in row.ppl.by_seed}
    runs = {key: RunFolder(root, run.training_hash) for key, run in found.items() if isinstance(run, RunRecord)}
    agreed, fall = agreement.of_table(table, {key: Curve.of(runs[key].path).validations for key in scored})
    folder = folder_of(root, study.name)
    table = replace(table, agreement=agreed, last_eighth=fall, tuning=weighed(read_tuning(folder), table.rows))
    for name, text in (
        ("table.md", formats.table_markdown(table)),
        ("table.csv", formats.table_csv(table)),
        ("table.json", formats.table_json(table)),
    ):
        write_atomic(folder / name, text.encode())
    return table


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
        match kind:
            case "html":
                return page(self.summary, self.cells, self.extras, texts, live, link)
            case "markdown":
                return formats.to_markdown(self.summary)
            case "csv":
                return formats.to_csv(self.summary)
            case "json":
                return formats.to_json(self.summary)
            case "latex":
                return to_latex(self.summary)
        raise ValueError(kind)

    def latex(self, layout: Layout) -> str:
        """The table for a paper."""
        return to_latex(self.summary, layout)


def make(name: str, root: Path, reference: str | None = None) -> Report:
    """The report of the study `name` under `root`, its differences to the row `reference`, by default base.

    Raises UserError where there is no such study or row.
    """
    study = load_as(Ablation, root, name)
    against = reference_of(study, reference)
    cells = replace(read_cells(study, root, collect(study, root)), reference=against)
    course = read_looks(folder_of(root, name))
    found = replace(summarise(cells, course), softmax=softmax(cells))
    return Report(found, cells, extras(cells, folder_of(root, name), found))
