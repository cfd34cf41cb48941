"""A study's verdicts as plain columns and rows, numbers as numbers: for tables of other programs."""

from lightning_tfm.metrics import METRICS
from lightning_tfm.report.facts import FACTS
from lightning_tfm.report.summary import Scores, Summary, SummaryRow

Value = str | int | float | None
HEADS = ["row", "group", "change", "n"]
OF_METRIC = ["", " difference", " lower", " upper", " p", " p Holm", " verdict"]


def columns_and_rows(summary: Summary) -> tuple[list[str], list[list[Value]]]:
    """A row for each row of the study: every metric, differences in PPL in percent, with interval, p and verdict."""
    heads = (
        HEADS
        + [fact.label for fact in FACTS]
        + [f"{METRICS[name].label}{part}" for name in summary.metrics for part in OF_METRIC]
    )
    rows: list[list[Value]] = []
    for row in summary.rows:
        change = ", ".join(f"{key}={value}" for key, value in row.change.items())
        first: list[Value] = [row.name, row.group, change, row.n, *(fact.of(row) for fact in FACTS)]
        rows.append([*first, *(value for name in summary.metrics for value in _metric(row, row.metric(name)))])
    return heads, rows


def _metric(row: SummaryRow, found: Scores) -> list[Value]:
    d = found.difference
    if d is None:
        word = f"is {row.same_as}" if row.same_as else "base" if row.base else "reference"
        return [found.mean, None, None, None, None, None, word]
    shown = d.shown
    return [found.mean, shown.estimate, shown.lower, shown.upper, d.p, d.holm, str(d.verdict)]
