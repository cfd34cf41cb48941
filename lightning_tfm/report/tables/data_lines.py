"""The main table for programs, at full precision: lines of CSV, of a DataFrame and of W&B's table."""

from typing import Any

from lightning_tfm.metrics import CHARACTER, Metric
from lightning_tfm.report.analyses import row_tuning
from lightning_tfm.report.row import Scores, SummaryRow, nll_metrics, printed_metrics
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables import columns
from lightning_tfm.report.tables.extra_columns import FACTS, Fact

PARTS = ("estimate", "lower", "upper", "p", "holm", "smallest", "needed", "verdict")
"""of a difference, as it is tested"""
Line = dict[str, Any]


def table_lines(report: Summary) -> list[Line]:
    """A line for each row, the hidden ones last: head -> value, None where there is none; `factor` is d / P."""
    of_nll = nll_metrics(report.rows)
    metrics = [
        *printed_metrics(report.rows),
        *of_nll[:1],
        *(m for m in report.metrics_beside if not m.printed),
        *of_nll[1:],
    ]
    tuning, (size, *more) = report.of(row_tuning.ANALYSIS), FACTS
    every = [(row, "") for row in report.rows] + [(row, "hidden") for row in report.hidden or []]
    paper = columns.of_the_paper(report.rows)

    def line(row: SummaryRow, hidden: str) -> Line:
        entry: Line = {"group": row.group, "row": row.name}
        entry |= {"differences to": report.reference} if report.reference else {}
        entry |= row.values | ({f"best {tuning.key}": row_tuning.best_of(tuning, row.name)} if tuning else {})
        entry |= _fact(size, row) | {"n": row.n} | {head: x for fact in more for head, x in _fact(fact, row).items()}
        for metric in metrics:
            entry |= _scores(metric, row, report.tested and metric not in of_nll[1:])
        if paper:
            entry |= {f"paper {m.name}": row.paper.of(m.name) for m in printed_metrics(report.rows)}
            entry |= {"paper params (million)": row.paper.params}
        entry |= {"far above": " ".join(map(str, row.far_above))} if report.tested else {}
        entry |= {"missing": "; ".join(f"seed {seed}: {why}" for seed, why in row.missing.items())}
        entry |= {"is": row.same_as} if any(one.same_as for one in report.rows) else {}
        entry |= {"hidden": hidden} if report.hidden else {}
        return {head: None if value == "" else value for head, value in entry.items()}

    return [line(*one) for one in every]


def _scores(metric: Metric, row: SummaryRow, tested: bool) -> Line:
    """With the difference, of perplexity in percent, too."""
    scores = (row.character if metric is CHARACTER else row.metric(metric.name)) or Scores(None, None, {})
    entry = {f"{metric.key} mean": scores.mean, f"{metric.key} {metric.sd_key}": scores.sd}
    if tested:
        d, head = scores.difference, f"{metric.key} difference"
        entry |= {f"{head} {part}": getattr(d, part) if d else None for part in PARTS}
        entry |= {f"{head} factor": d.factor.estimate if d and d.factor else None}
        ends = ("estimate", "lower", "upper") if metric.log else ()
        entry |= {f"{head} percent {end}": getattr(d.percent, end) if d and d.percent else None for end in ends}
    return entry


def _fact(fact: Fact, row: SummaryRow) -> Line:
    return dict(zip(fact.heads(fact.key), fact.numbers(row), strict=True))
