"""The main table: every column once, with what it is for people and for programs, and which of them each view shows.
render/ has the formats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lightning_tfm.metrics import CHARACTER, METRICS, PPL, WORD, Metric
from lightning_tfm.plural_words import interval, p_value, signed
from lightning_tfm.report.analyses import row_tuning
from lightning_tfm.report.analyses.catalog import findings, notes_of_analyses
from lightning_tfm.report.analyses.compute_multiplier import ANALYSIS as WORTH
from lightning_tfm.report.blocks import Block, Cell, Column, Notes, Table, Text, Widest
from lightning_tfm.report.stats.evidence import ABOUT
from lightning_tfm.report.summary import Difference, Scores, Summary, SummaryRow, nll_metrics, printed_metrics
from lightning_tfm.report.tables import columns
from lightning_tfm.report.tables.columns import COLUMNS, FACTS, Fact, brief_facts, extra_facts
from lightning_tfm.report.wording import notes
from lightning_tfm.report.wording.verdict_words import WORDS, Verdict, brief_phrase, phrase

FEW = 3
"""varied fields that are columns of a page at first; more are a matter of the chooser"""

WIDTH = 2
"""metrics whose differences a page has room for, on a screen of 1,280 pixels and on paper; of others the means"""

TESTS = ("d", "p", "holm", "word")
"""of `difference_columns`, those that every document has"""
Line = dict[str, Any]
"""head -> value at full precision, None where there is none"""


@dataclass(frozen=True)
class Shown(Column):
    """A column with its cells."""

    cell: Callable[[SummaryRow], Cell] = lambda row: Cell()
    data: Callable[[SummaryRow], Line] = lambda row: {}
    """what a program reads"""


def table(rows: Sequence[SummaryRow], shown: Sequence[Shown]) -> Table:
    """A rule between groups of rows."""
    ends = [i for i in range(1, len(rows)) if rows[i].group != rows[i - 1].group]
    cells = [[column.cell(row) for column in shown] for row in rows]
    return Table("", shown, cells, frozenset([*ends, len(rows)]), dense=True)


# --- columns ---


def name_column(between: str = " ") -> Shown:
    return Shown(
        "row", True, cell=lambda row: Cell(columns.row_title(row, between)), data=lambda row: {"row": row.name}
    )


def label_columns(rows: Sequence[SummaryRow]) -> list[Shown]:
    """What people call the rows; nothing where none has a label."""
    return [Shown("label", True, cell=lambda row: Cell(row.label))] * any(row.label for row in rows)


def group_column() -> Shown:
    return Shown("group", True, cell=lambda row: Cell(row.group), data=lambda row: {"group": row.group})


def change_column(rows: Sequence[SummaryRow], labelled: bool = False) -> Shown:
    """What rows change, `labelled` in the words of their labels where they have one."""
    fields = columns.columns_to_print(rows)
    return Shown("change", True, cell=lambda row: Cell((labelled and row.label) or columns.changes(row, fields)))


def field_columns(
    of: Sequence[str], value: Callable[[SummaryRow, str], str] = columns.own_value, on: bool = True
) -> list[Shown]:
    """What rows change, blank where a row equals base."""

    def column(i: int, name: str) -> Shown:
        return Shown(
            name,
            lines=columns.terminal_head(name),
            latex=columns.symbol(name),
            kind="field",
            group="Fields",
            key=f"f{i}",
            about=name,
            on=on,
            cell=lambda row: Cell(value(row, name), value=row.values[name]),
            data=lambda row: {name: row.values[name]},
        )

    return [column(i, name) for i, name in enumerate(of)]


def seed_column() -> Shown:
    return Shown(
        "n",
        group="Fields",
        key="n",
        about="number of seeds",
        cell=lambda row: Cell(str(row.n), value=row.n),
        data=lambda row: {"n": row.n},
    )


def fact_column(fact: Fact) -> Shown:
    return Shown(
        fact.head,
        lines=fact.folded,
        group="Size and cost",
        key=fact.name,
        about=fact.about,
        on=fact.brief,
        cell=lambda row: Cell(fact.cell(row), value=fact.of(row)),
        data=fact.data,
    )


def paper_size_column(on: bool = True, unit: str = "M") -> Shown:
    def cell(row: SummaryRow) -> Cell:
        return Cell("" if row.paper.params is None else f"{row.paper.params}{unit}", value=row.paper.params)

    return Shown(
        "paper params",
        lines="M",
        latex="paper",
        group="Size and cost",
        key="paper-size",
        about="the paper's parameters",
        on=on,
        cell=cell,
        data=lambda row: {"paper params (million)": row.paper.params},
    )


def score_column(metric: Metric, foreign: Sequence[str] = (), near: bool = False, on: bool = True) -> Shown:
    """`foreign`: rows whose perplexities are not comparable. `near`: on a narrow screen, too."""
    by_nll = metric.beside

    def scores(row: SummaryRow) -> Scores:
        return (row.character if metric is CHARACTER else row.metric(metric.name)) or Scores(None, None, {})

    def cell(row: SummaryRow) -> Cell:
        of = scores(row)
        if of.mean is None:
            return Cell() if by_nll else Cell(of.instead, title=missing_text(row)[:500])
        spread = "" if of.sd is None else f"± {metric.spread(of.sd)}"
        best = not (metric is PPL and row.name in foreign)
        far = f"{len(row.far_above)} of {row.n} seeds far above the others" if row.far_above and metric is PPL else ""
        return Cell(metric.score(of.mean), spread, of.mean, note=far, best=best)

    def data(row: SummaryRow) -> Line:
        return {f"{metric.key} mean": scores(row).mean, f"{metric.key} {metric.sd_key}": scores(row).sd}

    return Shown(
        metric.column_head if by_nll else f"dev {metric.label}",
        lines=metric.column_head.replace("/", "/\n") if by_nll else f"dev\n{metric.label}",
        latex=r"ours ($\pm$\,\%)" if metric.log else "ours",
        kind="score",
        lower_is_better=metric.lower_is_better,
        group="Per word" if by_nll and not near else metric.column_head,
        over=_over(metric),
        key="char" if metric is CHARACTER else metric.name,
        about=f"mean {metric.label} ± standard deviation",
        narrow=near,
        on=on,
        cell=cell,
        data=data,
    )


def _over(metric: Metric) -> str:
    return f"{metric.prose_name} (dev)"


def missing_text(row: SummaryRow) -> str:
    return "; ".join(f"seed {seed}: {why}" for seed, why in row.missing.items())


def paper_column(metric: Metric) -> Shown:
    def cell(row: SummaryRow) -> Cell:
        score = row.paper.of(metric.name)
        return Cell("" if score is None else f"{score:.{metric.digits}f}", value=score)

    first = metric is PPL
    return Shown(
        f"paper {metric.label}",
        lines=f"paper\n{metric.label}" if first else metric.label,
        latex="paper",
        group=metric.column_head,
        over=_over(metric),
        key=f"{metric.name}-paper",
        about=f"the paper's {metric.label}",
        cell=cell,
        data=lambda row: {f"paper {metric.name}": row.paper.of(metric.name)},
    )


def difference_columns(report: Summary, metric: Metric, near: bool = False) -> dict[str, Shown]:
    """d: to base, with its interval; pd: the paper's; p, holm and word."""
    of_the_paper = columns.of_the_paper(report.rows)
    unit, to = ", %" * metric.log, f" to {report.reference}" if report.reference else ""
    whom = "the paper" if of_the_paper and metric.printed else report.to

    def column(
        key: str, head: str, about: str, cell: Callable[[Difference, SummaryRow], Cell], **traits: Any
    ) -> dict[str, Shown]:
        def of(row: SummaryRow) -> Cell:
            d = row.metric(metric.name).difference
            if key == "d" and row.name == report.reference:
                return Cell("reference")
            return Cell() if d is None else cell(d, row)

        own = {"key": f"{metric.name}-{key}", "about": about, "cell": of, **traits}
        data = partial(_difference_data, metric, key)
        return {key: Shown(head, group=metric.column_head, over=_over(metric), data=data, **own)}

    name = metric.column_head
    head, about = f"Δ {name}{unit}{to}", f"difference in {name} to {report.to}, {report.level} %"
    latex = r"$\Delta$" + r"\,\%" * metric.log
    shown = column(
        "d", head, about, partial(_own_cell, metric), kind="difference", narrow=near, lines=f"Δ{unit}", latex=latex
    )
    if of_the_paper and metric.printed:
        shown |= column("pd", f"paper Δ{unit}", f"the paper's difference in {name}", partial(_paper_cell, metric))
    of_p = {"kind": "p", "on": False, "latex": "$p$"}
    shown |= column("p", "p (BH)", f"p of {name} by Benjamini and Hochberg", lambda d, _: _p(d.p), **of_p)
    shown |= column("holm", "p (Holm)", f"p of {name} by Holm", lambda d, _: _p(d.holm), **of_p)
    cell, of_word = partial(_verdict_cell, metric, report.alpha), {"kind": "word", "words": True, "lines": "verdict"}
    return shown | column(
        "word", f"{name} against {whom}", f"verdict in {name}", cell, narrow=near, latex="", **of_word
    )


def _difference_data(metric: Metric, key: str, row: SummaryRow) -> Line:
    """The numbers of a difference, as it is tested, by the column that shows them; with its verdict all that remain."""
    d, head = row.metric(metric.name).difference, f"{metric.key} difference"
    parts = {"d": ("estimate", "lower", "upper"), "word": ("smallest", "needed", "verdict"), "pd": ()}.get(key, (key,))
    line = {f"{head} {part}": getattr(d, part) if d else None for part in parts}
    if key == "word":
        line |= {f"{head} factor": d.factor.estimate if d and d.factor else None}
        ends = ("estimate", "lower", "upper") if metric.log else ()
        line |= {f"{head} percent {end}": getattr(d.percent, end) if d and d.percent else None for end in ends}
    return line


def _own_cell(metric: Metric, d: Difference, row: SummaryRow) -> Cell:
    of, digits = d.in_print, metric.brief
    if of.estimate is None:
        return Cell()
    ends = None if of.lower is None or of.upper is None else (of.lower, of.upper)
    small = interval(of.lower, of.upper, lambda end: signed(end, digits))
    return Cell(signed(of.estimate, digits), small, of.estimate, ends)


def _paper_cell(metric: Metric, d: Difference, row: SummaryRow) -> Cell:
    paper = d.paper_in_print
    clear = "" if d.paper_is_clear is None or d.paper_is_clear else "within the noise of single runs"
    return Cell() if paper is None else Cell(signed(paper, metric.brief), value=paper, title=clear)


def _verdict_cell(metric: Metric, alpha: float, d: Difference, row: SummaryRow) -> Cell:
    if d.verdict not in (Verdict.DIVERGED, Verdict.INCOMPARABLE) and (d.estimate is None or row.n < 2):
        return Cell()
    shown, line, why = WORDS[d.verdict].shown, phrase(d.verdict, d.beside), _why(d, metric)
    sure = d.holm is not None and d.holm < alpha
    return Cell(shown, d.beside, d.verdict, word=d.verdict, said=line, sure=sure, title=why)


def _brief_cell(metric: Metric, row: SummaryRow) -> Cell:
    d = row.metric(metric.name).difference
    return Cell() if d is None else Cell(brief_phrase(d.verdict, d.beside))


def _p(p: float | None) -> Cell:
    return Cell(p_value(p), value=p)


def _why(d: Difference, metric: Metric) -> str:
    smallest = d.in_print.smallest
    if d.verdict != Verdict.UNDECIDED or d.p is None or smallest is None:
        return d.why
    size = metric.true_difference(smallest)
    return f"{d.why}; {size} would have been detected with a probability of about {100 * ABOUT:.0f} %"


# --- views ---


def terminal(report: Summary) -> list[Block]:
    """For a terminal: with tests a table for each metric, else every column of the paper where they fit."""
    return _by_metric(report) if report.tested else [_widest(report)]


def _by_metric(report: Summary) -> list[Block]:
    """Without room p, the paper's differences, the sizes beside verdicts and the names beside labels are dropped."""
    first, labels = [name_column(), *label_columns(report.rows)], [row for row in report.rows if row.label]
    called = [replace(name_column(), cell=lambda row: Cell(row.label or columns.row_title(row)))]
    names = f"in commands and files: {'; '.join(f'{row.name} {row.label}' for row in labels)}"
    shown = notes.brief_notes(report)
    every = [("d", "pd", "p", "word"), ("d", "p", "brief"), ("d", "word"), ("d", "brief")]
    views: list[list[Table | Notes]] = [[*_tables(report, first, keys), Notes(shown)] for keys in every]
    views += [[*_tables(report, called, ("d", "brief")), Notes([*shown, names])]] * bool(labels)
    to = Text([f"differences to {report.to}" + ", not to base" * bool(report.reference)] * (report.against is not None))
    return [to, Widest(views, folds=-1)]


def _tables(report: Summary, first: Sequence[Shown], keys: Sequence[str]) -> list[Table]:
    """One for each metric; where nothing is tested it has neither p nor verdicts."""
    made = []
    for metric in (METRICS[name] for name in report.metrics):
        of = difference_columns(report, metric)
        of["brief"] = replace(of["word"], cell=partial(_brief_cell, metric))
        verdicts = [d.verdict for row in report.rows if (d := row.metric(metric.name).difference)]
        tested = any(verdict != Verdict.UNTESTABLE for verdict in verdicts)
        shown = [of[key] for key in keys if key in of and (tested or key in ("d", "pd"))]
        made.append(table(report.rows, [*first, seed_column(), score_column(metric), *shown]))
    return made


def _widest(report: Summary) -> Widest:
    """Each row's changes in one column where the paper's own do not fit."""
    rows = report.rows
    both = nll_metrics(rows)
    fewer = both[:1] * bool(report.foreign)  # where pieces are alike, PPL says the same
    every = brief_facts(rows)
    without_intervals = [fact for fact in every if not fact.interval]  # the paper's own columns go first
    full = [name_column("\n "), *field_columns(columns.columns_to_print(rows), columns.narrow_value)]
    views: list[list[Table | Notes]] = []
    for first, nll, some in (
        ([full[0], *label_columns(rows), *full[1:]], both, every),
        (full, both, every),
        (full, fewer, every),
        (full, fewer, without_intervals),
        ([replace(name_column(), cell=lambda row: Cell(row.name)), change_column(rows, labelled=True)], fewer, every),
    ):
        n = [seed_column()] * (len(report.seeds) > 1)
        made = table(rows, [*first, *map(fact_column, some), *n, *_scores(report, nll), *_paper(rows, unit="")])
        shown = [(analysis, result) for analysis, result in findings(report) if analysis is not WORTH or some == every]
        own = [line for analysis, result in shown for line in analysis.brief(result, report)]
        views.append([made, Notes([*notes.untested_notes(report, bool(nll)), *own])])
    return Widest(views)


def document(report: Summary) -> list[Block]:
    """Every column that says something: with tests the words counted, the claims and what the analyses say."""
    rows, of_nll = report.rows, nll_metrics(report.rows)
    first = [group_column(), name_column(), *label_columns(rows)]
    if not report.tested:
        first += [*field_columns(columns.columns_to_print(rows)), *map(fact_column, brief_facts(rows)), seed_column()]
        made = table(rows, [*first, *_scores(report, of_nll), *_paper(rows)])
        return [made, Notes([*notes.untested_notes(report), *notes_of_analyses(report)])]
    explained = all(row.base or row.paper.printed for row in rows)
    first += [*[change_column(rows)] * (not explained), seed_column()]
    for metric in (PPL, *of_nll, *report.metrics_beside):
        tests = difference_columns(report, metric) if metric.name in report.metrics else {}
        first += [score_column(metric), *(tests[key] for key in TESTS if tests)]
    made = table(rows, [*first, *map(fact_column, extra_facts(rows)), *_paper(rows)])
    return [made, Notes(notes.tested_notes(report)), *notes.sections_in_text(report)]


def table_lines(report: Summary) -> list[Line]:
    """For programs: CSV, a DataFrame, W&B's table; a line for each row, the hidden ones last."""
    shown = _data_columns(report)
    lines = [[column.data(row) for column in shown] for row in [*report.rows, *(report.hidden or [])]]
    return [{head: None if x == "" else x for part in line for head, x in part.items()} for line in lines]


def _data_columns(report: Summary) -> list[Shown]:
    def column(head: str, value: Callable[[SummaryRow], Any]) -> Shown:
        return Shown(head, data=lambda row: {head: value(row)})

    rows, of_nll, hidden = report.rows, nll_metrics(report.rows), {row.name for row in report.hidden or []}
    tuning, (size, *more) = report.of(row_tuning.ANALYSIS), map(fact_column, FACTS)
    shown = [group_column(), name_column()]
    shown += [column("differences to", lambda row: report.reference)] * bool(report.reference)
    shown += field_columns(list(rows[0].values))
    shown += [column(f"best {tuning.key}", lambda row: row_tuning.best_of(tuning, row.name))] if tuning else []
    shown += [size, seed_column(), *more]
    metrics = [*printed_metrics(rows), *of_nll[:1], *(m for m in report.metrics_beside if not m.printed), *of_nll[1:]]
    for metric in metrics:
        tests = difference_columns(report, metric) if report.tested and metric not in of_nll[1:] else {}
        shown += [score_column(metric), *(tests[key] for key in TESTS if tests)]
    shown += _paper(rows)
    shown += [column("far above", lambda row: " ".join(map(str, row.far_above)))] * report.tested
    shown += [column("missing", missing_text)]
    shown += [column("is", lambda row: row.same_as)] * any(row.same_as for row in rows)
    return shown + [column("hidden", lambda row: "hidden" * (row.name in hidden))] * bool(hidden)


def _scores(report: Summary, nll: Sequence[Metric]) -> list[Shown]:
    return [score_column(metric, report.foreign or []) for metric in (PPL, *nll, *report.metrics_beside)]


def _paper(rows: Sequence[SummaryRow], unit: str = "M") -> list[Shown]:
    return [*map(paper_column, printed_metrics(rows)), paper_size_column(unit=unit)] * columns.of_the_paper(rows)


def page(report: Summary) -> Table:
    """Beside each row's name and change; the columns can be chosen."""
    rows = report.rows
    of_the_paper, compared = columns.of_the_paper(rows), WORD.name in report.metrics
    own = [name for name in columns.columns_to_print(rows) if not of_the_paper or name not in COLUMNS]
    shown = [*field_columns(own, on=not of_the_paper and len(own) <= FEW), seed_column()]
    for i, metric in enumerate(METRICS[name] for name in report.metrics):
        near = metric is (WORD if compared else PPL)
        made, room = difference_columns(report, metric, near), near or i < WIDTH
        first = [score_column(metric, near=near), *[paper_column(metric)] * (of_the_paper and metric.printed)]
        if not any(made["word"].cell(row).main for row in rows):
            del made["word"]
        off = {key for key in made if not room or (key == "pd" and compared)}
        shown += [*first, *(replace(column, on=column.on and key not in off) for key, column in made.items())]
    shown += [score_column(metric, on=False) for metric in nll_metrics(rows) if metric.name not in report.metrics]
    size, *more = map(fact_column, extra_facts(rows))
    return table(rows, [*shown, size, *[paper_size_column(on=not compared)] * of_the_paper, *more])


def chooser(columns_: Sequence[Column]) -> dict[str, list[Column]]:
    """By group, in order."""
    return {name: [c for c in columns_ if c.group == name] for name in dict.fromkeys(c.group for c in columns_)}
