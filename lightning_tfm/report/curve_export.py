"""Curves and scores of runs as other people's dashboards read them: TensorBoard, CSV. Only records are read.

Each format is a folder: event files for `tensorboard --logdir`, or two CSV files. Writing again brings a folder up to
date; what was written for an unfinished run is continued, so that an open dashboard sees it grow.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.atomic_io import to_csv, write_atomic
from lightning_tfm.config import evaluation_hash
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import numbers
from lightning_tfm.runs.folder import RunFolder, find_run, read_json
from lightning_tfm.runs.record import CURVES, Called, Missing, RunRecord
from lightning_tfm.runs.rescored import read_under_evaluation
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.study.study_file import folder_of, load
from lightning_tfm.watch.run_state import Curve

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Curves = list[tuple[int, float, dict[str, float]]]
"""(step, seconds since 1970, name -> value)"""


@dataclass(frozen=True)
class Exported:
    study: str
    row: str
    seed: int
    folder: RunFolder
    parameters: dict[str, Any]
    """what varies in its study: dotted keys and values, at the sizes that were trained"""
    record: RunRecord | None
    """None while it is unfinished, or was stopped early"""
    text: str = ""
    """first 16 digits of the fingerprint of its study's dev text"""

    @property
    def name(self) -> str:
        return f"{self.row}/{self.seed}".replace(", ", ",").replace(" ", "_")

    @cached_property
    def curve(self) -> Curve:
        """What it wrote down, read once, on first use."""
        return Curve.of(self.folder.path, self.record, self.text)

    def curves(self) -> Curves:
        """What the run wrote down so far; of a finished run the last entry holds the final scores."""
        began = self.record.started if self.record and self.record.started else _begun(self.folder)
        curve, at = [], 0.0
        for line in self.curve.lines:
            at = line.get("seconds", at)
            curve.append(
                (line["step"], began + at, {CURVES[key]: value for key, value in line.items() if key in CURVES})
            )
        if self.record is not None:
            last = self.record.steps or (curve[-1][0] if curve else 0)
            curve.append((last, self.record.ended or began + at, self.scores()))
        return curve

    def scores(self) -> dict[str, float]:
        """dev/ppl, dev/nll (per token, as in its course), … of a finished run."""
        if self.record is None:
            return {}
        every = ((name, numbers(s) | {"nll": s.nll / s.tokens}) for name, s in self.record.scores.items())
        return {f"{name}/{key}": value for name, found in every for key, value in found.items()}


def _begun(folder: RunFolder) -> float:
    """When a run without a record began; without its attempts, too, when what was requested was written."""
    there = folder.experiment if folder.experiment.is_file() else folder.path
    return folder.begun or there.stat().st_mtime


def exported_runs(what: str, root: Path) -> list[Exported]:
    """The runs of a study or search, or one run by its folder or the start of its name, that have records.

    Raises UserError where there is nothing of the kind.
    """
    if (root / "studies" / what / "study.json").is_file():
        runs = list(_of_study(load(root, what), root))
    else:
        runs = [_of_run(what, root)]
    runs = [run for run in runs if run.folder.metrics.is_file() or run.record is not None]
    if not runs:
        raise UserError(f"'{what}': no run of it has a record yet")
    for run in runs:
        if run.curve.words:
            print(f"lightning-tfm: {run.row}, seed {run.seed}: {run.curve.words}", file=sys.stderr)
    return runs


def _of_study(study: Study, root: Path) -> Iterator[Exported]:
    """Of a table or a search, without runs whose record is damaged or scored by another evaluation, which is said."""
    for run, evaluation in _of_table(study, root) if isinstance(study, Ablation) else _of_search(study, root):
        record = None
        if run.folder.finished():
            record = read_under_evaluation(run.folder, evaluation, study.base.data.dev)
        if isinstance(record, Missing):
            print(f"lightning-tfm: {run.row}, seed {run.seed} is left out: {record.reason}", file=sys.stderr)
        else:
            yield replace(run, record=record)


def _of_table(study: Ablation, root: Path) -> Iterator[tuple[Exported, str]]:
    """With the evaluation that each is scored by, as `_of_search`."""
    varied = list(dict.fromkeys(key for row in study.every_row for key in row.change))
    for row in study.every_row:
        values, text = study.trained_values(row, varied), study.data_of(row).prints.dev[:16]
        for seed in study.seeds:
            folder = RunFolder(root, study.cell(row, seed).training_hash)
            yield Exported(study.name, row.name, seed, folder, values, None, text), study.evaluation_of(row)


def _of_search(study: Any, root: Path) -> Iterator[tuple[Exported, str]]:
    assert isinstance(study, Search)
    place, text = folder_of(root, study.name), study.prints.dev
    trials = {line["trial"]: line for line in read_json(place / "trials.json") or []}
    for link in sorted(place.glob("cells/*/*.json")):
        cell = read_json(link)
        line, folder = trials.get(cell["row"], {}), RunFolder(root, cell["training_hash"])
        change = {p.name: line[p.name] for p in study.space if p.name in line}
        run = Exported(study.name, cell["row"], cell["seed"], folder, change, None, text[:16])
        yield run, evaluation_hash(study.base, text)


def _of_run(what: str, root: Path) -> Exported:
    path = Path(what)
    if (path / "identity.json").is_file():
        folder = find_run(path.resolve().parents[1], path.resolve().name)
    else:
        try:
            folder = find_run(root, what)
        except UserError as error:
            names = sorted(p.parent.name for p in (root / "studies").glob("*/study.json"))
            there = f"; studies: {', '.join(names)}" if names else ""
            raise UserError(f"'{what}' is not a study, search or run below {root}: {error}{there}") from None
    seed = (read_json(folder.experiment) or {}).get("training", {}).get("seed", 0)
    cell = folder.read_called() or Called(folder.path.name, int(seed))
    return Exported("fit", cell.row, cell.seed, folder, {}, folder.read_result())


class Target(ABC):
    """A folder in one of the formats. `write` may be called again with what the runs have become, then `close` once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def write(self, runs: Sequence[Exported]) -> str:
        """Bring the folder up to date; how it is opened."""

    def close(self) -> None:  # noqa: B027 -- only some keep files open
        """Let go of open files."""


# --- CSV ---


class Csv(Target):
    """runs.csv, a line for each run, and curves.csv, a line for each step that a run wrote down."""

    def write(self, runs: Sequence[Exported]) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        varied = dict.fromkeys(key for run in runs for key in run.parameters)
        curves = [
            _where(run) | {"step": step, "time": f"{at:.3f}"} | values
            for run in runs
            for step, at, values in run.curves()
        ]
        lines = [_where(run) | _facts(run.record, varied | run.parameters) | run.scores() for run in runs]
        of_runs, of_steps = self.folder / "runs.csv", self.folder / "curves.csv"
        write_atomic(of_runs, to_csv(lines).encode())
        write_atomic(of_steps, to_csv(curves).encode())
        return f"{of_runs}, {of_steps.name}"


def _where(run: Exported) -> dict[str, Any]:
    return {"study": run.study, "row": run.row, "seed": run.seed, "run": run.folder.path.name}


def _facts(r: RunRecord | None, varied: dict[str, Any]) -> dict[str, Any]:
    counts = {"parameters": r and r.parameters.total, "flops": r and r.flops, "seconds": r and r.seconds.total}
    more = {name: r and getattr(r, name) for name in ("target_tokens", "tokens_per_second", "attempts")}
    return {"finished": r is not None} | varied | counts | more


# --- TensorBoard ---


class TensorBoard(Target):
    """Event files, a folder for each run; what varies and the final scores are hyperparameters with their metrics."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._open: dict[str, tuple[SummaryWriter, Curves]] = {}
        """an unfinished run's events, and what is in them"""
        self._whole: set[str] = set()

    def write(self, runs: Sequence[Exported]) -> str:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("--to tensorboard needs it: pip install 'lightning_tfm[tensorboard]'") from None
        for run in runs:
            if run.name in self._whole:
                continue
            curves, place = run.curves(), self.folder / run.name
            writer, written = self._open.pop(run.name, (None, []))
            same = [(step, own) for step, _, own in written] == [(step, own) for step, _, own in curves[: len(written)]]
            if writer is None or not same:  # it went back to a checkpoint
                if writer is not None:
                    writer.close()
                for old in place.glob("events.out.tfevents.*"):
                    old.unlink()
                writer, written = SummaryWriter(str(place)), []
            for step, at, values in curves[len(written) :]:
                for name, value in values.items():
                    writer.add_scalar(name, value, step, walltime=at)
            writer.flush()
            self._open[run.name] = writer, curves
            if run.record is not None:  # the scores' own tags are curves already
                hparams = {"row": run.row, "seed": run.seed}
                simple = (bool, int, float, str)
                hparams |= {k: v if isinstance(v, simple) else json.dumps(v) for k, v in run.parameters.items()}
                writer.add_hparams(hparams, {f"final/{k}": v for k, v in run.scores().items()}, run_name=".")
                self._open.pop(run.name)[0].close()
                self._whole.add(run.name)
        return f"tensorboard --logdir {self.folder}"

    def close(self) -> None:
        for writer, _ in self._open.values():
            writer.close()


FORMATS: dict[str, type[Target]] = {"tensorboard": TensorBoard, "csv": Csv}
