"""The main table for programs, at full precision: as CSV, as JSON, and as columns and rows of W&B's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_tfm.metrics import CHARACTER, METRICS, Metric
from lightning_tfm.report.analyses import row_tuning
from lightning_tfm.report.blocks import Data
from lightning_tfm.report.row import Scores, SummaryRow, printed
from lightning_tfm.report.summary import Summary, Table
from lightning_tfm.report.tables import columns
from lightning_tfm.report.tables.extra_columns import FACTS, Fact, brief
from lightning_tfm.report.to_json import of_metric, plain
from lightning_tfm.report.wording import nll_per_word, notes
from lightning_tfm.report.wording.word import WORDS

PARTS = ("estimate", "lower", "upper", "p", "holm", "smallest", "needed", "verdict")
"""of a difference, in CSV"""
SENT = ("difference", "lower", "upper", "p", "p Holm")
"""of a difference, in W&B's table, where PPL is in percent"""
Line = dict[str, Any]


def csv(report: Table | Summary) -> Data:
    return _tested_csv(report) if isinstance(report, Summary) else _csv(report)


def _csv(table: Table) -> Data:
    """Without tests: a line for each row, blanks filled in."""
    metrics = [(f"dev {metric.label}", metric) for metric in printed(table.rows)]
    metrics += [(metric.label, metric) for metric in nll_per_word.known(table.rows)]
    metrics += [(f"dev {metric.label}", metric) for metric in notes.beside_ppl(table) if not metric.printed]

    def line(row: SummaryRow) -> Line:
        found = {"group": row.group, "row": row.name} | row.values | _tuned(table, row)
        found |= _facts([fact for fact in FACTS if fact.brief], row) | {"n": row.n}
        for head, metric in metrics:
            one = _of(row, metric)
            found |= {head: one.mean, f"{head} {metric.sd_key}": one.sd}
        return found | _paper(table.rows, row, "label") | {"missing": _missing(row)} | _twin(table.rows, row)

    return _with_hidden(table, line)


def _tested_csv(report: Summary) -> Data:
    """A line for each row, blanks filled in; differences as tested; `factor` is d / P."""
    known = nll_per_word.known(report.rows)
    metrics = [*printed(report.rows), *known[:1]]
    metrics += [metric for metric in notes.beside_ppl(report) if not metric.printed]
    to = {"differences to": report.reference} if report.reference else {}
    first, *more = FACTS

    def line(row: SummaryRow) -> Line:
        found = {"group": row.group, "row": row.name} | to | row.values | _tuned(report, row)
        found |= _facts([first], row) | {"n": row.n} | _facts(more, row)
        for metric in [*metrics, *known[1:]]:
            one = _of(row, metric)
            found |= {f"{metric.key} mean": one.mean, f"{metric.key} {metric.sd_key}": one.sd}
            if metric not in known[1:]:
                d, head = one.difference, f"{metric.key} difference"
                found |= {f"{head} {part}": getattr(d, part) if d else None for part in PARTS}
                found |= {f"{head} factor": d.factor.estimate if d and d.factor else None}
        found |= _paper(report.rows, row, "name") | {"far above": " ".join(map(str, row.far_above))}
        return found | {"missing": _missing(row)} | _twin(report.rows, row)

    return _with_hidden(report, line)


def _with_hidden(report: Table | Summary, line: Callable[[SummaryRow], Line]) -> list[Line]:
    """The lines of the rows, and of the hidden ones, which a column tells apart."""
    if not report.hidden:
        return [line(row) for row in report.rows]
    rows = [(row, "") for row in report.rows] + [(row, "hidden") for row in report.hidden]
    return [line(row) | {"hidden": word} for row, word in rows]


def _of(row: SummaryRow, metric: Metric) -> Scores:
    return (row.character if metric is CHARACTER else row.metric(metric.name)) or Scores(None, None, {})


def _tuned(report: Table | Summary, row: SummaryRow) -> Line:
    return {f"best {report.tuning.key}": row_tuning.best_of(report.tuning, row.name)} if report.tuning else {}


def _facts(some: Sequence[Fact], row: SummaryRow) -> Line:
    return {head: x for fact in some for head, x in zip(fact.heads(fact.key), fact.numbers(row), strict=True)}


def _paper(rows: Sequence[SummaryRow], row: SummaryRow, called: str) -> Line:
    if not columns.of_the_paper(rows):
        return {}
    scores = {f"paper {getattr(metric, called)}": row.paper.of(metric.name) for metric in printed(rows)}
    return scores | {"paper params (million)": row.paper.params}


def _missing(row: SummaryRow) -> str:
    return "; ".join(f"seed {seed}: {why}" for seed, why in row.missing.items())


def _twin(rows: Sequence[SummaryRow], row: SummaryRow) -> Line:
    return {"is": row.same_as} if any(one.same_as for one in rows) else {}


def json(table: Table) -> Mapping[str, Any]:
    """Without tests: everything."""
    head = {"schema": 3, "study": table.study, "scale": table.scale, "signature": table.signature, "seeds": table.seeds}
    whole = {"agreement": plain(table.agreement), "last eighth": plain(table.last_eighth)}
    whole |= {"tuning": plain(table.tuning)} if table.tuning else {}
    whole |= {"other pieces": table.foreign} if table.foreign else {}
    whole |= {"signatures": table.signatures} if table.signatures else {}
    rows = {"rows": [_row(row) for row in table.rows]}
    return head | whole | rows | ({"hidden": [_row(row) for row in table.hidden]} if table.hidden else {})


def _row(row: SummaryRow) -> Line:
    def scores(found: Scores, metric: Metric) -> Line:
        return {key: value for key, value in of_metric(metric, found).items() if key != "difference"}

    return {
        "group": row.group,
        "row": row.name,
        **row.values,
        "equal to base": row.blank,
        **{fact.key: plain(getattr(row, fact.name)) for fact in brief([row])},
        "n": row.n,
        **{f"dev {METRICS[name].label}": scores(one, METRICS[name]) for name, one in row.scores.items()},
        **{METRICS[name].key: scores(one, METRICS[name]) for name, one in row.more.items()},
        **({CHARACTER.key: scores(row.character, CHARACTER)} if row.character else {}),
        "missing": row.missing,
        **({"is": row.same_as} if row.same_as else {}),
        **({"elsewhere": row.elsewhere} if row.elsewhere else {}),
        "paper": {m.label: row.paper.of(m.name) for m in printed([row])} | {"params (million)": row.paper.params},
    }


def columns_and_rows(report: Summary) -> tuple[list[str], list[list[str | int | float | None]]]:
    """For tables of other programs: a row for each row of the study, with interval, p and verdict in every metric."""

    def line(row: SummaryRow) -> Line:
        change = ", ".join(f"{key}={value}" for key, value in row.change.items())
        found = {"row": row.name, "group": row.group, "change": change, "n": row.n}
        for fact in FACTS:
            found |= dict(zip(fact.heads(fact.label), fact.numbers(row), strict=True))
        for metric in (METRICS[name] for name in report.metrics):
            d = row.metric(metric.name).difference
            numbers = [d.shown.estimate, d.shown.lower, d.shown.upper, d.p, d.holm] if d else [None] * len(SENT)
            word = f"is {row.same_as}" if row.same_as else "base" if row.base else "reference"
            found |= {metric.label: row.metric(metric.name).mean}
            found |= {f"{metric.label} {part}": x for part, x in zip(SENT, numbers, strict=True)}
            found |= {f"{metric.label} verdict": WORDS[d.verdict].shown if d else word}
        return found

    lines = _with_hidden(report, line)
    return list(lines[0]), [list(one.values()) for one in lines]
