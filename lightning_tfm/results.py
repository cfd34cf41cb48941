"""Studies and runs from Python: `import lightning_tfm as lt`, then `lt.load_study("mine").table()`.

Tables are pandas DataFrames. Nothing is written, and nothing is trained.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lightning_tfm.errors import UserError
from lightning_tfm.inference.load import Trained
from lightning_tfm.inference.weight_records import with_pieces
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.report.study_report import make
from lightning_tfm.report.tables import main_table
from lightning_tfm.runs.folder import RunFolder, experiment_of, find_trained
from lightning_tfm.runs.record import Missing, RunRecord
from lightning_tfm.runs.rescored import read_under_evaluation, without_other_test
from lightning_tfm.study.rows import find_row
from lightning_tfm.study.sequential import planned_cells
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as
from lightning_tfm.watch.run_state import Curve
from lightning_tfm.watch.study_state import CellState, StudyState, Watch

OF_A_RUN = ("step", "steps", "ppl", "parameters", "seconds", "attempts", "diverged")
"""fields of watch.run_state.RunState that `StudyResults.runs` returns"""


@dataclass(frozen=True)
class StudyResults:
    """A table of rows and seeds, as the files under `root` are at each call."""

    study: Ablation
    root: Path

    def table(self, reference: str | None = None) -> Any:
        """One line for each row, the columns of `lightning-tfm report --format csv`: sizes, means, every difference to
        the row `reference` (default: base) with its interval, p and verdict. Raises UserError where that is not a row.
        """
        return frame(main_table.table_lines(make(self.study.name, self.root, reference).summary))

    def state(self) -> StudyState:
        """Cells by state, the best row, and every run, as `lightning-tfm status` counts what is in the files."""
        cells = [CellState(cell) for cell in planned_cells(self.study, self.root)]
        return Watch(self.root, study=self.study).look(cells)

    def runs(self) -> Any:
        """One line for each run: row, seed, its name, its state, and what is known about it so far."""
        state = self.state()
        return frame(
            {"row": cell.row, "seed": cell.seed, "run": cell.training_hash[:16], "state": cell_state.state}
            | {key: getattr(run, key) for key in OF_A_RUN}
            | {metric.name: run.score(metric) for metric in state.metrics(self.study)}
            for cell_state in state.cells
            for cell in cell_state.cell.runs
            for run in [state.runs[cell.training_hash[:16]]]
        )

    def curves(self, key: str = "dev_ppl") -> Any:
        """One line for each logged point of each run: row, seed, step and `key`, a key of metrics.jsonl such as
        loss, nll or dev_ppl. Raises UserError where no run has logged it.
        """
        points, keys = [], set[str]()
        for cell in planned_cells(self.study, self.root):
            text = self.study.texts(cell, self.root).dev[:16]
            curve = Curve.of(RunFolder(self.root, cell.training_hash).path, text=text)
            keys.update(curve.keys)
            points += [{"row": cell.row, "seed": cell.seed, "step": int(x), key: y} for x, y in curve.every(key)]
        if keys and key not in keys:
            raise UserError(f"no run of {self.study.name} has logged '{key}'; logged: {', '.join(sorted(keys))}")
        return frame(points)

    def run(self, row: str, seed: int) -> "RunResults":
        """The run of a row at a seed, scored as the study scores it.

        Raises UserError where there is no such row, or the run is not finished or not scored so.
        """
        cell = self.study.cell(definition := find_row({r.name: r for r in self.study.rows}, row), seed)
        folder = RunFolder(self.root, cell.training_hash)
        if folder.read_result() is None:
            raise UserError(f"{self.study.name} has no finished run of row '{row}' at seed {seed}")
        record = read_under_evaluation(folder, self.study.evaluation_of(definition), self.study.base.data.dev)
        if isinstance(record, Missing):
            raise UserError(f"{self.study.name}, row '{row}' at seed {seed}: {record.reason}")
        record = without_other_test(record, self.study.evaluation_of_text(self.study.texts(cell, self.root).test))
        return RunResults(folder, record, self.study.texts(cell, self.root).dev[:16])


@dataclass(frozen=True)
class RunResults:
    """A finished run. Its weights are loaded on first use."""

    folder: RunFolder
    _record: RunRecord
    _text: str = ""
    """first 16 digits of the fingerprint of its study's dev text"""

    @property
    def record(self) -> RunRecord:
        """Scores, parameters, seconds and where they came from: of a study's run as the study scores it, else as in its
        result.json."""
        return self._record

    @cached_property
    def trained(self) -> Trained:
        """Model, texts (`.prepared`) and decoding together; what it holds may move."""
        return Trained.open(self.folder, experiment_of(self.folder))

    @property
    def model(self) -> SequenceModel:
        """The Transformer with the weights that were scored, on the CPU, in evaluation mode."""
        return self.trained.module.transformer

    def curve(self, key: str = "dev_ppl") -> Any:
        """One line for each logged point: step and `key`."""
        return frame({"step": int(x), key: y} for x, y in Curve.of(self.folder.path, text=self._text).every(key))

    def translate(self, lines: Iterable[str]) -> list[str]:
        """The best translation of each line. Raises UserError for a single text, whose letters would be translated."""
        if isinstance(lines, str):
            raise UserError(f"translate({lines[:40]!r}): expected a list of sentences, write translate([…])")
        return [best.text for best, *_ in self.trained.translate(lines)]

    def attention(self, source: str, target: str | None = None) -> dict[str, Any]:
        """The weights of a sentence pair (default target: the run's own translation) and their pieces.

        `source` and `target_in` are the pieces of keys and queries; `encoder`, `decoder` and `cross` are lists over
        layers of float arrays [heads, queries, keys] whose rows sum to 1 up to 0.0005 a weight. A layer type without
        attention weights has none.
        """
        target = self.translate([source])[0] if target is None else target
        plain = with_pieces(self.trained, *self.trained.prepared.tokenizer.encode([source, target]))
        kinds = {kind: [np.array(layer) / 1000 for layer in plain[kind]] for kind in ("encoder", "decoder", "cross")}
        return plain | kinds


def load_study(name: str, root: str | Path = "results") -> StudyResults:
    """The table `name` below `root`. Raises UserError where there is none, naming those there are."""
    return StudyResults(load_as(Ablation, Path(root), name), Path(root))


def load_run(run: str, root: str | Path = "results") -> RunResults:
    """A finished run by its folder, or by the start of its name. Raises UserError where there is none or several."""
    folder = find_trained(run, Path(root))
    record = folder.read_result()
    assert record is not None, "only finished runs are found"
    return RunResults(folder, record)


def frame(lines: Iterable[dict[str, Any]]) -> Any:
    """`lines` as a DataFrame; pandas is loaded here, by nobody else."""
    return import_module("pandas").DataFrame(list(lines))
