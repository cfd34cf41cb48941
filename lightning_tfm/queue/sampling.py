"""What a worker asks about the trials of a study. Those of a search are Optuna's to propose and to prune.

Only a worker calls this. Training sees neither a trial nor a storage: it writes dev perplexities into metrics.jsonl and
looks for a request to stop (`RunFolder.ask_to_stop`), so that pruning works under DDP and with every storage.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler

from lightning_tfm.keys import key
from lightning_tfm.queue.queue import Claim, Queue
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import LastWords, RunRecord
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.study import Search, Study

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


def grid_distributions(study: Study) -> dict[str, BaseDistribution]:
    """What Optuna is told of the parameters that listed cells change; nothing for an ablation."""
    listed = study.space if isinstance(study, Search) and not study.budget else []
    return {parameter.name: CategoricalDistribution(parameter.listed or []) for parameter in listed}


def draw(search: Search, count: int) -> list[dict[str, Any]]:
    """Points of the space, drawn at random, that keep the limits; fewer where hardly any does."""
    study = optuna.create_study(sampler=RandomSampler(seed=search.seed))
    found: list[dict[str, Any]] = []
    for _ in range(20 * count):
        if len(found) == count:
            break
        trial = study.ask()
        change = {parameter.name: parameter.suggest(trial) for parameter in search.space}
        if all(value <= 0 for value in search.excess(change).values()):
            found.append(change)
    return found


class Trials:
    """The trials of an ablation: all are listed, each runs to its end and reports its dev perplexity."""

    def propose(self) -> Claim | None:
        """Begin the next trial; None where a sampler has none to make. Raises UserError."""
        return None

    def watch(self, claim: Claim, folder: RunFolder, pid: int) -> None:
        """Look at the record of a run that process `pid` trains, and ask it to stop if it is unpromising."""

    def finish(self, claim: Claim, folder: RunFolder, record: RunRecord) -> None:
        """Report what a finished run shows beside its values."""

    def values(self, record: RunRecord) -> tuple[float, ...]:
        """What is reported of a finished run, in the order of the study's directions."""
        return (record.measured("dev/ppl"),)


def trials_of(study: Study, queue: Queue, first_validation: int) -> Trials:
    """The trials of `study`, for one worker; its runs validate first at optimizer step `first_validation`."""
    return SearchTrials(study, queue, first_validation) if isinstance(study, Search) else Trials()


@dataclass
class SearchTrials(Trials):
    """The trials of a search: a sampler makes them, a pruner stops the unpromising ones."""

    search: Search
    queue: Queue
    first_validation: int
    """optimizer step"""
    _pruned: dict[int, int] = field(default_factory=dict)
    """trial id -> step whose value decided"""
    _told: dict[int, set[int]] = field(default_factory=dict)
    """trial id -> steps that have been reported"""

    def propose(self) -> Claim | None:
        if not self.search.budget:
            return None
        if self.search.sampler == "gp":
            import torch

            torch.set_num_threads(1)  # OpenMP's threads would not survive the fork of the run
        return self.queue.begin(self._fill)

    def _fill(self, trial_id: int, number: int) -> Cell | str:
        sampler = make_sampler(self.search.sampler, self.search.seed, number)
        study = self.queue.study(sampler, make_pruner(self.search, self.first_validation))
        study.get_trials(deepcopy=False)  # Optuna's cache over a database takes parameters of trials that it has read
        trial = optuna.Trial(study, trial_id)
        change = {parameter.name: parameter.suggest(trial) for parameter in self.search.space}
        excess = self.search.excess(change)
        self.queue.constrain(trial_id, excess)
        missed = [f"{name} is {value:,.0f} above its limit" for name, value in excess.items() if value > 0]
        return ", ".join(missed) if missed else self.search.cell(number, change)

    def watch(self, claim: Claim, folder: RunFolder, pid: int) -> None:
        if self.search.pruner.type == "none" or claim.trial_id in self._pruned:
            return
        for step in self._report(claim, folder):
            if folder.ask_to_stop(pid):
                self._pruned[claim.trial_id] = step
                self.queue.mark(claim, "pruned_by", step)
            return

    def _report(self, claim: Claim, folder: RunFolder) -> Iterator[int]:
        """Report new dev perplexities; yields the steps after which the run is unpromising."""
        told = self._told.setdefault(claim.trial_id, set())
        fresh = {r["step"]: r["dev_ppl"] for r in folder.read_metrics() if "dev_ppl" in r and r["step"] not in told}
        for step, value in fresh.items():
            if not math.isnan(value) and self.queue.report(claim, step, value):
                if self._study.pruner.prune(self._study, self.queue.trial(claim)):
                    yield step
            told.add(step)

    def pruned_reason(self, claim: Claim, outcome: LastWords | None) -> str:
        """Why and where a run was pruned, for its trial."""
        step = self._pruned.get(claim.trial_id)
        stopped = outcome.step if outcome else None
        self.queue.mark(claim, "stopped_at", stopped)
        return f"{self.search.pruner.type} at step {step}; stopped after step {stopped}"

    def finish(self, claim: Claim, folder: RunFolder, record: RunRecord) -> None:
        # what was not reported yet: the last perplexities, which others are compared with, and limits only now known
        if self.search.pruner.type != "none":
            for _ in self._report(claim, folder):
                pass  # too late to stop it
        limits = self.search.constraints
        excess = {name: record.measured(name) - limit for name, limit in limits.items() if name != "parameters"}
        self.queue.constrain(claim.trial_id, excess)

    def values(self, record: RunRecord) -> tuple[float, ...]:
        return tuple(record.measured(name) for name in self.search.objectives)

    @cached_property
    def _study(self) -> optuna.Study:
        return self.queue.study(RandomSampler(), make_pruner(self.search, self.first_validation))
