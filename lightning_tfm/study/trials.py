"""The trials of a search and what mattered in it: trials.json and importance.json, as they are written and read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any

from lightning_tfm.config import typed_and_trained
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import numeral
from lightning_tfm.schema import OPTIONAL, Flaw, Kept, make_from, read_kept
from lightning_tfm.study.command import fit_command
from lightning_tfm.study.search import BASE, Search

STATES = {"complete": "finished", "pruned": "stopped early", "fail": "failed", "running": "running"}
"""Optuna's word for a state, as in trials.json -> ours"""


@dataclass(frozen=True)
class Trial:
    """One run of a search."""

    trial: str
    state: str
    change: dict[str, Any]
    """dotted keys and values at the paper's scale"""
    values: dict[str, float | None]
    """by objective; None if the trial has none"""
    steps_seen: int | None = field(metadata={"key": "steps_seen"})
    """last optimizer step that reported a dev perplexity"""
    run: str
    feasible: bool
    """within the limits"""
    reason: str
    command: str
    """that trains only it again, at the first of its seeds"""
    by_seed: dict[str, dict[str, float]] | None = field(default=None, metadata=OPTIONAL)
    """objective -> seed -> value, if trials have several seeds and `values` are means"""
    tied: dict[str, Any] | None = field(default=None, metadata=OPTIONAL)
    """the values of the tied parameters"""
    trained: dict[str, Any] = field(default_factory=dict, metadata={"key": ""})
    """of `sets`, what a miniature divides, at the size that is trained"""
    curve: list[tuple[int, float]] = field(default_factory=list, metadata={"key": ""})
    """(step, dev perplexity) of its run, or that at the first of its seeds, if that is here"""

    @property
    def sets(self) -> dict[str, Any]:
        """What was sampled, and what follows it."""
        return self.change | (self.tied or {})

    def in_words(self, key: str) -> str:
        """One of `sets` as it is typed, with what is trained in brackets."""
        typed = self.sets[key]
        word = f"{typed:.4g}" if isinstance(typed, float) else typed
        return typed_and_trained(word, self.trained.get(key, word))

    def sd(self, objective: str) -> float | None:
        """Over the seeds (n-1); None below two."""
        values = (self.by_seed or {}).get(objective, {})
        return stdev(values.values()) if len(values) > 1 else None

    def seeds(self, search: Search) -> dict[str, float | None]:
        """ "NAME sd" and "NAME seed S" of every objective, where trials have several seeds."""
        line: dict[str, float | None] = {}
        for aim in search.objectives if len(search.trial_seeds) > 1 else ():
            values = (self.by_seed or {}).get(aim, {})
            line |= {f"{aim} sd": self.sd(aim)} | {f"{aim} seed {s}": values.get(str(s)) for s in search.trial_seeds}
        return line

    def to_line(self, search: Search) -> dict[str, Any]:
        """Its entry in trials.json."""
        state = {ours: word for word, ours in STATES.items()}.get(self.state, self.state)
        line = {"trial": self.trial, "state": state} | self.sets | self.values | self.seeds(search)
        return line | {name: getattr(self, name) for name in ("steps_seen", "run", "feasible", "reason")}

    @classmethod
    def of_line(cls, search: Search, line: Mapping[str, Any]) -> "Trial":
        """The trial of an entry. Raises KeyError, TypeError."""
        name, change = str(line["trial"]), {p.name: line[p.name] for p in search.space}
        by_seed = {}
        if len(search.trial_seeds) > 1:
            by_seed = {aim: {str(s): line[f"{aim} seed {s}"] for s in search.trial_seeds} for aim in search.objectives}
        whole = all(value is not None for values in by_seed.values() for value in values.values())
        return cls(
            trial=name,
            state=STATES.get(line["state"], str(line["state"])),
            change=change,
            values={aim: finite(line[aim]) for aim in search.objectives},
            steps_seen=line["steps_seen"],
            run=str(line["run"]),
            feasible=bool(line["feasible"]),
            reason=str(line["reason"]),
            command=fit_command(search.of(name, change)),
            by_seed=(by_seed or None) if whole else None,
            tied={key: line[key] for key in search.ties} or None,
            trained=search.trained(name, change),
        )


def finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


@dataclass(frozen=True)
class Importance(Kept):
    """What each parameter explains of an objective, or why that is unknown."""

    objective: str
    trials: int
    """finished ones that it rests on"""
    stopped: int
    """left out of it"""
    why_not: str | None = field(default=None, metadata=OPTIONAL)
    importance: dict[str, float] | None = field(default=None, metadata=OPTIONAL)
    """share of each parameter, the largest first"""

    def to_line(self) -> dict[str, Any]:
        """Its entry in importance.json."""
        return {key.replace("_", " "): value for key, value in vars(self).items() if value is not None}

    @classmethod
    def of_line(cls, line: Mapping[str, Any], path: object) -> "Importance":
        """The importance of an entry of `path`. Raises UserError."""
        try:
            return make_from(cls, {key.replace(" ", "_"): value for key, value in line.items()})
        except Flaw as flaw:
            raise UserError(f"{path}: an importance is malformed ({flaw})") from None


def read_trials(search: Search, folder: Path) -> tuple[list[Trial], list[Importance]]:
    """What trials.json and importance.json of its folder hold. Raises UserError: missing or broken."""
    trials, mattered = folder / "trials.json", folder / "importance.json"
    try:
        kept = [Trial.of_line(search, line) for line in _read_lines(trials, search)]
    except (KeyError, TypeError) as error:
        raise UserError(f"{trials}: a trial is malformed ({type(error).__name__}: {error})") from None
    return kept, [Importance.of_line(line, mattered) for line in _read_lines(mattered, search)]


def _read_lines(path: Path, search: Search) -> list[dict[str, Any]]:
    lines = read_kept(list[dict[str, Any]], path, "a record of a search")
    if lines is None:
        raise UserError(f"{path} is missing: the search '{search.name}' has not got that far yet")
    return lines


def best(trials: Sequence[Trial], objectives: Mapping[str, str]) -> list[str]:
    """The best finished trial that keeps the limits; with several objectives the Pareto front."""
    signs = {aim: 1 if direction == "minimize" else -1 for aim, direction in objectives.items()}
    done = [t for t in trials if t.state == "finished" and t.feasible and None not in t.values.values()]
    losses = {t.trial: [sign * (t.values[aim] or 0.0) for aim, sign in signs.items()] for t in done}
    if len(signs) == 1:
        return sorted(losses, key=lambda name: (losses[name], name))[:1]
    return [
        name
        for name, own in losses.items()
        if not any(o != own and all(a <= b for a, b in zip(o, own, strict=True)) for o in losses.values())
    ]


def gain_lines(search: Search, trials: Sequence[Trial], leading: Sequence[str]) -> list[str]:
    """One phrase for each of the `leading` trials but base: by how much it beats base in each objective.

    With an interval where trials have several seeds.
    """
    if not search.based:
        return ["started before base was the first run of a search: no base to compare with"]
    by_name = {t.trial: t for t in trials if None not in t.values.values()}
    base = by_name.get(BASE)
    if base is None:
        return ["base has no result yet to compare with"]
    if list(leading) == [BASE]:
        return ["no trial beats base"]
    lines, several = [], any(t.by_seed for t in trials)
    above = "" if base.feasible else ", which is above a limit"
    for trial in (by_name[name] for name in leading if name != BASE):
        parts = []
        for aim, direction in search.objectives.items():
            mine, theirs = trial.values[aim], base.values[aim]
            assert mine is not None and theirs is not None
            gain = theirs - mine if direction == "minimize" else mine - theirs
            share = f" ({100 * abs(gain / theirs):.1f} %)" if theirs else ""
            verb = "better" if gain > 0 else "worse" if gain < 0 else "different"
            parts.append(f"{aim} {abs(gain):.4g}{share} {verb} than base's {theirs:.4g}{above}")
            if trial.by_seed and base.by_seed and (ends := _interval(trial.by_seed[aim], base.by_seed[aim])):
                ordered = sorted((-x for x in ends) if direction == "minimize" else ends)
                interval = ", ".join(numeral(end, "+z.3g") for end in ordered)
                parts[-1] += f", the gain's 95 % interval over these seeds [{interval}]"
        lines.append(f"{trial.trial}: {', '.join(parts)}")
    if several and leading:
        lines.append("the best was chosen by these seeds, which flatters it: at others expect less")
    return lines


def _interval(by_seed: Mapping[str, float], of_base: Mapping[str, float]) -> tuple[float, float] | None:
    """95 % of the difference of two means, by Welch's t (1947); None if a side has one seed, or neither varies."""
    mine, theirs = list(by_seed.values()), list(of_base.values())
    if min(len(mine), len(theirs)) < 2:
        return None
    from scipy.special import stdtrit

    a, b = variance(mine) / len(mine), variance(theirs) / len(theirs)
    if a + b == 0:
        return None
    df = (a + b) ** 2 / (a**2 / (len(mine) - 1) + b**2 / (len(theirs) - 1))
    gap, half = fmean(mine) - fmean(theirs), -float(stdtrit(df, 0.025)) * math.sqrt(a + b)
    return gap - half, gap + half
