"""A search's summary -> its page."""

from itertools import combinations

from lightning_tfm.report import search_figures as figures
from lightning_tfm.report.document import render
from lightning_tfm.report.summary import SearchSummary


def page(report: SearchSummary, live: str = "") -> str:
    """The HTML. `live` is the version that --serve asks for."""
    aims, names = list(report.objectives), [p.name for p in report.space]
    columns = [("trial", "w"), ("state", "w"), *((name, "") for name in (*names, *aims)), ("steps", ""), ("note", "w")]
    courses = [figures.course(report, aim) for aim in aims]
    against = [figures.against(report, a, b) for a, b in combinations(aims, 2)]
    slices = [figures.slices(report, p, aim) for aim in aims for p in report.space]
    parallel = [(aim, [t.trial for t in report.with_values(aim)], figures.parallel(report, aim)) for aim in aims]
    return render(
        "search.html",
        report=report,
        live=live,
        head=_head(report),
        heads=columns,
        states=sorted({t.state for t in report.trials}),
        best=[t for t in report.trials if t.trial in report.best],
        said=figures.said,
        importance=[(record, figures.importance(record)) for record in report.importance],
        courses=list(filter(None, courses)),
        against=list(filter(None, against)),
        slices=list(filter(None, slices)),
        parallel=[one for one in parallel if one[-1]],
    )


def _head(report: SearchSummary) -> list[str]:
    states = ", ".join(f"{count} {word}" for word, count in report.states.items() if count)
    return [
        f"{len(report.trials)} trials of {report.sampler}: {states or 'none yet'}",
        ", ".join(f"{direction} {name}" for name, direction in report.objectives.items()),
        *(f"limit: {name} ≤ {limit:,.0f}" for name, limit in report.constraints.items()),
        f"corpus {report.corpus}, {' to '.join(report.languages)}",
    ]
