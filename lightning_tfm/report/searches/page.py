"""A search's summary -> its page."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from lightning_tfm.plural_words import plural
from lightning_tfm.report.pages.document import render
from lightning_tfm.report.searches import figures
from lightning_tfm.report.searches.summary import SearchSummary


def page(report: SearchSummary, live: str = "", link: Callable[[str], str] = lambda run: "") -> str:
    """The HTML. `live` is the version that --serve asks for, `link` leads from a run's name to its folder."""
    aims, names = list(report.objectives), [p.name for p in report.space]
    set_, heads = [*names, *(report.ties or {})], [("trial", "w"), ("state", "w")]
    columns = [*heads, *((name, "") for name in (*set_, *aims)), ("steps", ""), ("note", "w")]
    courses = [figures.course(report, aim) for aim in aims]
    against = [figures.against(report, a, b) for a, b in combinations(aims, 2)]
    parallel = [(aim, [t.trial for t in report.with_values(aim)], figures.parallel(report, aim)) for aim in aims]
    return render(
        "search.html",
        report=report,
        live=live,
        head=_head(report),
        headline=[*(_sentence(report, words) for words in report.gains[:2]), *_mattered(report)],
        set_of=lambda t: [(t.sets[name], t.in_words(name)) for name in set_],
        heads=columns,
        states=sorted({t.state for t in report.trials}),
        best=[t for t in report.trials if t.trial in report.best],
        said=figures.said,
        links={t.trial: link(t.run) for t in report.trials},
        training=_training(report),
        axes=[*names],
        importance=[(record, figures.importance(record)) for record in report.importance],
        courses=list(filter(None, courses)),
        against=list(filter(None, against)),
        parallel=[one for one in parallel if one[-1]],
    )


@dataclass(frozen=True)
class Training:
    """The learning curves of all trials over both axes."""

    sizes: list[tuple[str, str, str]]
    """(class, straight axis, logarithmic axis): for wide screens, for narrow ones"""
    at_first: bool
    """whether the logarithmic one is shown at first"""
    trials: list[str]


def _training(report: SearchSummary) -> Training | None:
    """None where no run is here."""
    aim = next(iter(report.objectives))
    wide, narrow = (1200, 430), (420, 380)
    sizes = [
        (class_, figures.training(report, aim, False, size), figures.training(report, aim, True, size))
        for class_, size in (("on-screens", wide), ("on-phones", narrow))
    ]
    drawn = [t.trial for t in report.trials if t.curve]
    return Training(sizes, figures.fall(report), drawn) if drawn else None


def _sentence(report: SearchSummary, gain: str) -> str:
    name, _, more = gain.partition(": ")
    best = next((t for t in report.trials if t.trial == name and name in report.best), None)
    return f"{gain[:1].upper()}{gain[1:]}." if best is None else f"Best is {figures.said(best)}. Gain: {more}."


def _mattered(report: SearchSummary) -> list[str]:
    """The parameters that explain most of each objective."""
    found = {record.objective: list(record.importance.items())[:3] for record in report.importance if record.importance}
    shares = {aim: ", ".join(f"{name} {100 * share:.0f} %" for name, share in first) for aim, first in found.items()}
    return [f"What mattered for {aim}: {said}." for aim, said in shares.items()]


def _head(report: SearchSummary) -> list[str]:
    states = ", ".join(f"{count} {word}" for word, count in report.states.items() if count)
    return [
        f"{plural(len(report.trials), 'trial')} of {report.sampler}: {states or 'none yet'}",
        ", ".join(f"{direction} {name}" for name, direction in report.objectives.items()),
        *(f"{key} follows: {tie}" for key, tie in (report.ties or {}).items()),
        *([f"{len(report.seeds)} runs a trial, seeds {', '.join(map(str, report.seeds))}"] if report.seeds else []),
        *(f"limit: {name} ≤ {limit:,.0f}" for name, limit in report.constraints.items()),
        f"corpus {report.corpus}, {' to '.join(report.languages)}",
    ]
