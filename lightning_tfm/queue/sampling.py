"""What a pool asks about the trials of a search, which Optuna proposes and prunes.

Only a pool calls this. Training sees neither a trial nor a storage: it writes dev perplexities into metrics.jsonl and
looks for a request to stop (`RunFolder.ask_to_stop`), so that pruning works under DDP and with every storage.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler

from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import EXHAUSTED, Claim, Duplicate, Params, Queue, cell_of
from lightning_tfm.rng import key
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Outcome, RunRecord
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.search import BASE, Search
from lightning_tfm.study.space import Parameter
from lightning_tfm.study.study import Ablation, Study, value_of
from lightning_tfm.watch.run_state import Curve
from lightning_tfm.watch.study_state import value_of_aim

REPEATS = 5
"""repeated proposals in a row after which an untried point is taken where they can be listed"""

warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def make_sampler(name: str, seed: int, number: int) -> BaseSampler:
    """A sampler for one proposal. Its numbers depend on (seed, trial number): workers never repeat one another's."""
    drawn = int(key("sampler", seed, number)[0] % np.uint64(2**31))
    match name:
        case "tpe":
            return TPESampler(seed=drawn, multivariate=True, constant_liar=True)
        case "gp":
            return GPSampler(seed=drawn, deterministic_objective=False)
        case "cmaes":
            return CmaEsSampler(seed=drawn, warn_independent_sampling=False)
        case _:
            return RandomSampler(seed=drawn)


def make_pruner(search: Search, first_validation: int) -> BasePruner:
    """The pruner on optimizer steps; its first look is at `min_step`, or at the first validation."""
    pruner = search.pruner
    first = max(pruner.min_step, first_validation)
    match pruner.type:
        case "asha":
            return SuccessiveHalvingPruner(min_resource=first, reduction_factor=pruner.eta)
        case "hyperband":
            last = search.base.scaled().training.steps
            return HyperbandPruner(min_resource=first, max_resource=max(first, last), reduction_factor=pruner.eta)
        case "median":
            return MedianPruner(n_startup_trials=pruner.startup, n_warmup_steps=first - 1)
        case _:
            return NopPruner()


def optuna_params(study: Study) -> Callable[[Cell], Params]:
    """What Optuna, and optuna-dashboard, gets as parameters of each listed cell of a study."""
    if isinstance(study, Search):
        return _of_search(study)
    return _of_table(study) if isinstance(study, Ablation) and study.rows else lambda cell: ({}, {})


def _of_table(table: Ablation) -> Callable[[Cell], Params]:
    """Row, seed, and every field that a row changes: base's value in rows that do not change it."""
    changes = {row.name: row.change for row in table.rows}
    fields = list(dict.fromkeys(key for change in changes.values() for key in change))
    base = {key: value_of(table.base, key) for key in fields}
    rows = {name: {"row": name} | base | change for name, change in changes.items()}
    values = {
        key: {repr(row[key]): row[key] for row in rows.values()} for key in ("row", *fields)
    }  # 1 and True are two
    told: dict[str, BaseDistribution] = {key: CategoricalDistribution([*v.values()]) for key, v in values.items()}
    told["seed"] = CategoricalDistribution(table.seeds or [0])

    def of(cell: Cell) -> Params:
        return (rows[cell.row] | {"seed": cell.seed}, told) if cell.row in rows else ({}, {})

    return of


def _of_search(search: Search) -> Callable[[Cell], Params]:
    """The searched parameters; nothing for a base outside the space."""
    told = {p.name: _distribution(p, bool(search.budget)) for p in search.space}

    def of(cell: Cell) -> Params:
        inside = all(_holds(told[name], value) for name, value in cell.change.items())
        return (cell.change, told) if inside else ({}, {})

    return of


def _distribution(p: Parameter, sampled: bool) -> BaseDistribution:
    """As in `Parameter.suggest`; the lists of a grid."""
    if not sampled or p.distribution == "categorical":
        return CategoricalDistribution(p.listed or [])
    if p.distribution == "int_uniform":
        return IntDistribution(int(p.low), int(p.high))
    log = p.distribution == "log_uniform_values"
    return FloatDistribution(p.low, p.high, log=log, step=p.step or None)


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    return distribution._contains(distribution.to_internal_repr(value))


def draw(search: Search, count: int) -> list[dict[str, Any]]:
    """Points of the space, drawn at random, that keep the limits; fewer where hardly any do."""
    study = optuna.create_study(sampler=RandomSampler(seed=search.seed))
    points: list[dict[str, Any]] = []
    for _ in range(20 * count):
        if len(points) == count:
            break
        trial = study.ask()
        change = {parameter.name: parameter.suggest(trial) for parameter in search.space}
        if not search.misses(change):
            points.append(change)
    return points


@dataclass
class SearchTrials:
    """The trials of a search, for one pool: a sampler makes them, a pruner stops the unpromising ones."""

    search: Search
    queue: Queue
    first_validation: int
    """optimizer step at which its runs do"""
    _repeats: int = 0
    """proposals in a row that had already been tried"""
    _pruned: dict[int, int] = field(default_factory=dict)
    """trial id -> step whose value decided"""
    _reported: dict[int, set[int]] = field(default_factory=dict)
    """trial id -> steps that have been reported"""

    def propose(self) -> Claim | None:
        """Begin the next trial; None where the sampler has no more to make. Raises UserError."""
        if not self.search.budget:
            return None
        if self.search.sampler == "gp":
            import torch

            torch.set_num_threads(1)  # OpenMP's threads would not survive the fork of the run
        if self._points == []:
            limits = ", ".join(f"{name} ≤ {limit:,.0f}" for name, limit in self.search.constraints.items())
            why = f"keeps the limits ({limits})" if limits else "gives whole sizes where they are tied"
            raise UserError(f"study '{self.search.name}': no point of its space {why}")
        if self._points_left() == []:
            self.queue.note(EXHAUSTED, True)
            return None
        return self.queue.begin(self._fill)

    def _points_left(self) -> list[dict[str, Any]] | None:
        """Points that the study does not have yet; None where they cannot be listed."""
        if self._points is None:
            return None
        tried = {tuple(state.cell.change.values()) for state in self.queue.states()}
        return [point for point in self._points if tuple(point.values()) not in tried]

    def _fill(self, trial_id: int, number: int) -> Cell | str:
        sampler = make_sampler(self.search.sampler, self.search.seed, number)
        study = self.queue.study(sampler, make_pruner(self.search, self.first_validation))
        study.get_trials(deepcopy=False)  # Optuna's cache over a database uses parameters of trials that it has read
        left = self._points_left() if self._repeats >= REPEATS else None
        if left:  # the sampler does not find a new one by itself
            self.queue.fix(trial_id, left[int(key("untried", self.search.seed, number)[0] % np.uint64(len(left)))])
        trial = optuna.Trial(study, trial_id)
        change = {parameter.name: parameter.suggest(trial) for parameter in self.search.space}
        missed = self.search.misses(change)
        if missed and self.search.ties and "above its limit" not in missed:
            return missed
        self.queue.constrain(trial_id, self.search.excess(change))
        if missed:
            return missed
        cell = self.search.cell(number, change)
        there = {state.cell.training_hash: state.cell.row for state in self.queue.states()}
        if cell.training_hash in there:
            self._repeats += 1
            return Duplicate(f"the same run as {there[cell.training_hash]}")
        self._repeats = 0
        return cell

    def watch(self, claim: Claim, folder: RunFolder, pid: int) -> None:
        """Look at the record of a run that process `pid` trains, and ask it to stop if it is unpromising."""
        if self.search.pruner.type == "none" or claim.trial_id in self._pruned or claim.cell.row == BASE:
            return  # all are compared with base: it runs to its end
        for step in self._report(claim, folder):
            if folder.ask_to_stop(pid):
                self._pruned[claim.trial_id] = step
                self.queue.mark(claim, "pruned_by", step)
            return

    def _report(self, claim: Claim, folder: RunFolder) -> Iterator[int]:
        """Report new dev perplexities; yields the steps after which the run is unpromising."""
        reported = self._reported.setdefault(claim.trial_id, set())
        text = self.search.prints.dev[:16]  # validations from before this search took the run over do not count
        lines = [line for line in Curve.of(folder.path, text=text).lines if "dev_ppl" in line]
        # a rung compares the first value reported at it or later: beyond a step that has none (the run was started
        # elsewhere, or is in progress) one would pass for an earlier one
        every, validated = self.search.validate_every, {r["step"] for r in lines}
        end = next(step for step in count(every, every) if step not in validated) if every else math.inf
        fresh = {r["step"]: r["dev_ppl"] for r in lines if r["step"] not in reported and r["step"] < end}
        # before its own warm-up ends a trial's rate is not yet its own
        first = 0 if self.search.prune_in_warmup else self.search.experiment(claim.cell).scaled().training.warmup
        for step, value in fresh.items():
            if not math.isnan(value) and self.queue.report(claim, step, value):
                # asked within the warm-up, too: a rung keeps the first value that it is shown
                if self._study.pruner.prune(self._study, self.queue.trial(claim)) and step >= first:
                    yield step
            reported.add(step)

    def pruned_reason(self, claim: Claim, outcome: Outcome | None) -> str:
        """Why and where a run was pruned, for its trial."""
        step = self._pruned.get(claim.trial_id)
        stopped = outcome.step if outcome else None
        self.queue.mark(claim, "stopped_at", stopped)
        return f"{self.search.pruner.type} at step {step}; stopped after step {stopped}"

    def finish(self, claim: Claim, folder: RunFolder, record: RunRecord) -> None:
        """Report what a finished trial shows beside its values."""
        # not reported yet: the last perplexities, with which others are compared, and limits known only now
        if self.search.pruner.type != "none":
            for _ in self._report(claim, folder):
                pass  # too late to stop it
        limits = self.search.constraints
        excess = {name: value_of_aim(record, name) - limit for name, limit in limits.items() if name != "parameters"}
        if claim.cell.row == BASE:
            excess |= self.search.excess(claim.cell.change)
        self.queue.constrain(claim.trial_id, excess)

    @cached_property
    def _points(self) -> list[dict[str, Any]] | None:
        return self.search.finite()

    @cached_property
    def _study(self) -> optuna.Study:
        return self.queue.study(RandomSampler(), make_pruner(self.search, self.first_validation))


def warmup_line(search: Search, queue: Queue) -> str:
    """A line where an earlier rule stopped trials of this search inside their own warm-up; empty where none was."""
    if search.prune_in_warmup:
        return ""
    stopped = [(cell_of(t), t.user_attrs["pruned_by"]) for t in queue.trials() if t.user_attrs.get("pruned_by")]
    early = [cell.row for cell, step in stopped if step < search.experiment(cell).scaled().training.warmup]
    rule = "by the rule of an earlier version; from now on no trial is (prune_in_warmup: true keeps that rule)"
    return f"{search.name}: {', '.join(early)}: stopped inside the warm-up {rule}" if early else ""
