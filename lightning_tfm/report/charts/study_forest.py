"""A study's rows as the main figure: in the metric that decides and in the next."""

from collections.abc import Sequence
from dataclasses import replace

from lightning_tfm.metrics import METRICS, PPL, WORD, Metric
from lightning_tfm.plural_words import plural
from lightning_tfm.report.charts.forest import BRIEF, Axis, Entry, Forest, Line, finding, tally
from lightning_tfm.report.stats.statistics import LEAST
from lightning_tfm.report.summary import Summary, SummaryRow
from lightning_tfm.report.tables.columns import change_text
from lightning_tfm.report.wording.verdict_words import Verdict

AXES = 2


def forest_of(report: Summary) -> Forest:
    """Without lines where no row is compared. Without tests it has estimates alone."""
    metrics = _metrics(report)
    axes = [axis_of(metric) for metric in metrics]
    to = report.against
    rows = [row for row in report.rows if row is not to and row.same_as is None]
    lines = [
        Line(
            row.called,
            [_entry(row, to, metric) for metric in metrics],
            row.name * (row.called != row.name),
            change_text(row),
        )
        for row in rows
        if to
    ]
    lines = [line for line in lines if any(line.entries)]
    lines.sort(key=lambda line: _place(line, axes[0].lower_is_better))
    diverged = [row.called for row in rows if row.metric(metrics[0].name).mean is None and row.diverged]
    each = [(row, row.metric(metrics[0].name).difference) for row in rows]
    undecided = [row for row, d in each if d and d.verdict == Verdict.UNDECIDED]
    published = "the paper" if any(e and e.published is not None for line in lines for e in line.entries) else ""
    found = Forest(
        finding(axes, lines, report.to),
        " ".join(filter(None, [tally(lines, _seeds(undecided), published, diverged), _scope(report)])),
        axes,
        lines,
        _seeds(rows),
        report.level,
        published,
        report.to,
        brief=finding(axes, lines, report.to, room=BRIEF),
    )
    few = any(row.n < LEAST for row in report.rows)
    return found if found.tested or not few else replace(found, more=_five(report))


def _seeds(rows: Sequence[SummaryRow]) -> str:
    n = sorted({row.n for row in rows if row.n})
    return f"{n[0]} to {n[-1]} seeds" if len(n) > 1 else plural(n[0], "seed") if n else ""


def _metrics(report: Summary) -> list[Metric]:
    """The one that decides, then the first other that is tested."""
    rest = [METRICS[name] for name in report.metrics if name not in (PPL.name, WORD.name)]
    return [report.primary, *rest][:AXES]


def axis_of(metric: Metric) -> Axis:
    name = metric.prose_name[:1].upper() + metric.prose_name[1:] if metric.log else metric.label
    return Axis(name, metric.log, metric.lower_is_better, metric.brief, metric.prose_name)


def _entry(row: SummaryRow, to: SummaryRow, metric: Metric) -> Entry | None:
    ours, theirs = row.metric(metric.name), to.metric(metric.name)
    if ours.mean is None or theirs.mean is None:
        return None
    level = metric.transform(theirs.mean)

    def shown(score: float) -> float:
        return metric.in_units(metric.transform(score) - level)

    by_seed, d = [shown(score) for score in ours.by_seed.values()], ours.difference
    if d is None:
        one, other = row.paper.of(metric.name), to.paper.of(metric.name)
        paper = (
            None if one is None or other is None else metric.in_units(metric.transform(one) - metric.transform(other))
        )
        return Entry(shown(ours.mean), published=paper, by_seed=by_seed)
    of = d.in_print
    estimate = shown(ours.mean) if of.estimate is None else of.estimate
    return Entry(estimate, of.lower, of.upper, d.verdict, d.beside, d.paper_in_print, by_seed)


def _place(line: Line, lower_is_better: bool) -> tuple[bool, float]:
    """The worst first, what the first metric lacks last."""
    entry = line.entries[0]
    return (entry is None, 0.0 if entry is None else -entry.estimate if lower_is_better else entry.estimate)


def _scope(report: Summary) -> str:
    return f"One corpus ({report.text or report.corpus}), one {'small ' * bool(report.scale)}scale."


def _five(report: Summary) -> str:
    first = min(report.seeds, default=1)
    seeds = f"{first}-{first + LEAST - 1}"
    return f"Verdicts need {LEAST} seeds: sweep again with --seeds {seeds}; finished runs are kept."
