"""A study's verdicts as plain columns and rows, numbers as numbers: for tables of other programs."""

from lightning_tfm.report.summary import Metric, Summary, SummaryRow

Value = str | int | float | None
HEADS = ["row", "group", "change", "n", "parameters", "FLOPs", "seconds"]
OF_METRIC = ["", " difference", " lower", " upper", " p", " p Holm", " verdict"]


def columns_and_rows(summary: Summary) -> tuple[list[str], list[list[Value]]]:
    """A row for each row of the study: PPL (differences in percent) and BLEU, each with interval, p and verdict."""
    heads = HEADS + [f"{name}{part}" for name in ("PPL", "BLEU") for part in OF_METRIC]
    rows: list[list[Value]] = []
    for row in summary.rows:
        change = ", ".join(f"{key}={value}" for key, value in row.change.items())
        first: list[Value] = [row.name, row.group, change, row.n, row.parameters, row.flops, row.seconds]
        rows.append([*first, *_metric(row, row.ppl), *_metric(row, row.bleu)])
    return heads, rows


def _metric(row: SummaryRow, found: Metric) -> list[Value]:
    d = found.difference
    if d is None:
        word = f"is {row.same_as}" if row.same_as else "base" if row.base else "reference"
        return [found.mean, None, None, None, None, None, word]
    shown = d.shown
    return [found.mean, shown.estimate, shown.lower, shown.upper, d.p, d.holm, str(d.verdict)]
