"""A table for a paper, in LaTeX with booktabs: what each row changes, scores, differences to base, verdicts or p."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning_tfm.metrics import METRICS
from lightning_tfm.report import columns, tuning
from lightning_tfm.report.facts import brief
from lightning_tfm.report.summary import Summary, SummaryRow, Table
from lightning_tfm.report.text import looked, signatures
from lightning_tfm.report.verdict import SCOPE, WORDS, Word

TESTS = ("verdict", "p", "none")
WIDE = 6
"""fields that still have columns of their own; more stand in one column, in words"""
LONG = 20
"""characters of a row's name beyond which names are folded"""
FOLDED = r">{\raggedright\arraybackslash}p{24mm}"

ESCAPES = {c: rf"\{c}" for c in "&%$#_{}"}
ESCAPES |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
ESCAPES |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
ESCAPES |= {"±": r"$\pm$", "×": r"$\times$", "÷": r"$\div$", "–": "--", "…": r"\dots{}"}
ESCAPES |= {"“": "``", "”": "''", "Δ": r"$\Delta$", "\N{NO-BREAK SPACE}": "~"}
UNKNOWN = "?"


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


def latex(text: Any) -> str:
    """Harmless in LaTeX: special characters escaped, what its default fonts lack as a question mark."""
    return "".join(map(_character, " ".join(str(text).split())))


def _character(c: str) -> str:
    if c in ESCAPES:
        return ESCAPES[c]
    if not c.isprintable():
        return ""
    return c if c.isascii() or _latin(c) else UNKNOWN


def _latin(c: str) -> bool:
    """Whether the default fonts can compose it."""
    return 0xC0 <= ord(c) <= 0xFF and c not in "ÐÞðþ"


def to_latex(report: Summary, layout: Layout = Layout()) -> str:
    """Of a report. Needs \\usepackage{array,booktabs}, nothing else."""
    return _table(report, report.alpha, layout)


def table_latex(table: Table, layout: Layout = Layout(tests="none")) -> str:
    """Of a table without tests. Needs \\usepackage{array,booktabs}, nothing else."""
    return _table(table, None, layout)


@dataclass(frozen=True)
class _Column:
    form: str
    head: str
    cells: list[str]


def _table(report: Summary | Table, alpha: float | None, layout: Layout) -> str:
    rows = report.rows
    paper = layout.paper and columns.of_the_paper(rows)
    metrics = report.metrics
    tests = layout.tests if any(r.ppl.difference is not None for r in rows) else "none"
    blocks = [_first(rows), *(_metric(report, m, tests, paper) for m in metrics), _last(rows, paper)]
    every = [column for block in blocks for column in block]
    heads, rules, at = [], [], 1
    for block, name in zip(blocks, ("", *(f"{METRICS[m].called} (dev)" for m in metrics), ""), strict=True):
        heads.append(rf"\multicolumn{{{len(block)}}}{{c}}{{{name}}}" if name else " & " * (len(block) - 1))
        if name:
            rules.append(rf"\cmidrule(lr){{{at}-{at + len(block) - 1}}}")
        at += len(block)
    lines = [
        "% needs \\usepackage{array,booktabs}",
        *_replaced(rows),
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{layout.caption or _caption(report, tests, paper, alpha)}}}",
        rf"\label{{{layout.label or 'tab:' + _name(report.study)}}}",
        r"\setlength{\tabcolsep}{2.7pt}",
        r"\renewcommand{\arraystretch}{1.2}",
        _size(len(every)),
        r"\begin{tabular}{@{}" + "".join(column.form for column in every) + "@{}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        " ".join(rules),
        " & ".join(column.head for column in every) + r" \\",
    ]
    group = None
    for i, row in enumerate(rows):
        if row.group != group:
            lines.append(r"\midrule")
        group = row.group
        lines.append(" & ".join(column.cells[i] for column in every) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"


def _replaced(rows: Sequence[SummaryRow]) -> list[str]:
    """A comment on the characters of names that stand as question marks."""
    found = sorted({c for row in rows for c in columns.named(row) if c != UNKNOWN and _character(c) == UNKNOWN})
    return [f"% not in pdfTeX's default fonts, so {UNKNOWN} stands for: {' '.join(found)}"] * bool(found)


def _size(count: int) -> str:
    return r"\small" if count <= 9 else r"\footnotesize" if count <= 12 else r"\scriptsize"


def _name(study: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in study)


def _first(rows: Sequence[SummaryRow]) -> list[_Column]:
    """Row and what it changes: a column for each field, blank where it equals base, or all in words."""
    names = columns.shown(rows)
    labels = [columns.named(row) for row in rows]
    found = [_Column("l" if max(map(len, labels)) <= LONG else FOLDED, "row", list(map(latex, labels)))]
    if _in_words(rows):
        said = ["" if row.base else _changes(row, names) for row in rows]
        return [*found, _Column(FOLDED, "change", said)]
    for name in names:
        cells = [latex(columns.value(row, name)) if name not in row.blank else "" for row in rows]
        found.append(_Column("c", columns.LATEX_HEADS.get(name) or latex(name), cells))
    return found


def _in_words(rows: Sequence[SummaryRow]) -> bool:
    return len(columns.shown(rows)) > WIDE


def _changes(row: SummaryRow, names: Sequence[str]) -> str:
    """The row's own values, of base all."""
    if row.same_as:
        return latex(f"is {row.same_as}")
    heads = {name: columns.LATEX_HEADS.get(name) or latex(columns.label(name)) for name in names}
    return ", ".join(f"{heads[name]}~{latex(columns.value(row, name))}" for name in names if name not in row.blank)


def _metric(report: Summary | Table, metric: str, tests: str, paper: bool) -> list[_Column]:
    rows, digits = report.rows, METRICS[metric].digits
    best = _best(rows, metric, report.foreign or [] if metric == "ppl" else [])
    scores = []
    for row in rows:
        found = row.metric(metric)
        value = latex(found.instead) if found.mean is None else f"{found.mean:.{digits}f}"
        spread = "" if found.sd is None else rf"\,$\pm$\,{found.sd:.{digits}f}"
        bold = value == best and not (metric == "ppl" and row.name in (report.foreign or []))
        scores.append((rf"\textbf{{{value}}}" if bold else value) + spread)
    made = [_Column("r", "ours", scores)]
    if paper and METRICS[metric].printed:
        printed = [row.paper.of(metric) for row in rows]
        made.append(_Column("r", "paper", ["" if v is None else f"{v:.{digits}f}" for v in printed]))
    if tests != "none":
        unit = r"$\Delta$" + r"\,\%" * METRICS[metric].log
        made.append(_Column("r", unit, [_change(row, metric) for row in rows]))
        made.append(_test(rows, metric, tests))
    return made


def _best(rows: Sequence[SummaryRow], metric: str, without: Sequence[str]) -> str:
    """As it is printed: whatever is printed alike is as good. `without`: rows that are not comparable."""
    means = [mean for row in rows if row.name not in without and (mean := row.metric(metric).mean) is not None]
    if len(means) < 2:
        return ""
    return f"{(min if METRICS[metric].lower_is_better else max)(means):.{METRICS[metric].digits}f}"


def _change(row: SummaryRow, metric: str) -> str:
    d = row.metric(metric).difference
    of = d.shown if d else None
    if of is None or of.estimate is None:
        return ""
    digits = METRICS[metric].brief
    said = f"${of.estimate:+.{digits}f}$"
    if of.lower is None or of.upper is None:
        return said
    up, down = of.upper - of.estimate, of.estimate - of.lower
    return rf"${of.estimate:+.{digits}f}^{{+{up:.{digits}f}}}_{{-{down:.{digits}f}}}$"


def _test(rows: Sequence[SummaryRow], metric: str, tests: str) -> _Column:
    found = [row.metric(metric).difference for row in rows]
    if tests == "p":
        return _Column("r", "$p$", [_p(d.p) if d else "" for d in found])
    return _Column(
        "c", "", [WORDS[d.verdict].latex if d and row.n > 1 else "" for row, d in zip(rows, found, strict=True)]
    )


def _p(p: float | None) -> str:
    return "" if p is None else "$<$.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _last(rows: Sequence[SummaryRow], paper: bool) -> list[_Column]:
    found = [_Column("r", latex(fact.head), [latex(fact.cell(row)) for row in rows]) for fact in brief()]
    if paper:
        printed = ["" if row.paper.params is None else f"{row.paper.params}M" for row in rows]
        found[1:1] = [_Column("r", "paper", printed)]
    return [*found, _Column("r", "$n$", [str(row.n) for row in rows])]


def _caption(report: Summary | Table, tests: str, paper: bool, alpha: float | None) -> str:
    parts = [f"Ablations of {latex(report.study)}" + (f" ({latex(_scale(report))})" if report.scale else "")]
    parts.append(r"mean $\pm$ standard deviation over $n$ seeds; the best of each metric in bold")
    if paper:
        parts.append("``paper'': as printed by Vaswani et al.\\ (2017)")
    if report.foreign:
        others = latex(", ".join(report.foreign))
        parts.append(f"other pieces than {latex(_to(report))}, so that no perplexity is compared: {others}")
    parts += [latex(_capital(note)) for note in tuning.notes(report.tuning)]
    base = next((row for row in report.rows if row.base), None)
    if base is not None and _in_words(report.rows):
        parts.append(f"base: {_changes(base, columns.shown(report.rows))}")
    if same := columns.unchanged(report.rows):
        parts.append(f"the same in every row: {latex(same)}")
    if tests != "none" and isinstance(report, Summary):
        to = f"{latex(_to(report))}{_not_base(report)}"
        parts.append(rf"$\Delta$: difference to {to}, up to the ends of its marginal {report.level}\,\% interval")
        parts += [f"{latex(looked(report))}, which $p$ is corrected for"] * (report.looks is not None)
    if tests == "p":
        parts.append("$p$: corrected over the rows of the metric by Benjamini and Hochberg (1995)")
    if tests == "verdict":
        words = {d.verdict for r in report.rows for m in METRICS if r.n > 1 and (d := r.metric(m).difference)}
        marks = ", ".join(f"{word.latex} {word}" for word in Word if word in words)
        parts += [f"{marks} ({SCOPE}; Benjamini and Hochberg, $p < {alpha:g}$)"] * bool(marks)
    parts += [latex(said.replace(" is ", ": ", 1)) for said in signatures(report)]
    return ". ".join(_capital(part) for part in parts) + "."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _to(report: Summary | Table) -> str:
    return report.to if isinstance(report, Summary) else "base"


def _not_base(report: Summary | Table) -> str:
    return ", not to base" * (_to(report) != "base")


def _scale(report: Summary | Table) -> str:
    return columns.scale(report.scale, report.rows)
