"""The page's main table: which columns there are, which are shown at first, and every cell of a row."""

from dataclasses import dataclass, replace
from typing import Any

from lightning_tfm.metrics import METRICS
from lightning_tfm.report import columns, nats
from lightning_tfm.report.document import p_value
from lightning_tfm.report.facts import FACTS
from lightning_tfm.report.far_above import said
from lightning_tfm.report.heat_map import NOTHING
from lightning_tfm.report.power import ABOUT
from lightning_tfm.report.summary import COLUMNS, Difference, Scores, Summary, SummaryRow
from lightning_tfm.report.verdict import DIVERGED, INCOMPARABLE, UNDECIDED

FEW = 3
"""varied fields that are columns at first; more are a matter of the chooser"""


@dataclass(frozen=True)
class Column:
    """One column: `key` is a class in the page."""

    key: str
    head: tuple[str, ...]
    """in lines"""
    about: str
    """what it is, for the chooser"""
    group: str
    """of the chooser"""
    on: bool = True
    """shown at first"""
    narrow: bool = False
    """shown on a narrow screen, too"""
    words: bool = False
    """aligned to the left"""
    first: bool = False
    """the first of its group, after a rule"""


@dataclass(frozen=True)
class Cell:
    """What stands in one column of a row."""

    main: str = ""
    small: str = ""
    """below it"""
    note: str = ""
    """below that, in as many lines as it needs"""
    sort: Any = None
    """value to sort by"""
    word: str = ""
    """a verdict, with its mark"""
    sure: bool = False
    """found by Holm's p too"""
    title: str = ""


def table_columns(report: Summary) -> list[Column]:
    """In order; the first, each row's name and change, is not among them."""
    paper = columns.of_the_paper(report.rows)
    whom = "the paper" if paper else report.to
    to = (f"to {report.reference}",) if report.reference else ()
    fields = _fields(report)
    found = [
        Column(f"f{i}", (name,), name, "Fields", on=not paper and len(fields) <= FEW, first=i == 0)
        for i, name in enumerate(fields)
    ]
    found.append(Column("n", ("n",), "number of seeds", "Fields", narrow=False, first=not fields))
    by_word, compared = nats.known(report.rows), "word" in report.metrics
    for metric in report.metrics:
        name, unit = METRICS[metric].head, ", %" * METRICS[metric].log
        near, own = metric == ("word" if compared else "ppl"), paper and METRICS[metric].printed
        against = whom if METRICS[metric].printed else report.to
        found += [
            Column(metric, (f"dev {name}",), f"mean {name} ± standard deviation", name, narrow=near, first=True),
            *[Column(f"{metric}-paper", ("paper", name), f"the paper's {name}", name)] * own,
            Column(
                f"{metric}-d",
                (f"Δ {name}{unit}", *to),
                f"difference in {name} to {report.to}, {report.level} %",
                name,
                narrow=near,
            ),
            *[Column(f"{metric}-pd", ("paper", f"Δ{unit}"), f"the paper's difference in {name}", name, on=not compared)]
            * own,
            Column(f"{metric}-p", ("p", "(BH)"), f"p of {name} by Benjamini and Hochberg", name, on=False),
            Column(f"{metric}-holm", ("p", "(Holm)"), f"p of {name} by Holm", name, on=False),
            Column(f"{metric}-word", (f"{name} against", against), f"verdict in {name}", name, narrow=near, words=True),
        ]
    if by_word:
        if not compared:
            found.append(Column("word", ("nll/word",), "nll per reference word", "Per word", on=False, first=True))
        found.append(Column("char", ("nll/char",), "nll per character", "Per word", on=False, first=compared))
    facts = [
        Column(fact.name, (fact.head,), fact.about, "Size and cost", on=fact.brief, first=i == 0)
        for i, fact in enumerate(FACTS)
    ]
    about = "the paper's parameters"
    facts[1:1] = [Column("paper-size", ("paper", "params"), about, "Size and cost", on=not compared)] * paper
    return found + facts


def chooser(report: Summary) -> list[tuple[str, list[Column]]]:
    """By group, in order."""
    every = table_columns(report)
    groups = dict.fromkeys(column.group for column in every)
    return [(group, [column for column in every if column.group == group]) for group in groups]


def cells(report: Summary, r: SummaryRow) -> dict[str, Cell]:
    """key of a column -> its cell in the row."""
    found = {f"f{i}": Cell(columns.value(r, name), sort=r.values[name]) for i, name in enumerate(_fields(report))}
    found["n"] = Cell(str(r.n), sort=r.n)
    for metric in (*r.scores, *r.more):
        found |= _metric(report, r, metric)
    if r.character is not None:
        found["char"] = _score(r.character, 3)
    found |= {fact.name: Cell(fact.cell(r) or NOTHING, sort=fact.of(r)) for fact in FACTS}
    found["paper-size"] = Cell("" if r.paper.params is None else f"{r.paper.params}M", sort=r.paper.params)
    return found


def change(r: SummaryRow) -> str:
    """What the row changes, at the sizes that were trained; of base all sizes; "is A" where it is the row A."""
    if r.same_as:
        return f"is {r.same_as}: the same runs, no comparison"
    changes = ", ".join(f"{name} {columns.said(v)}" for name, v in r.values.items() if name not in r.blank)
    return f"all sizes: {changes}" if r.base else changes


def _fields(report: Summary) -> list[str]:
    """Columns beside the changes, to sort by: what the rows vary, but for the paper's own columns beside its rows."""
    paper = COLUMNS if columns.of_the_paper(report.rows) else {}
    return [name for name in columns.shown(report.rows) if name not in paper]


def _metric(report: Summary, r: SummaryRow, metric: str) -> dict[str, Cell]:
    found, digits = r.metric(metric), METRICS[metric].digits
    printed = r.paper.of(metric)
    cells = {f"{metric}-paper": Cell("" if printed is None else f"{printed:.{digits}f}", sort=printed)}
    if found.mean is None:
        cells[metric] = Cell(found.instead, title=_missing(r))
    else:
        cells[metric] = replace(_score(found, digits), note=said(r) if metric == "ppl" else "")
    if r.name == report.reference:
        cells[f"{metric}-d"] = Cell("reference")
    if found.difference is not None:
        cells |= _difference(report, r, metric, found.difference)
    return cells


def _score(found: Scores, digits: int) -> Cell:
    if found.mean is None:
        return Cell(NOTHING)
    spread = "" if found.sd is None else f"± {found.sd:.{digits}f}"
    return Cell(f"{found.mean:.{digits}f}", spread, sort=found.mean)


def _difference(report: Summary, r: SummaryRow, metric: str, d: Difference) -> dict[str, Cell]:
    digits = METRICS[metric].fine
    if d.verdict == INCOMPARABLE:
        return {f"{metric}-word": Cell(sort=d.verdict, word=d.verdict, title=d.why)}
    paper = d.paper if d.paper_percent is None else d.paper_percent
    cells = {}
    if paper is not None:
        clear = "" if d.paper_is_clear is None or d.paper_is_clear else "within the noise of single runs"
        cells[f"{metric}-pd"] = Cell(f"{paper:+.{digits}f}", sort=paper, title=clear)
    of = d.shown
    if d.verdict == DIVERGED:
        cells[f"{metric}-word"] = Cell(small=d.beside, sort=d.verdict, word=d.verdict, title=d.why)
    if of.estimate is None:
        return cells
    interval = "" if of.lower is None or of.upper is None else f"[{of.lower:+.{digits}f}, {of.upper:+.{digits}f}]"
    cells[f"{metric}-d"] = Cell(f"{of.estimate:+.{digits}f}", interval, sort=of.estimate)
    for key, p in (("p", d.p), ("holm", d.holm)):
        cells[f"{metric}-{key}"] = Cell(p_value(p), sort=p)
    if r.n > 1:
        sure = d.holm is not None and d.holm < report.alpha
        cells[f"{metric}-word"] = Cell(small=d.beside, sort=d.verdict, word=d.verdict, sure=sure, title=_why(d, metric))
    return cells


def _why(d: Difference, metric: str) -> str:
    smallest = d.shown.smallest
    if d.verdict != UNDECIDED or d.p is None or smallest is None:
        return d.why
    size = METRICS[metric].size(smallest)
    return f"{d.why}; a true difference of {size} would have been found with a probability of about {ABOUT:.0%}"


def _missing(r: SummaryRow) -> str:
    return "; ".join(f"seed {seed}: {why}" for seed, why in r.missing.items())[:500]
