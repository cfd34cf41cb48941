"""Any row as the reference of differences, not only base: `--reference ROW`.

Everything is computed as against base, with the row in its place: the same family (all rows but the reference, base
among them), the same corrections. They hold for a reference that was named before the results were seen: one that is
chosen for its score differs from the others only by that choice (benchmarks/results/verdicts.txt says how often).
"""

from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables import columns
from lightning_tfm.study.study import Ablation, check_reference

CHOSEN = "p and verdicts hold for a reference that was named before the results were seen, not for the best row of them"


def reference_of(study: Ablation, name: str | None) -> str | None:
    """The row of `study` that is named; None where it is base, or another row that is. Raises UserError for no row."""
    if name is None:
        return None
    check_reference(name, study.rows)
    found = study.twins().get(name, name)
    return None if found == study.base_row else found


def file_name(reference: str | None) -> str:
    """Of the page: report.html, with another reference report-to-ROW.html beside it."""
    return f"report-to-{reference.replace('/', '-')}.html" if reference else "report.html"


def reference_note(report: Summary) -> list[str]:
    """That differences are not to base, where they are not; empty where they are."""
    if report.reference is None:
        return []
    paper = ", the paper's too" if columns.of_the_paper(report.rows) else ""
    return [
        f"differences, p and verdicts are to the row {report.reference}, NOT to base{paper}; changes are to base",
        CHOSEN,
    ]
