"""The studies that a PostgreSQL storage knows of, those of other machines too; read only. Imports Optuna."""

import time
from pathlib import Path
from typing import Any

from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial

from lightning_tfm.dashboard.studies import Outline
from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import RECORDS, newest, state_of
from lightning_tfm.queue.storage import OUTAGES, PostgresStore, find_storage
from lightning_tfm.runs.record import RunRecord, from_plain
from lightning_tfm.study.study import Search, Study
from lightning_tfm.study.study import from_plain as study_from_plain
from lightning_tfm.watch.run_state import RunState, finished, name_of
from lightning_tfm.watch.study_state import CellState, said

EVERY = 5.0
"""seconds within which the storage is not asked twice"""
AWAY = "known only from the storage: its files are on another machine"


class Database:
    """Follows a storage. Raises UserError if it is not PostgreSQL or does not answer at first."""

    def __init__(self, address: str, every: float = EVERY) -> None:
        store = find_storage(address, Path())
        if not isinstance(store, PostgresStore):
            raise UserError(f"--storage={address}: a journal is found by --out, its results folder; name a PostgreSQL")
        store.check()
        self._storage = store.open_to_read()
        self._every, self._last = every, -every
        self._studies: dict[str, tuple[Any, Study | str]] = {}
        self._records: dict[str, Any] = {}
        self.outlines: dict[str, Outline] = {}
        self.runs: dict[str, RunState] = {}
        self.notes: tuple[str, ...] = ()

    def look(self) -> None:
        """Ask it, unless that was done a moment ago; while it is away, its last answer stays, with a note."""
        if time.monotonic() - self._last < self._every:
            return
        try:
            self._look()
            self.notes = ()
        except OUTAGES as error:
            self.notes = (f"the storage does not answer, its studies are as of before: {type(error).__name__}",)
        self._last = time.monotonic()

    def record(self, name: str) -> RunRecord | None:
        """What a run left, if its record is in the storage."""
        try:
            found = from_plain(self._records[name])
        except (KeyError, ValueError):
            return None
        return found if isinstance(found, RunRecord) else None

    def _look(self) -> None:
        outlines: dict[str, Outline] = {}
        runs: dict[str, RunState] = {}
        for frozen in self._storage.get_all_studies():
            trials = self._storage.get_all_trials(frozen._study_id, deepcopy=False)
            named = sorted((t for t in trials if "run" in t.user_attrs), key=lambda t: t.number)
            if not named and "definition" not in frozen.user_attrs:
                continue  # another program's
            study = self._study(frozen)
            last = newest(named)
            states = [(state_of(trial), trial) for trial in last.values()]
            if isinstance(study, str):
                outlines[frozen.study_name] = Outline(frozen.study_name, why_not=study)
            else:
                outlines[frozen.study_name] = Outline(frozen.study_name, study, tuple(state for state, _ in states))
                runs |= {
                    name_of(run): self._view(state, trial, name_of(run), study)
                    for state, trial in states
                    for run in state.cell.runs
                }
        self.outlines, self.runs = outlines, runs

    def _study(self, frozen: FrozenStudy) -> Study | str:
        """The study's definition, or why there is none."""
        plain = frozen.user_attrs.get("definition")
        known = self._studies.get(frozen.study_name)
        if known is None or known[0] != plain:
            made: Study | str
            try:
                made = study_from_plain(plain or {}, f"study '{frozen.study_name}' in the storage")
            except UserError as error:
                made = str(error)
            known = self._studies[frozen.study_name] = (plain, made)
        return known[1]

    def _view(self, cell: CellState, trial: FrozenTrial, name: str, study: Study) -> RunState:
        attributes = trial.user_attrs
        held = ({attributes["run"]: attributes["record"]} if "record" in attributes else {}) | attributes.get(
            RECORDS, {}
        )
        self._records |= {run[:16]: plain for run, plain in held.items()}
        if (record := self.record(name)) is not None:
            return finished(name, record)
        aims = list(study.objectives) if isinstance(study, Search) else ["dev/ppl"]
        values = dict(zip(aims, cell.values, strict=False))
        started = trial.datetime_start.timestamp() if trial.datetime_start else None
        ended = trial.datetime_complete.timestamp() if trial.datetime_complete else None
        beat = attributes.get("beat")
        return RunState(
            name=name,
            state=said(cell.state),
            phase="elsewhere" if cell.state == "running" else "",
            ppl=values.get("dev/ppl"),
            aims=values,
            started=started,
            changed=ended or (float(beat) if isinstance(beat, int | float) else started),
            seconds=cell.seconds,
            attempts=cell.attempt,
            owner=str(cell.owner or ""),
            words=cell.reason or (AWAY if cell.state != "waiting" else ""),
        )
