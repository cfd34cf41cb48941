"""A study's report from its records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.report import formats, records
from lightning_tfm.report.cells import Cells, read_cells
from lightning_tfm.report.page import page
from lightning_tfm.report.sequential import read_looks
from lightning_tfm.report.summary import summarise
from lightning_tfm.study.study import Ablation, folder_of, load_as

SUFFIX = {"html": "html", "md": "md", "csv": "csv", "json": "json", "tex": "tex"}


@dataclass(frozen=True)
class Report:
    """The summary and the cells it came from."""

    summary: dict[str, Any]
    cells: Cells

    def render(self, kind: str, texts: bool = True, live: str = "") -> str:
        """As one of SUFFIX; `texts=False` leaves out all lines of the corpus."""
        match kind:
            case "html":
                return page(self.summary, self.cells, texts, live)
            case "md":
                return formats.to_markdown(self.summary)
            case "csv":
                return formats.to_csv(self.summary)
            case "json":
                return formats.to_json(self.summary)
            case "tex":
                return formats.to_latex(self.summary)
        raise ValueError(kind)


def make(name: str, root: Path) -> Report:
    """The report of the study `name` under `root`. Raises UserError where there is no such study."""
    study = load_as(Ablation, root, name)
    cells = read_cells(study, root, records.collect(study, root))
    course = read_looks(folder_of(root, name))
    return Report(summarise(cells, course), cells)
