"""The queue of a study on Optuna's storage: which cell (row, seed) waits, who works on it, how it ended.

A trial of Optuna is one try at a cell. It is claimed by the storage's own atomic WAITING -> RUNNING, has one owner in
its life and never goes back: a try that was lost, handed back or failed is told FAIL, and a copy is queued. What a run
may write is decided by its folder (`study/folder.py`), not here; the queue only deals out work.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState, create_trial

from lightning_tfm.errors import UserError
from lightning_tfm.study.folder import GRACE
from lightning_tfm.study.owner import Owner, me
from lightning_tfm.study.storage import Storage

optuna.logging.set_verbosity(optuna.logging.WARNING)

RETRIES = {
    "failed": 2,
    "killed": 2,
    "out_of_memory": 1,
    "disk_full": 1,
    "nan_loss": 0,  # the same run gives the same NaN
    "refused": 0,  # an error that only the user can mend
    "lost": 20,  # the owner died; not the run's fault, but one that takes machines down must end somewhere
}
"""How often a cell is tried again after each outcome; outcomes that are not named are tried again without limit."""


@dataclass(frozen=True)
class Cell:
    """One run of a study: a row at a seed."""

    row: str
    seed: int
    training_hash: str
    cost: float
    """predicted length in any unit: longer runs are started first"""


@dataclass(frozen=True)
class Claim:
    """A cell that this process works on."""

    trial_id: int
    number: int
    cell: Cell
    attempt: int
    """1 for the first try of the cell"""


@dataclass(frozen=True)
class CellState:
    """Where a cell stands."""

    cell: Cell
    state: str
    """waiting, running, done or failed"""
    reason: str
    owner: Owner | None
    attempt: int
    seconds: float | None
    """length of the try that ended with done"""


class Queue:
    """The cells of one study.

    `storage` is a Storage (`study/storage.py`); a Queue belongs to one process: open another one after a fork.
    `say` receives a line for what the user should know. Raises UserError where the storage cannot be used.
    """

    def __init__(self, name: str, storage: Storage, say: Callable[[str], None] = print, grace: float = GRACE) -> None:
        self.name, self.grace = name, grace
        self._say = say
        self._exclusive = storage.exclusive
        self._beats: dict[int, tuple[Any, float]] = {}
        with self._exclusive():
            self._storage = storage.open(say)
            study = optuna.create_study(
                study_name=name, storage=self._storage, direction="minimize", load_if_exists=True
            )
        self._study_id = study._study_id

    def enqueue(self, cells: Iterable[Cell], kept: Callable[[str], bool] = lambda training_hash: True) -> int:
        """Queue the cells that the study does not hold yet; returns how many. Two launchers at once add each once.

        A finished cell whose run is gone, `kept(training_hash)` being False, is queued again. Raises UserError where
        the study holds a cell with another experiment.
        """
        with self._exclusive():
            newest = _newest(self._trials())
            fresh = [cell for cell in cells if self._is_fresh(cell, newest.get((cell.row, cell.seed)), kept)]
            for cell in fresh:
                self._add(_attributes(cell))
        return len(fresh)

    def _is_fresh(self, cell: Cell, trial: FrozenTrial | None, kept: Callable[[str], bool]) -> bool:
        if trial is None:
            return True
        if trial.user_attrs["run"] != cell.training_hash:
            raise UserError(
                f"study '{self.name}' holds row {cell.row}, seed {cell.seed} of another experiment (run "
                f"{trial.user_attrs['run'][:16]}, now {cell.training_hash[:16]}): choose another name"
            )
        return trial.state == TrialState.COMPLETE and not kept(cell.training_hash)

    def claim(self, skip: Callable[[str], bool] = lambda training_hash: False) -> Claim | None:
        """Take the waiting cell with the longest predicted run; None if there is none that `skip(hash)` leaves."""
        if not self._trials(TrialState.WAITING):
            return None
        with self._exclusive():
            for trial in sorted(self._trials(TrialState.WAITING), key=lambda t: (-t.user_attrs["cost"], t.number)):
                cell, key = _cell(trial), trial._trial_id
                if not skip(cell.training_hash):
                    # the name first: a trial that is RUNNING always says whose death to look out for
                    self._storage.set_trial_user_attr(key, "owner", me().to_dict())
                    if self._storage.set_trial_state_values(key, state=TrialState.RUNNING):
                        return Claim(key, trial.number, cell, trial.user_attrs["attempt"])
        return None

    def beat(self, claim: Claim) -> bool:
        """Show that this process is alive, every `grace / 4` seconds; False if the claim was lost."""
        try:
            self._storage.set_trial_user_attr(claim.trial_id, "beat", time.time())
        except UpdateFinishedTrialError:
            return False
        return True

    def finish(self, claim: Claim, value: float) -> bool:
        """Record that the run is finished; False if the claim was lost meanwhile (the new owner will record it)."""
        try:
            self._storage.set_trial_state_values(claim.trial_id, TrialState.COMPLETE, [value])
        except UpdateFinishedTrialError:
            return False
        return True

    def fail(self, claim: Claim, outcome: str, reason: str) -> bool:
        """Record how the try ended and queue the cell again; False if RETRIES is used up, or the claim was lost."""
        with self._exclusive():
            trial = self._storage.get_trial(claim.trial_id)
            return trial.state == TrialState.RUNNING and self._end(trial, outcome, reason)

    def give_back(self, claim: Claim, outcome: str = "interrupted", reason: str = "handed back") -> None:
        """Queue the cell again for whoever comes next."""
        self.fail(claim, outcome, reason)

    def reap(self) -> int:
        """Queue again what dead owners left behind; returns how many cells. Each is taken by exactly one reaper."""
        if not any(self._abandoned(trial) for trial in self._trials(TrialState.RUNNING)) and not self._orphans():
            return 0
        reaped = 0
        with self._exclusive():
            for trial in self._trials(TrialState.RUNNING):
                why = self._abandoned(trial)
                if why:
                    cell = _cell(trial)
                    again = self._end(trial, "lost", why)
                    self._say(f"{cell.row} seed {cell.seed}: {why}; {'queued again' if again else 'given up'}")
                    reaped += 1
            for trial in self._orphans():
                self._copy(trial)
                reaped += 1
        return reaped

    def retry(self, training_hash: str) -> int:
        """Queue the failed cells of a run once more, with fresh RETRIES; returns how many."""
        with self._exclusive():
            failed = [t for t in _newest(self._trials()).values() if t.state == TrialState.FAIL]
            mine = [t for t in failed if t.user_attrs["run"] == training_hash and "final" in t.user_attrs]
            for trial in mine:
                self._add(_attributes(_cell(trial)) | {"attempt": trial.user_attrs["attempt"] + 1})
        return len(mine)

    def states(self) -> list[CellState]:
        """One state for each cell, in the order in which they were queued."""
        return [_state(trial) for trial in _newest(self._trials()).values()]

    def done(self) -> bool:
        """Whether nothing waits or runs any more, here or on another machine."""
        open_states = (TrialState.WAITING, TrialState.RUNNING)
        return not self._trials(*open_states) and not self._orphans()

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False, states=states or None)
        return sorted((t for t in trials if "run" in t.user_attrs), key=lambda t: t.number)

    def _add(self, attributes: dict[str, Any]) -> None:
        self._storage.create_new_trial(self._study_id, create_trial(state=TrialState.WAITING, user_attrs=attributes))

    def _end(self, trial: FrozenTrial, outcome: str, reason: str) -> bool:
        """Tell FAIL and queue a copy; the caller holds the study. False if RETRIES is used up."""
        tries = dict(trial.user_attrs["tries"])
        tries[outcome] = tries.get(outcome, 0) + 1
        final = outcome in RETRIES and tries[outcome] > RETRIES[outcome]
        ending = {"outcome": outcome, "reason": reason, "tries": tries} | ({"final": True} if final else {})
        try:
            for key, value in ending.items():
                self._storage.set_trial_user_attr(trial._trial_id, key, value)
            self._storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)
        except UpdateFinishedTrialError:  # its owner finished it in this moment
            return True
        if not final:
            self._copy(self._storage.get_trial(trial._trial_id))
        return not final

    def _copy(self, trial: FrozenTrial) -> None:
        again = _attributes(_cell(trial)) | {
            "attempt": trial.user_attrs["attempt"] + 1,
            "tries": trial.user_attrs["tries"],
            "retry_of": trial.number,
        }
        self._add(again)

    def _orphans(self) -> list[FrozenTrial]:
        """Failed tries that should have been queued again, by a process that died between the two writes."""
        newest = _newest(self._trials()).values()
        return [t for t in newest if t.state == TrialState.FAIL and "final" not in t.user_attrs]

    def _abandoned(self, trial: FrozenTrial) -> str | None:
        """Why the owner of a RUNNING trial is taken for dead; None if it is not.

        A process on this machine is looked up. Silence is measured by our own clock from when we first saw the last
        heartbeat: clocks of machines differ, and a laptop that slept has not been silent.
        """
        attributes = trial.user_attrs
        owner = Owner(**attributes["owner"]) if "owner" in attributes else None
        if owner is not None and owner.gone():
            return f"{owner} is gone"
        sign = (attributes.get("beat"), owner)
        seen, since = self._beats.get(trial._trial_id, (None, 0.0))
        if seen != sign:
            self._beats[trial._trial_id] = (sign, time.monotonic())
            return None
        if time.monotonic() - since <= self.grace:
            return None
        return f"{owner or 'its unnamed owner'} has been silent for {self.grace:g} s"


def _attributes(cell: Cell) -> dict[str, Any]:
    """User attributes of a fresh trial."""
    named = {"row": cell.row, "seed": cell.seed, "run": cell.training_hash, "cost": cell.cost}
    return named | {"attempt": 1, "tries": {}}


def _cell(trial: FrozenTrial) -> Cell:
    a = trial.user_attrs
    return Cell(a["row"], a["seed"], a["run"], a["cost"])


def _newest(trials: list[FrozenTrial]) -> dict[tuple[str, int], FrozenTrial]:
    """The trial that speaks for each cell: the last one."""
    return {(t.user_attrs["row"], t.user_attrs["seed"]): t for t in trials}


def _state(trial: FrozenTrial) -> CellState:
    a = trial.user_attrs
    names = {TrialState.RUNNING: "running", TrialState.COMPLETE: "done", TrialState.WAITING: "waiting"}
    names[TrialState.FAIL] = "failed" if "final" in a else "waiting"
    owner = Owner(**a["owner"]) if trial.state == TrialState.RUNNING and "owner" in a else None
    seconds = trial.duration.total_seconds() if trial.state == TrialState.COMPLETE and trial.duration else None
    return CellState(_cell(trial), names[trial.state], a.get("reason", ""), owner, a["attempt"], seconds)
