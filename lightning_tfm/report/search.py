"""A search from its records: trials, what mattered, the best; as page, Markdown, CSV or JSON.

Reads study.json, trials.json and importance.json of the study's folder (queue/search_results.py writes them) and the
validations of its runs, where they are here. A pure
function of them: the same records give the same bytes.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.report.blocks import Block, Notes, Table, columns
from lightning_tfm.report.latex import Layout
from lightning_tfm.report.links import Link, nowhere
from lightning_tfm.report.render.data import to_csv, to_json
from lightning_tfm.report.render.markdown import to_markdown
from lightning_tfm.report.search_page import page
from lightning_tfm.report.summary import Importance, SearchSummary, Trial, rounded
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.study.command import fit_command
from lightning_tfm.study.gains import BASE, gains
from lightning_tfm.study.study import Search, folder_of, load_as
from lightning_tfm.watch.run_state import Curve

STATES = {"complete": "finished", "pruned": "stopped early", "fail": "failed", "running": "running"}
SCHEMA = 1


@dataclass(frozen=True)
class SearchReport:
    """What a search's report says."""

    summary: SearchSummary
    root: Path | None

    def render(self, kind: str, texts: bool = True, live: str = "", link: Link = nowhere) -> str:
        """As html, markdown, csv or json. It shows no line of the corpus, whatever `texts` says. Raises UserError."""
        match kind:
            case "html":
                return page(self.summary, live, self._linked(link))
            case "markdown":
                return to_markdown(blocks(self.summary))
            case "csv":
                return to_csv(data(self.summary))
            case "json":
                return to_json(self.summary)
        raise self._no_table(kind)

    def _linked(self, link: Link) -> Callable[[str], str]:
        """From the name of a run to where `link` leads."""
        root = self.root
        return lambda run: link(RunFolder(root, run).path) if root and run else ""

    def latex(self, layout: Layout) -> str:
        """Raises UserError."""
        raise self._no_table("latex")

    def _no_table(self, kind: str) -> UserError:
        return UserError(f"--format={kind}: a search has no table in the paper's layout; html, markdown, csv or json")


def make(name: str, root: Path) -> SearchReport:
    """The report of the search `name`. Raises UserError where its records are missing or broken."""
    folder = folder_of(root, name)
    trials, importance = folder / "trials.json", folder / "importance.json"
    search = load_as(Search, root, name)
    return of_trials(search, _read(trials, name), _read(importance, name), folder, root)


def of_trials(
    search: Search,
    trials: list[dict[str, Any]],
    importance: list[dict[str, Any]],
    folder: Path = Path(),
    root: Path | None = None,
) -> SearchReport:
    """The report of a search from what its trials.json and importance.json (in `folder`) hold. Raises UserError.

    `root`: where its runs are, with their curves.
    """
    names = [parameter.name for parameter in search.space]
    lines = [_line(search, trial, names, folder / "trials.json") for trial in trials]
    lines = [replace(line, curve=_curve(root, line.run)) for line in lines]
    leading = best(lines, search.objectives)
    values = {t.trial: [v for v in t.values.values() if v is not None] for t in lines if None not in t.values.values()}
    return SearchReport(
        rounded(
            SearchSummary(
                schema=SCHEMA,
                kind="search",
                study=search.name,
                corpus=search.base.data.corpus,
                languages=list(search.base.data.languages),
                sampler=search.sampler,
                pruner=search.pruner.type,
                asked=search.trials,
                objectives=search.objectives,
                constraints=search.constraints,
                space=search.space,
                states={word: sum(line.state == word for line in lines) for word in STATES.values()},
                best=leading,
                gains=gains(
                    search.objectives,
                    search.based,
                    values.get(BASE),
                    {name: values[name] for name in leading},
                    {t.trial: {aim: list(v.values()) for aim, v in t.by_seed.items()} for t in lines if t.by_seed},
                ),
                importance=_importance(importance, folder / "importance.json"),
                trials=lines,
                seeds=search.trial_seeds if len(search.trial_seeds) > 1 else None,
                ties={key: str(next(iter(tie.values()))) for key, tie in search.ties.items()} or None,
            )
        ),
        root,
    )


def _read(path: Path, name: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the search '{name}' has not got that far yet") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a record of a search ({error})") from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UserError(f"{path}: not a record of a search")
    return found


def _line(search: Search, trial: dict[str, Any], names: list[str], path: Path) -> Trial:
    try:
        change = {name: trial[name] for name in names}
        return Trial(
            trial=str(trial["trial"]),
            state=STATES.get(trial["state"], str(trial["state"])),
            change=change,
            values={name: _finite(trial[name]) for name in search.objectives},
            steps_seen=trial["steps_seen"],
            run=str(trial["run"]),
            feasible=bool(trial["feasible"]),
            reason=str(trial["reason"]),
            command=fit_command(search.of(str(trial["trial"]), dict(change))),
            by_seed=_by_seed(search, trial),
            tied={key: trial[key] for key in search.ties} or None,
        )
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: a trial is malformed ({type(error).__name__}: {error})") from None


def _curve(root: Path | None, run: str) -> list[tuple[int, float]]:
    return list(Curve.of(RunFolder(root, run).path).validations.items()) if root and run else []


def _by_seed(search: Search, trial: dict[str, Any]) -> dict[str, dict[str, float]] | None:
    """objective -> seed -> value of a finished trial of several seeds."""
    if len(search.trial_seeds) < 2:
        return None
    found = {aim: {str(s): trial[f"{aim} seed {s}"] for s in search.trial_seeds} for aim in search.objectives}
    return found if all(v is not None for values in found.values() for v in values.values()) else None


def _importance(records: list[dict[str, Any]], path: Path) -> list[Importance]:
    found = []
    for record in records:
        try:
            shares = record.get("importance")
            known = None if shares is None else {str(key): float(share) for key, share in shares.items()}
            why = None if record.get("why not") is None else str(record["why not"])
            found.append(Importance(str(record["objective"]), record["trials"], record["stopped"], why, known))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: an importance is malformed ({type(error).__name__}: {error})") from None
    return found


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def best(lines: list[Trial], objectives: Mapping[str, str]) -> list[str]:
    """The best finished trial that keeps the limits; with several objectives the Pareto front."""
    done = [line for line in lines if line.state == "finished" and line.feasible and _losses(line, objectives)]
    losses = {line.trial: _losses(line, objectives) for line in done}
    if len(objectives) == 1:
        return sorted(losses, key=lambda name: (losses[name], name))[:1]
    return [
        name
        for name, own in losses.items()
        if not any(o != own and all(a <= b for a, b in zip(o, own, strict=True)) for o in losses.values())
    ]


def _losses(line: Trial, objectives: Mapping[str, str]) -> list[float]:
    """The smaller the better; empty where a value is missing."""
    values = [(line.values[name], direction) for name, direction in objectives.items()]
    known = [(value, direction) for value, direction in values if value is not None]
    if len(known) < len(values):
        return []
    return [value if direction == "minimize" else -value for value, direction in known]


def data(report: SearchSummary) -> list[dict[str, object]]:
    """A line for each trial, at full precision."""
    return [
        {
            **{"trial": t.trial, "state": t.state},
            **set_of(t),
            **t.values,
            **{f"{aim} sd": t.sd(aim) for aim in report.objectives if report.seeds},
            **{
                f"{aim} seed {seed}": (t.by_seed or {}).get(aim, {}).get(str(seed))
                for aim in report.objectives
                for seed in report.seeds or ()
            },
            **{"steps seen": t.steps_seen, "feasible": t.feasible, "run": t.run, "reason": t.reason},
        }
        for t in report.trials
    ]


def blocks(report: SearchSummary) -> list[Block]:
    """The trials, the best first, and what mattered."""
    names, aims = [*(p.name for p in report.space), *(report.ties or {})], list(report.objectives)
    rows = []
    for t in sorted(report.trials, key=lambda t: (t.trial not in report.best, t.trial)):
        scores = [_word(t.values[aim]) + ("" if (sd := t.sd(aim)) is None else f" ± {sd:.2g}") for aim in aims]
        rows.append([t.trial, t.state, *(_word(set_of(t)[name]) for name in names), *scores])
    notes = [f"best: {', '.join(report.best) or 'none yet'}", *conditions(report), *report.gains]
    for record in report.importance:
        parts = record.why_not or ", ".join(f"{k} {v:.0%}" for k, v in (record.importance or {}).items())
        notes.append(f"importance for {record.objective} on {record.trials} finished trials: {parts}")
    return [Table("", columns("trial", "state", *names, *aims, words=["state"]), rows), Notes(notes)]


def set_of(t: Trial) -> dict[str, Any]:
    """What the trial sets: what was sampled, and what follows it."""
    return t.change | (t.tied or {})


def conditions(report: SearchSummary) -> list[str]:
    """What holds for all trials, in words; nothing where each is one run and all parameters are sampled."""
    found = [f"{key} is not sampled, it follows: {tie}" for key, tie in (report.ties or {}).items()]
    if report.seeds:
        seeds = ", ".join(map(str, report.seeds))
        found.append(f"every trial is {len(report.seeds)} runs, at seeds {seeds}: mean ± standard deviation (n-1)")
    return found


def _word(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if _number(value) else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
