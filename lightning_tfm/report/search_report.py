"""A search from its records: trials, what mattered, the best; as page, Markdown, CSV or JSON.

Reads study.json, trials.json and importance.json of the study's folder (queue/search_results.py writes them) and the
validations of its runs, where they are here. A pure function of them: the same records give the same bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import add
from pathlib import Path

from lightning_tfm.atomic_io import to_csv
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural
from lightning_tfm.report import search_figures
from lightning_tfm.report.blocks import Block, Notes, Table, columns
from lightning_tfm.report.pages.document import render
from lightning_tfm.report.pages.provenance import Link, nowhere
from lightning_tfm.report.pages.shared import four_digits
from lightning_tfm.report.render.markdown import to_markdown
from lightning_tfm.report.search_summary import SearchSummary, field_name, objective_name
from lightning_tfm.report.serialize import rounded, to_json
from lightning_tfm.report.tables.paper_table import LAYOUT, Layout
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.search import Search
from lightning_tfm.study.study_file import folder_of, load_as
from lightning_tfm.study.trials import Importance, Trial, best, gain_lines, read_trials
from lightning_tfm.watch.run_state import Curve

SCHEMA = 1


@dataclass(frozen=True)
class SearchReport:
    """What a search's report says."""

    summary: SearchSummary
    root: Path | None

    def render(
        self, kind: str, texts: bool = True, live: str = "", link: Link = nowhere, layout: Layout = LAYOUT
    ) -> str:
        """As html, markdown, csv or json. It shows no line of the corpus, whatever `texts` says. Raises UserError."""
        root = self.root
        match kind:
            case "html":
                return page(self.summary, live, lambda run: link(RunFolder(root, run).path) if root and run else "")
            case "markdown":
                return to_markdown(blocks(self.summary))
            case "csv":
                return to_csv(data(self.summary))
            case "json":
                return to_json(rounded(self.summary.content()), schema=SCHEMA, kind="search")
        raise UserError(f"--format={kind}: a search has no table in the paper's layout; html, markdown, csv or json")


def make(name: str, root: Path) -> SearchReport:
    """The report of the search `name`. Raises UserError where its records are missing or broken."""
    search = load_as(Search, root, name)
    return of_trials(search, *read_trials(search, folder_of(root, name)), root)


def of_trials(
    search: Search, trials: Sequence[Trial], importance: list[Importance], root: Path | None = None
) -> SearchReport:
    """The report of a search from its trials and what mattered. `root`: where its runs are, with their curves."""
    lines = [replace(trial, curve=_curve(root, trial.run, search.prints.dev[:16])) for trial in trials]
    leading = best(lines, search.objectives)
    gains = gain_lines(search, lines, leading)
    return SearchReport(SearchSummary(search, rounded(lines), rounded(importance), leading, gains), root)


def _curve(root: Path | None, run: str, text: str) -> list[tuple[int, float]]:
    return list(Curve.of(RunFolder(root, run).path, text=text).validations.items()) if root and run else []


def data(report: SearchSummary) -> list[dict[str, object]]:
    """A line for each trial, at full precision."""
    return [
        {
            **{"trial": t.trial, "state": t.state},
            **t.sets,
            **t.values,
            **{f"{aim} sd": t.sd(aim) for aim in report.search.objectives if report.seeds},
            **{
                f"{aim} seed {seed}": (t.by_seed or {}).get(aim, {}).get(str(seed))
                for aim in report.search.objectives
                for seed in report.seeds
            },
            **{"steps seen": t.steps_seen, "feasible": t.feasible, "run": t.run, "reason": t.reason},
        }
        for t in report.trials
    ]


def blocks(report: SearchSummary) -> list[Block]:
    """The trials, the best first, and what mattered."""
    names, aims = [*(p.name for p in report.search.space), *report.ties], list(report.search.objectives)
    rows = []
    for t in sorted(report.trials, key=lambda t: (t.trial not in report.best, t.trial)):
        scores = ["" if (value := t.values[aim]) is None else four_digits(value) for aim in aims]
        spread = ["" if (sd := t.sd(aim)) is None else f" ± {sd:.2g}" for aim in aims]
        rows.append([t.trial, t.state, *map(t.in_words, names), *map(add, scores, spread)])
    notes = [f"best: {', '.join(report.best) or 'none yet'}", *condition_notes(report), *report.gains]
    for record in report.importance:
        parts = record.why_not or ", ".join(f"{k} {100 * v:.0f} %" for k, v in (record.importance or {}).items())
        notes.append(f"importance for {record.objective} on {plural(record.trials, 'finished trial')}: {parts}")
    return [Table("", columns("trial", "state", *names, *aims, words=["state"]), rows), Notes(notes)]


def condition_notes(report: SearchSummary) -> list[str]:
    """What holds for all trials, in words; nothing where each is one run and all parameters are sampled."""
    notes = [f"{key} is not sampled, it follows: {tie}" for key, tie in report.ties.items()]
    if report.seeds:
        seeds = ", ".join(map(str, report.seeds))
        notes.append(f"every trial is {len(report.seeds)} runs, at seeds {seeds}: mean ± standard deviation (n-1)")
    return notes


MOST = 1000
"""trials of a page, which a browser still draws at once"""


def page(report: SearchSummary, live: str = "", link: Callable[[str], str] = lambda run: "") -> str:
    """The HTML. `live` is the version that --serve asks for, `link` leads from a run's name to its folder."""
    number, whole = {t.trial: i for i, t in enumerate(report.trials)}, report
    report = replace(report, trials=best_trials(report))
    aims, names = list(report.search.objectives), [p.name for p in report.search.space]
    set_, heads = [*names, *report.ties], [("trial", "", "w"), ("state", "", "w")]
    heads += [
        *((field_name(name), name, "m" * (i > 0)) for i, name in enumerate(set_)),
        *((objective_name(aim), aim, "") for aim in aims),
    ]
    importance = {record.objective: (record, search_figures.importance(record)) for record in report.importance}
    courses = [(aim, search_figures.search_course(report, aim, number), importance.get(aim)) for aim in aims]
    against = [search_figures.trade_off(report, a, b) for a, b in combinations(aims, 2)]
    parallel = [
        (aim, {t.trial: t.trial for t in report.with_values(aim)}, search_figures.parallel(report, aim)) for aim in aims
    ]
    return render(
        "search.html",
        report=report,
        live=live,
        head=_head(whole),
        notice=_trials_left_out(report, len(whole.trials)),
        headline=[*(_sentence(report, words) for words in report.gains[:2]), *_most_important(report)],
        set_of=lambda t: [(t.sets[name], t.in_words(name)) for name in set_],
        heads=[*heads, ("steps", "", "m"), ("note", "", "w m")],
        states=sorted({t.state for t in report.trials}),
        best=[t for t in report.trials if t.trial in report.best],
        said=search_figures.trial_text,
        in_words=objective_name,
        links={t.trial: link(t.run) for t in report.trials},
        training=search_figures.learning_curves(report, aims[0]),
        curved={t.trial: t.trial for t in report.trials if t.curve},
        axes=[*((field_name(name), name) for name in names)],
        courses=[course for course in courses if any(course[1:])],
        against=list(filter(None, against)),
        parallel=[line for line in parallel if line[-1]],
    )


def best_trials(report: SearchSummary) -> list[Trial]:
    """Those that the page shows, in their order: all, of more than `MOST` the best in the first objective."""
    aim, direction = next(iter(report.search.objectives.items()))
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
        f"lightning-tfm report {report.search.name} --format csv"
    )


def _sentence(report: SearchSummary, gain: str) -> str:
    name, _, more = gain.partition(": ")
    best = next((t for t in report.trials if t.trial == name and name in report.best), None)
    return (
        f"{gain[:1].upper()}{gain[1:]}."
        if best is None
        else f"Best is {search_figures.trial_text(best)}. Gain: {more}."
    )


def _most_important(report: SearchSummary) -> list[str]:
    """The parameters that explain most of each objective."""
    sentences = []
    for record in report.importance:
        first = list((record.importance or {}).items())[:3]
        shares = ", ".join(f"{field_name(name)} {100 * share:.0f} %" for name, share in first)
        sentences += [f"What mattered for {objective_name(record.objective)}: {shares}."] * bool(first)
    return sentences


def _head(report: SearchSummary) -> list[str]:
    states = ", ".join(f"{count} {word}" for word, count in report.states.items() if count)
    data = report.search.base.data
    return [
        f"{plural(len(report.trials), 'trial')} of {report.search.sampler}: {states or 'none yet'}",
        ", ".join(f"{direction} {name}" for name, direction in report.search.objectives.items()),
        *(f"{key} follows: {tie}" for key, tie in report.ties.items()),
        *([f"{len(report.seeds)} runs a trial, seeds {', '.join(map(str, report.seeds))}"] if report.seeds else []),
        *(f"limit: {name} ≤ {limit:,.0f}" for name, limit in report.search.constraints.items()),
        f"corpus {data.corpus}, {' to '.join(data.languages)}",
    ]
