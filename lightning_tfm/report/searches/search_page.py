"""A search's summary -> its page."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

from lightning_tfm.plural_words import plural
from lightning_tfm.report.pages.document import render
from lightning_tfm.report.searches import figures
from lightning_tfm.report.searches.search_summary import SearchSummary, field_name, objective_name
from lightning_tfm.study.trials import Trial

MOST = 1000
"""trials of a page, which a browser still draws at once"""


def page(report: SearchSummary, live: str = "", link: Callable[[str], str] = lambda run: "") -> str:
    """The HTML. `live` is the version that --serve asks for, `link` leads from a run's name to its folder."""
    number, whole = {t.trial: i for i, t in enumerate(report.trials)}, len(report.trials)
    report = replace(report, trials=best_trials(report))
    aims, names = list(report.objectives), [p.name for p in report.space]
    set_, heads = [*names, *(report.ties or {})], [("trial", "", "w"), ("state", "", "w")]
    heads += [*((field_name(name), name, "") for name in set_), *((objective_name(aim), aim, "") for aim in aims)]
    importance = {record.objective: (record, figures.importance(record)) for record in report.importance}
    courses = [(aim, figures.search_course(report, aim, number), importance.get(aim)) for aim in aims]
    against = [figures.trade_off(report, a, b) for a, b in combinations(aims, 2)]
    parallel = [
        (aim, {t.trial: t.trial for t in report.with_values(aim)}, figures.parallel(report, aim)) for aim in aims
    ]
    return render(
        "search.html",
        report=report,
        live=live,
        head=_head(report, whole),
        notice=_trials_left_out(report, whole),
        headline=[*(_sentence(report, words) for words in report.gains[:2]), *_most_important(report)],
        set_of=lambda t: [(t.sets[name], t.in_words(name)) for name in set_],
        heads=[*heads, ("steps", "", ""), ("note", "", "w")],
        states=sorted({t.state for t in report.trials}),
        best=[t for t in report.trials if t.trial in report.best],
        said=figures.trial_text,
        in_words=objective_name,
        links={t.trial: link(t.run) for t in report.trials},
        training=figures.learning_curves(report, aims[0]),
        curved={t.trial: t.trial for t in report.trials if t.curve},
        axes=[*((field_name(name), name) for name in names)],
        courses=[course for course in courses if any(course[1:])],
        against=list(filter(None, against)),
        parallel=[line for line in parallel if line[-1]],
    )


def best_trials(report: SearchSummary) -> list[Trial]:
    """Those that the page shows, in their order: all, of more than `MOST` the best in the first objective."""
    aim, direction = next(iter(report.objectives.items()))
    sign = 1 if direction == "minimize" else -1
    last = math.inf
    order = sorted(
        report.trials,
        key=lambda t: (t.trial not in report.best, last if (value := t.values[aim]) is None else sign * value),
    )
    best = {t.trial for t in order[:MOST]}
    return [t for t in report.trials if t.trial in best]


def _trials_left_out(report: SearchSummary, trials: int) -> str:
    if trials <= MOST:
        return ""
    return (
        f"This page shows the best {MOST:,} of {trials:,} trials; all of them: "
        f"lightning-tfm report {report.study} --format csv"
    )


def _sentence(report: SearchSummary, gain: str) -> str:
    name, _, more = gain.partition(": ")
    best = next((t for t in report.trials if t.trial == name and name in report.best), None)
    return f"{gain[:1].upper()}{gain[1:]}." if best is None else f"Best is {figures.trial_text(best)}. Gain: {more}."


def _most_important(report: SearchSummary) -> list[str]:
    """The parameters that explain most of each objective."""
    sentences = []
    for record in report.importance:
        first = list((record.importance or {}).items())[:3]
        shares = ", ".join(f"{field_name(name)} {100 * share:.0f} %" for name, share in first)
        sentences += [f"What mattered for {objective_name(record.objective)}: {shares}."] * bool(first)
    return sentences


def _head(report: SearchSummary, trials: int) -> list[str]:
    states = ", ".join(f"{count} {word}" for word, count in report.states.items() if count)
    return [
        f"{plural(trials, 'trial')} of {report.sampler}: {states or 'none yet'}",
        ", ".join(f"{direction} {name}" for name, direction in report.objectives.items()),
        *(f"{key} follows: {tie}" for key, tie in (report.ties or {}).items()),
        *([f"{len(report.seeds)} runs a trial, seeds {', '.join(map(str, report.seeds))}"] if report.seeds else []),
        *(f"limit: {name} ≤ {limit:,.0f}" for name, limit in report.constraints.items()),
        f"corpus {report.corpus}, {' to '.join(report.languages)}",
    ]
