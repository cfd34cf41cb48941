"""Lightning's trainer writes a line of a file of scores, which `lightning-tfm judge` reads."""

from collections.abc import Mapping
from pathlib import Path

import lightning

from lightning_tfm.atomic_io import locked, to_csv, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.judging.scores import records


class Scores(lightning.Callback):
    """Writes the trainer's `callback_metrics` to a CSV file at the end of `fit` and of `test`: one line for this row
    and seed, which a repeated run replaces. Whole or not at all, by rank 0, under a lock that all processes share.

        trainer = Trainer(callbacks=[lightning_tfm.Scores("scores.csv", row="gated", seed=1)])
    """

    def __init__(self, path: str | Path, row: str, seed: int) -> None:
        self.path, self.row, self.seed = Path(path), str(row), str(seed)
        self.values: dict[str, str] = {}
        if not self.row.strip() or not self.seed.strip():
            raise UserError(f"Scores: row={row!r}, seed={seed!r}: a run is named by both")

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Raises UserError where the file cannot take the scores, before anything is trained."""
        self._others()

    def on_fit_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if not trainer.interrupted:
            self._write(trainer)

    def on_test_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._write(trainer)

    def _write(self, trainer: lightning.Trainer) -> None:
        self.values |= {name: repr(float(value)) for name, value in trainer.callback_metrics.items()}
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.path.with_name(f"{self.path.name}.lock")):
                lines = self._others()
                own = {"row": self.row, "seed": self.seed}
                lines.append(own | self.values | own)  # whatever a metric is called
                write_atomic(self.path, to_csv(lines).encode())

    def _others(self) -> list[Mapping[str, str]]:
        """The file's lines but this run's. Raises UserError."""
        if not self.path.exists() or not self.path.stat().st_size:
            return []
        lines = [line for _, line in records(self.path)]
        if not all({"row", "seed"} <= line.keys() for line in lines):
            raise UserError(f"{self.path}: has no columns 'row' and 'seed'; name another file for the scores")
        return [line for line in lines if (line["row"], line["seed"]) != (self.row, self.seed)]
