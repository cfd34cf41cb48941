"""The queue of a study on Optuna's storage: which cell (row, seed) waits, who works on it, how it ended.

A trial of Optuna is one try at a cell. It is claimed by the storage's own atomic WAITING -> RUNNING, has one owner in
its life and never returns: a try that was lost, handed back or failed is marked FAIL, and a copy is queued. What a
run may write is decided by its folder (`runs/folder.py`), not here; the queue only deals out work.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from lightning_tfm.errors import UserError
from lightning_tfm.queue.storage import Storage
from lightning_tfm.runs.folder import GRACE
from lightning_tfm.runs.outcome import MAY_BE_GONE, RETRIES
from lightning_tfm.runs.process.process_id import ProcessId, this_process
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.search import BASE
from lightning_tfm.watch.study_state import CellState

optuna.logging.set_verbosity(optuna.logging.WARNING)

EXHAUSTED = "exhausted"
"""note in a search's storage: every point of its space has been tried"""
HIDDEN = "dropped"
"""attribute of a trial that ends the cells of a row that left the study"""
PROPOSALS = 200
"""proposals of a search that may be refused in a row"""


Params = tuple[dict[str, Any], dict[str, BaseDistribution]]
"""parameters of a trial as given to Optuna, and their distributions"""


class Duplicate(str):
    """Why a proposal is not run: the study already has that run."""


@dataclass(frozen=True)
class Claim:
    """A cell that this process works on."""

    trial_id: int
    cell: Cell
    attempt: int
    """1 for the first try of the cell"""


class Queue:
    """The cells of one study.

    `storage` is a Storage (`queue/storage.py`); a Queue belongs to one process: open a new one after a fork.
    `say` receives a line that the user should see. `directions` are those of the values passed to `finish`;
    `budget` is how many cells a search makes in all, 0 for a table, whose cells are listed. Without `create` the study
    has to exist. Raises UserError where the storage cannot be used.
    """

    def __init__(
        self,
        name: str,
        storage: Storage,
        say: Callable[[str], None] = print,
        grace: float = GRACE,
        directions: Sequence[str] = ("minimize",),
        budget: int = 0,
        create: bool = True,
    ) -> None:
        self.name, self.budget = name, budget
        self._say = say
        self._exclusive = partial(storage.exclusive, name)
        self._stale_owners = StaleOwners(grace)
        self._storage = storage.open(say)
        self._study_id = self._open(directions, create)._study_id

    def _open(self, directions: Sequence[str], create: bool) -> optuna.Study:
        try:
            study = optuna.load_study(study_name=self.name, storage=self._storage)
        except KeyError:
            if not create:
                raise UserError(
                    f"the storage holds no study '{self.name}': start it with lightning-tfm sweep"
                ) from None
            with self._exclusive():
                wanted = [StudyDirection[direction.upper()] for direction in directions]
                study = optuna.create_study(
                    study_name=self.name, storage=self._storage, directions=wanted, load_if_exists=True
                )
        there = [direction.name.lower() for direction in study.directions]
        if create and there != list(directions):
            raise UserError(
                f"study '{self.name}' in this storage has the objectives {', '.join(there)}, not "
                f"{', '.join(directions)}: choose another name with --name"
            )
        return study

    def study(self, sampler: BaseSampler, pruner: BasePruner) -> optuna.Study:
        """Optuna's view of this study, to ask a sampler or a pruner."""
        return _Study(self.name, self._storage, sampler, pruner)

    def fix(self, trial_id: int, params: dict[str, Any]) -> None:
        """Let a new trial suggest these parameters, as Optuna's enqueue_trial does."""
        self._storage.set_trial_system_attr(trial_id, "fixed_params", params)

    def note(self, key: str, value: Any) -> None:
        """Keep a small value with the study, for workers that share nothing else with us."""
        self._storage.set_study_user_attr(self._study_id, key, value)

    def note_of(self, key: str) -> Any:
        """What `note` kept; None if nothing."""
        return self._storage.get_study_user_attrs(self._study_id).get(key)

    def enqueue(
        self,
        cells: Iterable[Cell],
        has_record: Callable[[str], bool] = lambda training_hash: True,
        params_of: "Callable[[Cell], Params]" = lambda cell: ({}, {}),
    ) -> int:
        """Queue the cells that the study does not hold yet; returns how many. Two launchers at once add each once.

        `params_of(cell)` are the parameters of a cell that Optuna gets, and their distributions.

        A finished cell whose run is gone, `has_record(training_hash)` being False, is queued again. Raises UserError
        where the study holds a cell with another experiment.
        """
        with self._exclusive():
            before = newest(self._trials())
            fresh = [cell for cell in cells if self._is_fresh(cell, before.get((cell.row, cell.seed)), has_record)]
            for cell in fresh:
                self._add(attributes_of(cell), *self._compatible(params_of(cell), before.values()))
        return len(fresh)

    def _is_fresh(self, cell: Cell, trial: FrozenTrial | None, has_record: Callable[[str], bool]) -> bool:
        if trial is None:
            return True
        if trial.user_attrs["run"] != cell.training_hash:
            raise UserError(another_experiment(self.name, cell, trial.user_attrs["run"]))
        return trial.state == TrialState.COMPLETE and not has_record(cell.training_hash)

    def shared_records(self) -> list[tuple[str, dict[str, Any]]]:
        """(training hash, record) of the finished runs whose record is in the storage."""
        done = self._trials(TrialState.COMPLETE)
        return [(t.user_attrs["run"], t.user_attrs["record"]) for t in done if "record" in t.user_attrs]

    def claim(self, skip: Callable[[str], bool] = lambda training_hash: False) -> Claim | None:
        """Take the waiting cell with the longest predicted run; None if `skip(hash)` leaves none."""
        if not self._trials(TrialState.WAITING):
            return None
        with self._exclusive():
            for trial in sorted(self._trials(TrialState.WAITING), key=_turn):
                cell, key = cell_of(trial), trial._trial_id
                if not skip(cell.training_hash):
                    # the name first: a RUNNING trial always says whose death to watch for
                    self._storage.set_trial_user_attr(key, "owner", asdict(this_process()))
                    if self._storage.set_trial_state_values(key, state=TrialState.RUNNING):
                        return Claim(key, cell, trial.user_attrs["attempt"])
        return None

    def begin(self, propose: Callable[[int, int], "Cell | str"]) -> Claim | None:
        """Make a new cell and take it at once; None if the budget is used up.

        `propose(trial_id, number)` sets the parameters of the new trial and returns its cell, or in words why it must
        not run: then it is marked PRUNED, which costs no budget, and the next one is proposed. Raises UserError where
        nothing but such proposals comes.
        """
        with self._exclusive():
            self._drop_unnamed()
            for _ in range(PROPOSALS):
                if self._budget_left() < 1:
                    return None
                key = self._storage.create_new_trial(self._study_id)
                number = self._storage.get_trial(key).number
                cell = propose(key, number)
                if isinstance(cell, Cell):
                    attributes = attributes_of(cell) | {"owner": asdict(this_process())}
                    run = {"run": attributes.pop("run")}  # the last one: by it others know that a trial is whole
                    for name, value in (attributes | run).items():
                        self._storage.set_trial_user_attr(key, name, value)
                    return Claim(key, cell, 1)
                self._storage.set_trial_user_attr(key, "reason", why := cell)
                # a sampler learns nothing from a repeat, but learns a limit from what is above it
                ended = TrialState.FAIL if isinstance(why, Duplicate) else TrialState.PRUNED
                self._storage.set_trial_state_values(key, ended)
        raise UserError(f"study '{self.name}': {PROPOSALS} proposals in a row were refused, the last one: {why}")

    def report(self, claim: Claim, step: int, value: float) -> bool:
        """Report an intermediate value; False where the trial no longer runs. A step once reported keeps its value."""
        trial = self._storage.get_trial(claim.trial_id)
        running = trial.state == TrialState.RUNNING
        if running and step not in trial.intermediate_values:
            self._storage.set_trial_intermediate_value(claim.trial_id, step, value)
        return running

    def trial(self, claim: Claim) -> FrozenTrial:
        """The claim's trial as the storage has it now."""
        return self._storage.get_trial(claim.trial_id)

    def mark(self, claim: Claim, key: str, value: Any) -> bool:
        """Keep a small value with the trial of a claim; False if the claim was lost: it keeps nothing."""
        return _unless_lost(self._storage.set_trial_user_attr, claim.trial_id, key, value)

    def constrain(self, trial_id: int, excess: dict[str, float]) -> None:
        """Report by how much each constraint is exceeded; at most 0 means that it holds."""
        if not excess:
            return
        trial = optuna.Trial(self.study(RandomSampler(), NopPruner()), trial_id)
        with suppress(UpdateFinishedTrialError):
            for key, value in excess.items():
                trial.set_constraint(key, value)

    def prune(self, claim: Claim, reason: str) -> bool:
        """Record that the run was stopped as unpromising; False if the claim was lost meanwhile."""
        trial = self._storage.get_trial(claim.trial_id)
        values = [trial.intermediate_values[trial.last_step]] if trial.last_step is not None else None
        kept = self.mark(claim, "reason", reason)
        return kept and _unless_lost(self._storage.set_trial_state_values, claim.trial_id, TrialState.PRUNED, values)

    def beat(self, claim: Claim) -> bool:
        """Show that this process is alive, every `grace / 4` seconds; False if the claim was lost."""
        return self.mark(claim, "beat", time.time())

    def finish(self, claim: Claim, *values: float) -> bool:
        """Record that the run is finished; False if the claim was lost meanwhile (the new owner will record it)."""
        return _unless_lost(self._storage.set_trial_state_values, claim.trial_id, TrialState.COMPLETE, values)

    def fail(self, claim: Claim, outcome: str, reason: str) -> bool:
        """Record how the try ended and queue the cell again; False if RETRIES is used up, or the claim was lost."""
        with self._exclusive():
            trial = self._storage.get_trial(claim.trial_id)
            return trial.state == TrialState.RUNNING and self._end(trial, outcome, reason)

    def reap(self) -> int:
        """Queue again what dead owners left behind; returns how many cells. Each is taken by exactly one reaper."""
        running = self._trials(TrialState.RUNNING)
        if not any(self._stale_owners.why_abandoned(trial) for trial in running) and not self._orphans():
            return 0
        reaped = 0
        with self._exclusive():
            for trial in self._trials(TrialState.RUNNING):
                why = self._stale_owners.why_abandoned(trial)
                if why:
                    cell = cell_of(trial)
                    again = self._end(trial, "lost", why)
                    self._say(f"{cell.row} seed {cell.seed}: {why}; {'queued again' if again else 'given up'}")
                    reaped += 1
            for trial in self._orphans():
                self._copy(trial)
                reaped += 1
        return reaped

    def retry(self, training_hash: str = "") -> int:
        """Queue the failed cells of a run, or of the study, once more, with fresh RETRIES; returns how many."""
        with self._exclusive():
            trials = [t for t in self._final_failures() if training_hash in ("", t.user_attrs["run"])]
            for trial in trials:
                again = attributes_of(cell_of(trial)) | {"attempt": trial.user_attrs["attempt"] + 1}
                self._add(again, trial.params, trial.distributions)
        return len(trials)

    def retry_once(self) -> list[str]:
        """Queue once more each cell that failed for a cause that may be gone; returns them in words.

        Its tries still count: the same failure ends it at once.
        """
        with self._exclusive():
            again = [t for t in self._final_failures() if t.user_attrs["outcome"] in MAY_BE_GONE]
            for trial in again:
                self._copy(trial)
        return [f"{t.user_attrs['row']}/{t.user_attrs['seed']} ({t.user_attrs['outcome']})" for t in again]

    def failures(self) -> list[tuple[str, Cell]]:
        """Outcome and cell, where it is not tried again by itself."""
        return [(trial.user_attrs["outcome"], cell_of(trial)) for trial in self._final_failures()]

    def _final_failures(self) -> list[FrozenTrial]:
        failed = (t for t in newest(self._trials()).values() if t.state == TrialState.FAIL)
        return [trial for trial in failed if "final" in trial.user_attrs]

    def hide(self, row: str) -> None:
        """Take a row's cells out of the study. Raises UserError while one is being run.

        A finished trial cannot be changed: one is added that hides it.
        """
        self.reap()
        with self._exclusive():
            mine = [trial for (name, _), trial in newest(self._trials()).items() if name == row]
            if busy := [cell_of(trial).seed for trial in mine if trial.state == TrialState.RUNNING]:
                raise UserError(f"study '{self.name}': row {row}, seed {busy[0]} is being trained: stop it first")
            for trial in mine:
                if trial.state == TrialState.WAITING:
                    self._storage.set_trial_user_attr(trial._trial_id, HIDDEN, True)
                    self._storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)
                else:
                    hidden = attributes_of(cell_of(trial)) | {HIDDEN: True}
                    self._storage.create_new_trial(
                        self._study_id, create_trial(state=TrialState.FAIL, user_attrs=hidden)
                    )

    def trials(self) -> list[FrozenTrial]:
        """Everything that Optuna's storage has on this study."""
        return self._storage.get_all_trials(self._study_id, deepcopy=False)

    def states(self) -> list[CellState]:
        """One state for each cell, in the order in which they were queued."""
        return [state_of(trial) for trial in newest(self._trials()).values()]

    def done(self) -> bool:
        """Whether nothing is waiting or running, here or on another machine."""
        open_states = (TrialState.WAITING, TrialState.RUNNING)
        return not self._trials(*open_states) and not self._orphans() and (not self.budget or self._budget_left() < 1)

    def _budget_left(self) -> int:
        """Cells that a search may still make."""
        if self.note_of(EXHAUSTED):
            return 0
        return self.budget - len(newest(self._trials()))

    def _drop_unnamed(self) -> None:
        """End the trials that a process began and did not name before it died; the caller holds the study."""
        for trial in self._storage.get_all_trials(self._study_id, deepcopy=False, states=(TrialState.RUNNING,)):
            if "run" not in trial.user_attrs:
                self._storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False, states=states or None)
        return sorted((t for t in trials if "run" in t.user_attrs), key=lambda t: t.number)

    def _add(
        self, attributes: dict[str, Any], params: dict[str, Any], distributions: dict[str, BaseDistribution]
    ) -> None:
        trial = create_trial(
            state=TrialState.WAITING, user_attrs=attributes, params=params, distributions=distributions
        )
        self._storage.create_new_trial(self._study_id, trial)

    def _compatible(self, wanted: Params, before: Iterable[FrozenTrial]) -> Params:
        """`wanted`, except what Optuna would refuse: lists of values may not grow in a study.

        A parameter keeps its first list; a value that is not in it (a row or seed that was added later) has
        no such parameter. Its row and seed are still among the trial's user attributes.
        """
        params, told = wanted
        first: dict[str, BaseDistribution] = {}
        for trial in before:
            for name, distribution in trial.distributions.items():
                first.setdefault(name, distribution)
        shared = {name: first.get(name, distribution) for name, distribution in told.items()}
        shared = {
            name: d
            for name, d in shared.items()
            if not isinstance(d, CategoricalDistribution) or params[name] in d.choices
        }
        return {name: params[name] for name in shared}, shared

    def _end(self, trial: FrozenTrial, outcome: str, reason: str) -> bool:
        """Mark it FAIL and queue a copy; the caller holds the study. False if RETRIES is used up."""
        tries = dict(trial.user_attrs["tries"])
        tries[outcome] = tries.get(outcome, 0) + 1
        final = outcome in RETRIES and tries[outcome] > RETRIES[outcome]
        ending = {"outcome": outcome, "reason": reason, "tries": tries} | ({"final": True} if final else {})
        try:
            for key, value in ending.items():
                self._storage.set_trial_user_attr(trial._trial_id, key, value)
            self._storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)
        except UpdateFinishedTrialError:  # its owner finished it at this moment
            return True
        if not final:
            self._copy(self._storage.get_trial(trial._trial_id))
        return not final

    def _copy(self, trial: FrozenTrial) -> None:
        own = {"attempt": trial.user_attrs["attempt"] + 1, "tries": trial.user_attrs["tries"], "retry_of": trial.number}
        self._add(attributes_of(cell_of(trial)) | own, trial.params, trial.distributions)

    def _orphans(self) -> list[FrozenTrial]:
        """Failed tries that should have been queued again, by a process that died between the two writes."""
        last = newest(self._trials()).values()
        return [t for t in last if t.state == TrialState.FAIL and "final" not in t.user_attrs]


class _Study(optuna.Study):
    """Without finished trials that have no parameters: of one (a base outside the space), multivariate samplers would
    conclude that no parameter is common to all."""

    def _get_trials(self, deepcopy: bool = True, states: Any = None, use_cache: bool = False) -> list[FrozenTrial]:
        trials = super()._get_trials(deepcopy, states, use_cache)
        return [t for t in trials if t.params or not (t.state.is_finished() and t.user_attrs.get("change"))]


def _unless_lost(write: Callable[..., bool | None], *arguments: Any) -> bool:
    """Whether a write to a trial was taken: one that has ended, whose claim was lost, takes none."""
    try:
        write(*arguments)
    except UpdateFinishedTrialError:
        return False
    return True


def another_experiment(study: str, cell: Cell, there: str) -> str:
    """Why a study cannot take `cell`: its row at its seed is the run `there`."""
    return (
        f"study '{study}' holds row {cell.row}, seed {cell.seed} of another experiment (run {there[:16]}, now "
        f"{cell.training_hash[:16]}): choose another name"
    )


def attributes_of(cell: Cell) -> dict[str, Any]:
    """User attributes of a fresh trial."""
    named = {"row": cell.row, "seed": cell.seed, "run": cell.training_hash, "cost": cell.cost}
    return named | {"change": cell.change, "attempt": 1, "tries": {}}


def cell_of(trial: FrozenTrial) -> Cell:
    a = trial.user_attrs
    more = tuple((seed, run) for seed, run in a.get("more", ()))
    return Cell(a["row"], a["seed"], a["run"], a["cost"], a["change"], more)


def newest(trials: list[FrozenTrial]) -> dict[tuple[str, int], FrozenTrial]:
    """The trial that represents each cell: the last one. Cells of a row that left the study have none."""
    last = {(t.user_attrs["row"], t.user_attrs["seed"]): t for t in trials}
    return {cell: trial for cell, trial in last.items() if HIDDEN not in trial.user_attrs}


def state_of(trial: FrozenTrial) -> CellState:
    a = trial.user_attrs
    names = {TrialState.RUNNING: "running", TrialState.COMPLETE: "finished", TrialState.WAITING: "waiting"}
    names[TrialState.PRUNED] = "stopped early"
    names[TrialState.FAIL] = "failed" if "final" in a else "waiting"
    owner = ProcessId(**a["owner"]) if trial.state == TrialState.RUNNING and "owner" in a else None
    whole = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
    seconds = trial.duration.total_seconds() if whole and trial.duration else None
    values, recorded = tuple(trial.values or ()), "record" in a
    return CellState(
        cell_of(trial), names[trial.state], a.get("reason", ""), owner, a["attempt"], seconds, values, recorded
    )


def _turn(trial: FrozenTrial) -> tuple[bool, float, int]:
    """Order of claims: base of a search, with which others are compared, then the longest runs."""
    a = trial.user_attrs
    return not (a["row"] == BASE and a["change"]), -a["cost"], trial.number


class StaleOwners:
    """Remembers the last heartbeat of each trial, and since when it has been the last. `grace` in seconds."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._beats: dict[int, tuple[Any, float]] = {}

    def why_abandoned(self, trial: FrozenTrial) -> str | None:
        """Why the owner of a RUNNING trial is presumed dead; None if it is not.

        A process on this machine is looked up. Silence is measured by our own clock from when we first saw the last
        heartbeat: clocks of machines differ, and a laptop that slept has not been silent.
        """
        attributes = trial.user_attrs
        owner = ProcessId(**attributes["owner"]) if "owner" in attributes else None
        if owner is not None and owner.gone():
            return f"{owner} is gone"
        sign = (attributes.get("beat"), owner)
        last, since = self._beats.get(trial._trial_id, (None, 0.0))
        if last != sign:
            self._beats[trial._trial_id] = (sign, time.monotonic())
            return None
        if time.monotonic() - since <= self._grace:
            return None
        return f"{owner or 'its unnamed owner'} has been silent for {self._grace:g} s"
