"""A table without tests and a report's table with them as Markdown, CSV, JSON; latex.py has them for a paper.

Pure functions of the table and the summary.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from lightning_tfm.metrics import METRICS, OF_TEXT, PPL, PRINTED, WORD, Metric
from lightning_tfm.report import agreement_text, beyond_text, columns, nats, reference, text, tuning
from lightning_tfm.report.facts import FACTS, brief
from lightning_tfm.report.far_above import FAR, said
from lightning_tfm.report.render import markdown
from lightning_tfm.report.summary import Scores, Summary, SummaryRow, Table, plain
from lightning_tfm.report.text import claim_line, effect_line, word_counts
from lightning_tfm.report.verdict import BIAS, DIVERGED, INCOMPARABLE, factors_printed, phrase

PAPER = [*(f"paper {METRICS[name].label}" for name in PRINTED), "paper params"]


def markdown_text(heads: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """A table, its numbers to the right, and a list of notes."""
    rule = ["---" if head in ("group", "row", "change", "word") else "---:" for head in heads]
    body = "\n".join("| " + " | ".join(map(_harmless, row)) + " |" for row in [heads, rule, *rows])
    return body + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def _harmless(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([heads, *rows])
    return out.getvalue()


def _missing(row: SummaryRow) -> str:
    return "; ".join(f"seed {seed}: {why}" for seed, why in row.missing.items())


# --- without tests ---


def table_markdown(table: Table) -> str:
    """Every column that says something, blank where a row equals base."""
    names, printed = columns.shown(table.rows), columns.of_the_paper(table.rows)
    by_word = nats.known(table.rows)
    between = ["nll/word", "nll/character"] * by_word
    others = text.beside_ppl(table)
    last = [f"dev {metric.label}" for metric in others]
    heads = [
        "group",
        "row",
        *names,
        *(fact.head for fact in brief()),
        "n",
        "dev PPL",
        *between,
        *last,
        *PAPER * printed,
    ]
    rows = (
        [
            *(row.group, f"`{row.name}`" + (f" (is `{row.same_as}`)" if row.same_as else "")),
            *(columns.value(row, name) for name in names),
            *(*(fact.cell(row) for fact in brief()), str(row.n)),
            *text.scores(row, others, 2 * by_word),
            *text.paper(row, "M") * printed,
        ]
        for row in table.rows
    )
    return markdown_text(heads, rows, [*text.notes(table), *agreement_text.notes(table.agreement, table.last_eighth)])


def table_csv(table: Table) -> str:
    """One line for each row, blanks filled in, full precision."""
    tuned = [f"best {table.tuning.key}"] if table.tuning else []
    heads = ["group", "row", *table.rows[0].values, *tuned, *(fact.name for fact in brief()), "n"]
    printed, by_word = columns.of_the_paper(table.rows), nats.known(table.rows)
    added = [metric for metric in text.beside_ppl(table) if not metric.printed]
    scored = [f"dev {METRICS[name].label}" for name in PRINTED]
    scored += [*["nll per word", "nll per character"] * by_word, *(f"dev {metric.label}" for metric in added)]
    heads += [head for name in scored for head in (name, f"{name} sd")]
    rows = (
        [
            *(row.group, row.name, *row.values.values(), *[tuning.best_of(table.tuning, row.name)] * len(tuned)),
            *(*(fact.of(row) for fact in brief()), row.n),
            *(x for one in row.scores.values() for x in (one.mean, one.sd)),
            *(x for one in (row.word, row.character) for x in ((one.mean, one.sd) if one else (None, None)) if by_word),
            *(x for metric in added for one in [row.metric(metric.name)] for x in (one.mean, one.sd)),
            *_paper(row)[: len(PAPER) * printed],
            _missing(row),
        ]
        for row in table.rows
    )
    heads += [*[*PAPER[:-1], "paper params (million)"] * printed, "missing"]
    return csv_text(*_with_twins(heads, rows, table.rows))


def _with_twins(
    heads: list[str], lines: Iterable[list[Any]], rows: Sequence[SummaryRow]
) -> tuple[list[str], list[list[Any]]]:
    """With the column "is" at the end where a row is another row."""
    if not any(row.same_as for row in rows):
        return heads, list(lines)
    return [*heads, "is"], [[*line, row.same_as] for line, row in zip(lines, rows, strict=True)]


def table_json(table: Table) -> str:
    """Everything, at full precision."""
    head = {"schema": 2, "study": table.study, "scale": table.scale, "signature": table.signature, "seeds": table.seeds}
    whole = {"agreement": plain(table.agreement), "last eighth": plain(table.last_eighth)}
    whole |= {"tuning": plain(table.tuning)} if table.tuning else {}
    whole |= {"other pieces": table.foreign} if table.foreign else {}
    whole |= {"signatures": table.signatures} if table.signatures else {}
    return json.dumps(head | whole | {"rows": [_table_row(row) for row in table.rows]}, indent=1) + "\n"


def _table_row(row: SummaryRow) -> dict[str, Any]:
    return {
        "group": row.group,
        "row": row.name,
        **row.values,
        "equal to base": row.blank,
        **{fact.name: fact.of(row) for fact in brief()},
        "n": row.n,
        **{f"dev {METRICS[name].label}": _untested(one) for name, one in row.scores.items()},
        **{METRICS[name].key: _untested(one) for name, one in row.more.items()},
        **({"nll per character": _untested(row.character)} if row.character else {}),
        "missing": row.missing,
        **({"is": row.same_as} if row.same_as else {}),
        **({"elsewhere": row.elsewhere} if row.elsewhere else {}),
        "paper": {METRICS[name].label: row.paper.of(name) for name in PRINTED} | {"params (million)": row.paper.params},
    }


def _paper(row: SummaryRow) -> list[float | None]:
    return [*(row.paper.of(name) for name in PRINTED), row.paper.params]


def _untested(metric: Scores) -> dict[str, Any]:
    return {key: value for key, value in plain(metric).items() if key != "difference"}


# --- with tests ---


def to_json(report: Summary) -> str:
    """Everything the report says, as data."""
    return json.dumps(plain(report), indent=1, ensure_ascii=False) + "\n"


def to_markdown(report: Summary) -> str:
    """The table, the words counted, the claims and the agreement with the paper."""
    printed, explained = columns.of_the_paper(report.rows), _by_the_paper(report.rows)
    names = columns.shown(report.rows)
    tested = ["p (BH)", "p (Holm)", "against the paper" if printed else f"against {report.to}"]
    to = f" to {report.reference}" if report.reference else ""
    heads = ["group", "row", *["change"] * (not explained), "n", "PPL", f"Δ PPL{to} %", *tested]
    if nats.known(report.rows):
        heads += ["nll/word", *([f"Δ nll/word{to}", *tested] if "word" in report.metrics else []), "nll/character"]
    for metric in text.beside_ppl(report):
        against = tested[-1] if metric.printed else f"against {report.to}"
        heads += [metric.label, f"Δ {metric.label}{to}", *tested[:-1], against]
    heads += [*(fact.head for fact in FACTS), *PAPER * printed]
    rows = []
    for row in report.rows:
        first, last = _markdown_row(row, report), text.paper(row, "M") * printed
        rows.append([row.group, columns.named(row), *[columns.changes(row, names)] * (not explained), *first, *last])
    whole = markdown_text(heads, rows, map(_harmless, _notes(report)))
    beyond = beyond_text.section(report.beyond)
    return whole + (f"\n{beyond.title}\n\n{markdown.to_markdown(beyond.blocks)}" if beyond.blocks else "")


def _by_the_paper(rows: Sequence[SummaryRow]) -> bool:
    """Whether the paper says what each row is."""
    return all(row.base or row.paper.printed for row in rows)


def _notes(report: Summary) -> list[str]:
    notes = [
        *reference.said(report),
        *nats.notes(report),
        f"± is the standard deviation over seeds; intervals are marginal {report.level} % ones; verdicts go by p (BH), "
        "corrected over the rows of the metric by Benjamini and Hochberg, bold: by Holm too; "
        + ("; ".join(text.signatures(report)) or f"{OF_TEXT.label} is not known yet"),
        *word_counts(report),
    ]
    notes += [BIAS] * factors_printed(report.rows)
    if report.looks is not None:
        notes.append(f"{text.looked(report)}; p is corrected for that too, intervals are at {report.level} %")
    if report.scale:
        notes.append(f"a {columns.scale(report.scale, report.rows)}")
    elif columns.resized(report.rows):
        notes.append(columns.sizes(report.rows))
    if rest := columns.unchanged(report.rows):
        notes.append(f"the same in every row: {rest}")
    notes += text.twins(report.rows) + text.elsewhere(report.rows) + tuning.notes(report.tuning)
    notes += agreement_text.notes(report.agreement, report.last_eighth)
    notes += map(claim_line, report.claims)
    notes += map(effect_line, report.factors.effects if report.factors else [])
    notes += [
        f"{row.name}: {said(row)} (seed {', '.join(map(str, row.far_above))}: more than {FAR:g} median absolute "
        "deviations above the row's median; they stay in every number)"
        for row in report.rows
        if row.far_above
    ]
    return notes + [f"{row.name}, seed {seed}: {why}" for row in report.rows for seed, why in row.missing.items()]


def _markdown_row(row: SummaryRow, report: Summary) -> list[str]:
    return [
        f"n={row.n}",
        *_tested(row, PPL, report),
        *_nats(row, report),
        *(cell for metric in text.beside_ppl(report) for cell in _tested(row, metric, report)),
        *(fact.cell(row) for fact in FACTS),
    ]


def _nats(row: SummaryRow, report: Summary) -> list[str]:
    """nll per word, tested where rows have other pieces, and per character; nothing where no row has any."""
    if not nats.known(report.rows):
        return []
    word = _tested(row, WORD, report) if "word" in report.metrics else [_known(row.word)]
    return [*word, _known(row.character)]


def _known(found: Scores | None) -> str:
    return "" if found is None else text.score(found, 3)


def _tested(row: SummaryRow, metric: Metric, report: Summary) -> list[str]:
    """Score, difference, both p and the word."""
    found = row.metric(metric.name)
    value, d = text.score(found, metric.digits), found.difference
    if d is not None and d.verdict in (DIVERGED, INCOMPARABLE):
        return [value, "", "", "", phrase(d)]
    if found.mean is None or d is None or d.estimate is None:
        return [value, "reference" if row.name == report.reference else "", "", "", ""]
    word = phrase(d) if row.n > 1 else ""
    if d.holm is not None and d.holm < report.alpha:
        word = word.replace(d.verdict, f"**{d.verdict}**")
    ps = ["" if p is None else f"{p:.2g}" for p in (d.p, d.holm)]
    return [value, text.compared(d, metric.digits), *ps, word]


CSV_PARTS = ("estimate", "lower", "upper", "p", "holm", "smallest", "needed", "verdict")


def to_csv(report: Summary) -> str:
    """One line for each row, blanks filled in; differences as they are tested; `factor` is d / P."""
    to = [report.reference] * bool(report.reference)
    tuned = [f"best {report.tuning.key}"] if report.tuning else []
    heads = ["group", "row", *["differences to"] * len(to), *report.rows[0].values, *tuned]
    first, *more = FACTS
    heads += [first.name, "n", *(fact.name for fact in more)]
    by_word = nats.known(report.rows)
    metrics = [*PRINTED, *[WORD.name] * by_word, *(m.name for m in text.beside_ppl(report) if not m.printed)]
    for key in (METRICS[name].key for name in metrics):
        heads += [f"{key} mean", f"{key} sd", *(f"{key} difference {x}" for x in (*CSV_PARTS, "factor"))]
    printed = columns.of_the_paper(report.rows)
    heads += ["nll per character mean", "nll per character sd"] * by_word
    heads += [*[*(f"paper {name}" for name in PRINTED), "paper params (million)"] * printed, "far above", "missing"]
    rows = (
        [
            *(row.group, row.name, *to, *row.values.values()),
            *[tuning.best_of(report.tuning, row.name)] * len(tuned),
            *(first.of(row), row.n, *(fact.of(row) for fact in more)),
            *(cell for name in metrics for cell in _csv_metric(row.metric(name))),
            *([row.character.mean, row.character.sd] if row.character else [None, None]) * by_word,
            *_paper(row)[: len(PAPER) * printed],
            *(" ".join(map(str, row.far_above)), _missing(row)),
        ]
        for row in report.rows
    )
    return csv_text(*_with_twins(heads, rows, report.rows))


def _csv_metric(found: Scores) -> list[Any]:
    d = found.difference
    parts = [getattr(d, part) if d else None for part in CSV_PARTS]
    return [found.mean, found.sd, *parts, d.factor.estimate if d and d.factor else None]
