"""The main table for a paper: what each row changes, scores, differences to base, verdicts or p."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lightning_tfm.metrics import METRICS, Metric
from lightning_tfm.report.analyses import factors
from lightning_tfm.report.analyses.catalog import notes_of_analyses
from lightning_tfm.report.blocks import Cell
from lightning_tfm.report.render.latex import MOST, Tex, latex, to_table, width
from lightning_tfm.report.summary import Summary, SummaryRow
from lightning_tfm.report.tables import columns, main_table
from lightning_tfm.report.tables.columns import brief_facts
from lightning_tfm.report.wording.notes import common_notes, interim_note, of_vocabularies, signature_notes
from lightning_tfm.report.wording.verdict import SCOPE
from lightning_tfm.report.wording.verdict_words import Verdict

PERCENT = r" ($\pm$\,\%)"
TESTS = ("verdict", "p", "none")
WIDE = 6
"""fields that still have their own columns; more share one column, in words"""
WORDS = 32
"""characters that such columns may take together"""


@dataclass(frozen=True)
class Layout:
    """What a table shows. `tests`: one of TESTS."""

    tests: str = "verdict"
    paper: bool = True
    """the paper's numbers beside ours, where it prints any row"""
    caption: str = ""
    """empty: made from the study"""
    label: str = ""
    """empty: tab: and the study's name"""


LAYOUT = Layout()


def paper_latex(report: Summary, layout: Layout = LAYOUT) -> str:
    """The table and its caption; of all combinations of fields, each field in a column, and a table of effects."""
    grid = report.of(factors.ANALYSIS)
    rows = [row for row in report.rows if not (grid and row.same_as)]
    paper = layout.paper and columns.of_the_paper(rows)
    tests = layout.tests if report.against and any(r.ppl.difference is not None for r in rows) else "none"
    if grid:
        first = main_table.field_columns(columns.columns_to_print(rows), columns.cell_text)
    else:
        names = columns.columns_to_print(rows)
        words = {row.name: "" if row.base else _changes(row, names).replace(r"\_", r"\_\allowbreak{}") for row in rows}
        in_one = replace(main_table.change_column(rows), cell=lambda row: Cell(Tex(words[row.name])))
        change = [in_one] if _in_words(rows) else main_table.field_columns(names)
        called = (
            main_table.name_column()
            if columns.of_the_paper(rows)
            else replace(main_table.name_column(), cell=lambda row: Cell(row.called))
        )
        first = [called, *change]
    size, *more = map(main_table.fact_column, brief_facts(rows))
    end = [size, *[main_table.paper_size_column()] * paper, *more, replace(main_table.seed_column(), latex="$n$")]
    by_metric = [_of(report, METRICS[name], tests, paper) for name in report.metrics]
    each = len(by_metric)
    while each > 1 and width(main_table.table(rows, [*first, *chain(*by_metric[:each]), *end])) > MOST:
        each -= 1
    each = math.ceil(len(by_metric) / math.ceil(len(by_metric) / each))
    parts = [[*first, *chain(*by_metric[i : i + each])] for i in range(0, len(by_metric), each)]
    caption, label = layout.caption or _caption(report, tests), layout.label or "tab:" + _name(report.study)
    text = to_table(main_table.table(rows, parts[0] + end), caption, label, _notes(report, tests, paper))
    for i, part in enumerate(parts[1:], 2):
        text += "\n" + to_table(
            main_table.table(rows, part), rf"More metrics of Table~\ref{{{label}}}.", f"{label}-{i}"
        )
    if grid and grid.effects and tests != "none":
        of_effects = _capital(latex(factors.ABOUT.partition("; where nothing")[0]))
        effects = f"Main effects and interactions of {latex(report.title or report.study)}. {of_effects}."
        text += "\n" + to_table(factors.table(grid), effects, f"{label}-effects")
    return text


def _of(report: Summary, metric: Metric, tests: str, paper: bool) -> list[main_table.Shown]:
    """The columns of a metric."""
    theirs = [main_table.paper_column(metric)] * (paper and metric.printed)
    ours = main_table.score_column(metric, report.foreign or [])
    scores = [ours if theirs else replace(ours, latex="mean" + PERCENT * metric.log), *theirs]
    if tests == "none":
        return scores
    made = main_table.difference_columns(report, metric)
    return [*scores, made["d"], made["p" if tests == "p" else "word"]]


def _name(study: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in study)


def _in_words(rows: Sequence[SummaryRow]) -> bool:
    names = columns.columns_to_print(rows)
    wide = sum(
        max(len(columns.short_label(name)), *(len(columns.own_value(row, name)) for row in rows)) for name in names
    )
    return len(names) > WIDE or wide > WORDS


def _changes(row: SummaryRow, names: Sequence[str]) -> str:
    """The row's own values, of base all."""
    if row.same_as:
        return latex(f"is {row.same_as}")
    return ", ".join(_equation(name, latex(columns.own_value(row, name))) for name in names if name not in row.blank)


def _equation(name: str, value: str) -> str:
    """A field's symbol and its value."""
    return f"{columns.symbol(name) or latex(columns.short_label(name))}~{value}"


def _caption(report: Summary, tests: str) -> str:
    """What it is, and what its numbers are: at most three lines over both columns."""
    title = latex(report.title) or f"Ablations of {latex(report.study)}"
    parts = [title + (f" ({latex(columns.scale_text(report.scale, report.rows))})" if report.scale else "")]
    parts.append(r"Mean $\pm$ standard deviation over $n$ seeds")
    if tests != "none":
        to = latex(report.to) + ", not to base" * bool(report.reference)
        parts.append(rf"$\Delta$: difference to {to}, up to the ends of its marginal {report.level}\,\% interval")
    return ". ".join(parts) + "."


def _notes(report: Summary, tests: str, paper: bool) -> str:
    """Below the table: marks, and whatever a reader who checks a number asks for."""
    parts = []
    if tests == "verdict":
        shown = [main_table.difference_columns(report, METRICS[name])["word"] for name in report.metrics]
        words = {column.cell(row).word for column in shown for row in report.rows}
        marks = ", ".join(f"{word.latex} {word.shown}" for word in Verdict if word in words)
        parts += [f"{marks} ({SCOPE}; Benjamini and Hochberg, $p < {report.alpha:g}$)"] * bool(marks)
    if tests == "p":
        parts.append("$p$: corrected over the rows of the metric by Benjamini and Hochberg (1995)")
    parts.append(r"Perplexity: geometric mean, $\pm$ of its logarithms in percent; the best of each metric in bold")
    if paper:
        parts.append("``paper'': as published by Vaswani et al.\\ (2017)")
    if report.foreign:
        others = latex(", ".join(report.foreign))
        parts.append(f"{latex(of_vocabularies(report))}, so that no perplexity is compared: {others}")
    own = notes_of_analyses(report, lambda analysis: analysis.notes_in_latex)
    parts += [latex(_capital(note)) for note in [*common_notes(report), *own]]
    base = next((row for row in report.rows if row.base), None)
    if base is not None and _in_words(report.rows):
        parts.append(f"base: {_changes(base, columns.columns_to_print(report.rows))}")
    if same := columns.constants(report.rows):
        parts.append(
            f"the same in every row: {', '.join(_equation(name, latex(value)) for name, value in same.items())}"
        )
    if tests != "none" and report.looks is not None:
        parts.append(f"{latex(interim_note(report))}, which $p$ is corrected for")
    parts += [latex(part.replace(" is ", ": ", 1)) for part in signature_notes(report)]
    return ". ".join(_capital(part) for part in parts) + "."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
