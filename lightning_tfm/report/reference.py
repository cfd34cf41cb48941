"""Any row as the reference of differences, not only base: `--reference ROW`; the table with tests as plain text.

Everything is computed as against base, with the row in its place: the same family (all rows but the reference, base
among them), the same corrections. They hold for a reference that was named before the results were seen: one that is
chosen for its score differs from the others by that choice alone (benchmarks/results/verdicts.txt says how often).
"""

from lightning_tfm.metrics import METRICS, Metric
from lightning_tfm.report import columns, nats, text
from lightning_tfm.report.summary import Summary, SummaryRow
from lightning_tfm.report.verdict import DIVERGED, INCOMPARABLE, phrase
from lightning_tfm.study.study import Ablation, check_reference

CHOSEN = "p and words hold for a reference that was named before the results were seen, not for the best row of them"


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


def said(report: Summary) -> list[str]:
    """That differences are not to base, where they are not; empty where they are."""
    if report.reference is None:
        return []
    paper = ", the paper's too" if columns.of_the_paper(report.rows) else ""
    return [
        f"differences, p and words are to the row {report.reference}, NOT to base{paper}; changes are to base",
        CHOSEN,
    ]


def to_text(report: Summary, width: int) -> str:
    """The table with tests: a block for each metric, lines of at most `width` columns where the words allow it."""
    lines = [f"differences to {report.reference}, not to base" if report.reference else "differences to base"]
    for metric in (METRICS[name] for name in report.metrics):
        heads = [
            "row",
            "n",
            metric.label,
            f"Δ {'%' * metric.log} to {report.to}".replace("  ", " "),
            "p (BH)",
            "Holm",
            "word",
        ]
        rows = [_line(report, row, metric) for row in report.rows]
        lines += ["", *_aligned(heads, rows, width)]
    for note in [*said(report), *nats.notes(report), *text.twins(report.rows)]:
        lines += text.folded([note], width)
    return "\n".join(lines) + "\n"


def _line(report: Summary, row: SummaryRow, metric: Metric) -> list[str]:
    found = row.metric(metric.name)
    d, first = found.difference, [columns.named(row), str(row.n), text.score(found, metric.digits)]
    if report.against is not None and row.name == report.against.name:
        return [*first, "reference", "", "", ""]
    if d is None or d.estimate is None:
        return [*first, "", "", "", phrase(d) if d is not None and d.verdict in (DIVERGED, INCOMPARABLE) else ""]
    ps = ["" if p is None else f"{p:.2g}" for p in (d.p, d.holm)]
    return [*first, text.compared(d, metric.brief), *ps, d.verdict if row.n > 1 else ""]


def _aligned(heads: list[str], rows: list[list[str]], width: int) -> list[str]:
    """Columns; the row's name and the word, at the ends, are folded where the lines are too long."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    fixed = sum(widths[1:-1]) + len(widths) - 1
    room = max(width - fixed, 20)
    widths[0] = min(widths[0], max(room - min(widths[-1], 12), 10))
    widths[-1] = min(widths[-1], max(room - widths[0], 10))
    lines = []
    for row in [heads, *rows]:
        name, word = (text.folded([cell], widths[i]) for i, cell in ((0, row[0]), (-1, row[-1])))
        for k in range(max(len(name), len(word))):
            middle = [cell if k == 0 else "" for cell in row[1:-1]]
            parts = [(name[k : k + 1] or [""])[0].ljust(widths[0])]
            parts += [cell.rjust(w) for cell, w in zip(middle, widths[1:-1], strict=True)]
            lines.append(" ".join([*parts, (word[k : k + 1] or [""])[0]]).rstrip())
    return lines
