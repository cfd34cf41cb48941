"""Cells of a study, and how they are written down as trials of Optuna and read back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from lightning_tfm.study.files import to_json, write_atomic
from lightning_tfm.study.folder import read_json
from lightning_tfm.study.owner import Owner


@dataclass(frozen=True)
class Cell:
    """One run of a study: a row at a seed."""

    row: str
    seed: int
    training_hash: str
    cost: float
    """predicted length in any unit: longer runs are started first"""
    change: dict[str, Any] = field(default_factory=dict, hash=False)
    """dotted keys and values that a search set for this run; empty in a table"""


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
    """waiting, running, done, pruned or failed"""
    reason: str
    owner: Owner | None
    attempt: int
    seconds: float | None
    """length of the try that ended with done"""
    values: tuple[float, ...] = ()
    """what Optuna was told of a finished run: one value for each objective"""


def link(study: Path, cell: Cell) -> None:
    """Write cells/<row>/<seed>.json in a study's folder, which names the run of the cell."""
    path = study / "cells" / cell.row / f"{cell.seed}.json"
    data = to_json({"row": cell.row, "seed": cell.seed, "training_hash": cell.training_hash})
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)


def linked(study: Path, cell: Cell) -> str | None:
    """Training hash of the run that the study's folder names for the row and seed of `cell`; None where it has none."""
    found = read_json(study / "cells" / cell.row / f"{cell.seed}.json")
    return found["training_hash"] if found else None


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
    return Cell(a["row"], a["seed"], a["run"], a["cost"], a["change"])


def newest(trials: list[FrozenTrial]) -> dict[tuple[str, int], FrozenTrial]:
    """The trial that speaks for each cell: the last one."""
    return {(t.user_attrs["row"], t.user_attrs["seed"]): t for t in trials}


def state_of(trial: FrozenTrial) -> CellState:
    a = trial.user_attrs
    names = {TrialState.RUNNING: "running", TrialState.COMPLETE: "done", TrialState.WAITING: "waiting"}
    names[TrialState.PRUNED] = "pruned"
    names[TrialState.FAIL] = "failed" if "final" in a else "waiting"
    owner = Owner(**a["owner"]) if trial.state == TrialState.RUNNING and "owner" in a else None
    seconds = trial.duration.total_seconds() if trial.state == TrialState.COMPLETE and trial.duration else None
    return CellState(
        cell_of(trial), names[trial.state], a.get("reason", ""), owner, a["attempt"], seconds, tuple(trial.values or ())
    )
