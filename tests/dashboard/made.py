"""Results folders as they would lie on disk, in every state, without any training: quick to make, of any size."""

import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_tfm.config import (
    Experiment,
    Miniature,
    Training,
    evaluation_hash,
    override,
    to_dict,
    training_hash,
    training_identity,
)
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Seconds, Texts, TrainSeconds, to_plain
from lightning_tfm.study.rows import Fingerprints, Row, all_rows, apply
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import save
from lightning_tfm.study.sweeps import Parameter, Pruner
from tests.helpers.records import record_of

BASE = Experiment(training=Training(steps=100_000), miniature=Miniature(width=8, depth=2, steps=50))
PRINTS = Fingerprints("t" * 64, "d" * 64)
V = 800
WORDS = "ta torror venla narva povens kelda morin suta rilla oben".split()
FAR = {"host": "elsewhere", "pid": 1, "boot": "b", "start": 1}
"""a process on another machine, alive as long as its heartbeat is young"""


class Folder:
    """Writes studies and runs below `root`. All values follow from `seed`."""

    def __init__(self, root: Path, seed: int = 7) -> None:
        self.root, self.random, self.now = root, random.Random(seed), time.time()

    def table(self, name: str, rows: Sequence[str] | None = None, seeds: Sequence[int] = (1, 2, 3)) -> Ablation:
        """An ablation of the paper's rows, not yet begun."""
        known = all_rows()
        chosen: list[Row] = [known[row] for row in rows or known]
        study = Ablation(name=name, base=BASE, rows=chosen, seeds=list(seeds), prints=PRINTS, V=V, store="store")
        return save(study, self.root)

    def search(self, name: str, trials: int, seeds: Sequence[int] = ()) -> Search:
        """A search, not yet begun."""
        space = [
            Parameter("training.lr_factor", "log_uniform_values", [], 0.1, 2.0),
            Parameter("model.P_drop", "uniform", [], 0.0, 0.4),
        ]
        aims = {"dev/ppl": "minimize"}
        return save(
            Search(
                name=name, base=BASE, space=space, sampler="tpe", seed=0, trials=trials, objectives=aims,
                constraints={}, pruner=Pruner("median"), prints=PRINTS, V=V, store="store", seeds=list(seeds),
            ),
            self.root,
        )  # fmt: skip

    def fill(self, study: Ablation, states: Sequence[str] = ("finished",)) -> None:
        """Every cell, in the states that `states` repeats."""
        for i, (row, seed) in enumerate((row, seed) for row in study.rows for seed in study.seeds):
            self.run(apply(study.base, row, seed), states[i % len(states)])

    def trial(self, study: Search, number: int, state: str, **change: Any) -> RunFolder:
        """A trial and the study's link to it."""
        experiment = override(study.base, {key.replace("__", "."): value for key, value in change.items()}, "a trial")
        folder = self.run(experiment, state)
        link = self.root / "studies" / study.name / "cells" / f"t{number:04d}" / f"{experiment.training.seed}.json"
        link.parent.mkdir(parents=True, exist_ok=True)
        plain = {"row": f"t{number:04d}", "seed": experiment.training.seed, "training_hash": folder.training_hash}
        link.write_text(json.dumps(plain))
        return folder

    def run(self, experiment: Experiment, state: str = "finished", texts: bool = True) -> RunFolder:
        """One run (of an experiment at the paper's scale) in one of the states of the dashboard."""
        exact = experiment.scaled()
        identity = training_identity(experiment, PRINTS.train, {})
        folder = RunFolder(self.root, training_hash(identity))
        folder.path.mkdir(parents=True, exist_ok=True)
        if state == "waiting":
            return folder
        self._json(folder.identity, identity)
        self._json(folder.experiment, to_dict(exact))
        steps, share = exact.training.steps, 1.0 if state == "finished" else self.random.uniform(0.2, 0.9)
        at = max(1, int(steps * share) // 50 * 50)
        quality = self.random.lognormvariate(0, 0.1)
        self._metrics(folder, steps, at, quality)
        self._attempt(folder, state)
        if texts:
            self._samples(folder, steps, at)
        if state in ("running", "interrupted", "failed", "stopped early", "damaged"):
            progress = {"step": at, "steps": steps, "tokens_per_second": 9000.5, "phase": "train", "time": self.now - 2}
            self._json(folder.progress, progress)
        ends = {
            "failed": ("out_of_memory", "RuntimeError: can't allocate memory: you tried to allocate 9 GB"),
            "stopped early": ("pruned", f"stopped after step {at} as unpromising"),
            "interrupted": ("interrupted", "stopped by SIGTERM after a checkpoint"),
        }
        if state in ends:
            outcome, reason = ends[state]
            self._json(folder.outcome, {"outcome": outcome, "reason": reason, "step": at, "attempt": 1})
            folder.log.write_text("Traceback (most recent call last):\n  …\n" + reason + "\n")
        if state == "damaged":
            folder.result.write_text('{"status": "finished", "scores": {')
        if state == "finished":
            self._result(folder, experiment, quality)
        return folder

    def _result(self, folder: RunFolder, experiment: Experiment, quality: float) -> None:
        ppl = 2.1 * quality
        seconds = Seconds(train=60.0, data=2.0, validate=3.0, checkpoint=0.5, decode=4.0, total=69.5)
        record = record_of(
            experiment, PRINTS, V, ppl=ppl, nll=1000 * math.log(ppl), tokens=1000, bleu=60 / quality, sentences=200,
            seconds=seconds, train_seconds=TrainSeconds(forward=26.0, backward=29.0, optimizer=4.0),
            data=Texts(corpus="builtin", store="store", train=PRINTS.train, dev=PRINTS.dev),
            started=self.now - 7200 * self.random.random(), ended=self.now - 3600 * self.random.random(),
            tokens_per_second=9100.0,
        )  # fmt: skip
        self._json(folder.result, to_plain(record))
        scores = folder.scores(evaluation_hash(experiment, PRINTS.dev))
        scores.mkdir(parents=True, exist_ok=True)
        lines = [self._sentence(random.Random(i), 0.3) for i in range(20)]
        (scores / "val.hyp.txt").write_text("".join(f"{line}\n" for line in lines))

    def _sentence(self, fixed: random.Random, wrong: float) -> str:
        words = fixed.choices(WORDS, k=8)
        return " ".join(self.random.choice(WORDS) if self.random.random() < wrong else word for word in words)

    def _metrics(self, folder: RunFolder, steps: int, at: int, quality: float) -> None:
        lines = []
        for step in range(50, at + 1, 50):
            loss = (1.2 + 5 * math.exp(-6 * step / steps)) * quality + self.random.gauss(0, 0.03)
            line: dict[str, float] = {
                "step": step,
                "loss": loss,
                "nll": loss - 0.4,
                "lr": min(step / 300, (300 / step) ** 0.5) * 5e-3,
            }
            line |= {
                "target_tokens": step * 294,
                "seconds": step * 0.03,
                "grad_norm": 0.3 + 2 * math.exp(-8 * step / steps),
            }
            lines.append(line)
            if step % (steps // 8) == 0:
                ppl = 2.1 * quality * (1 + 8 * math.exp(-6 * step / steps))
                lines.append({"step": step, "dev_nll": math.log(ppl), "dev_ppl": ppl})
        folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def _samples(self, folder: RunFolder, steps: int, at: int) -> None:
        sources = [self._sentence(random.Random(100 + i), 0.0) for i in range(3)]
        head = {"step": 0, "sources": sources, "references": [text.upper() for text in sources]}
        lines: list[dict[str, Any]] = [head]
        for step in range(steps // 8, at + 1, steps // 8):
            wrong = 0.9 * (1 - step / steps)
            lines.append(
                {
                    "step": step,
                    "translations": [self._sentence(random.Random(100 + i), wrong).upper() for i in range(3)],
                }
            )
        (folder.path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def _attempt(self, folder: RunFolder, state: str) -> None:
        folder.attempts.mkdir(exist_ok=True)
        running = state == "running"
        plain = {"number": 1, "token": "x", "owner": FAR, "time": self.now - 90}
        self._json(folder.attempts / "0001.json", plain | {"ended": None if running else self.now - 5})
        if running:
            (folder.attempts / "0001.beat").touch()

    def _json(self, path: Path, value: Any) -> None:
        path.write_text(json.dumps(value))


def thousand(root: Path, count: int = 1000) -> Folder:
    """`count` runs: tables of all rows at five seeds, a search that is under way, and runs of no study."""
    made = Folder(root)
    left, number = count, 0
    mixed = ("finished",) * 17 + ("running", "failed", "interrupted")
    while left >= 110:
        number += 1
        study = made.table(f"table-{number:02d}", seeds=range(10 * number, 10 * number + 5))
        made.fill(study, mixed if number == 1 else ("finished",))
        left -= len(study.rows) * 5
    search = made.search("search", 60)
    for trial in range(min(left, 40)):
        state = ("finished", "stopped early", "finished", "finished", "running")[trial % 5]
        factor, drop = made.random.uniform(0.2, 2), made.random.uniform(0, 0.4)
        made.trial(search, trial, state, training__lr_factor=factor, model__P_drop=drop)
        left -= 1
    for extra in range(left):
        made.run(replace(BASE, training=replace(BASE.training, seed=900 + extra)))
    return made
