"""One run: train, score, record. Killed at any moment it resumes from its last checkpoint, on any number of devices."""

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist

from lightning_tfm.accel import choose
from lightning_tfm.config import Experiment, Hardware, to_dict
from lightning_tfm.data.long import LongText, check_reach
from lightning_tfm.data.module import TranslationData, evaluation_batches
from lightning_tfm.data.prepare import Prepared
from lightning_tfm.data.same_text import prepare_same
from lightning_tfm.model.leaks import check_own_classes
from lightning_tfm.runs import torchrun
from lightning_tfm.runs.attempt import Task
from lightning_tfm.runs.counts import counted, run_flops
from lightning_tfm.runs.directory import Attempt, RunFolder
from lightning_tfm.runs.environment import git_state, machine, matrix_rate, versions
from lightning_tfm.runs.nodes import train_on_nodes
from lightning_tfm.runs.ranks import fork_ranks
from lightning_tfm.runs.record import RunRecord, Score, Seconds, Texts, TrainSeconds, stretches, to_plain
from lightning_tfm.runs.samples import Samples
from lightning_tfm.runs.scored import score_anew, score_split
from lightning_tfm.runs.start import find_start
from lightning_tfm.runs.trainer import make_trainer, prepare_process
from lightning_tfm.runs.weights import averaged
from lightning_tfm.runs.where import alike, where
from lightning_tfm.study.cell import Cell, Plan
from lightning_tfm.sums import of_files, signed
from lightning_tfm.training.backends_used import backends_used, compile_layers
from lightning_tfm.training.callback import RunCallback
from lightning_tfm.training.config_check import Agreement, digest
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.precision import uses_gpu
from lightning_tfm.training.profile import Profile
from lightning_tfm.training.schedule import EventSchedule
from lightning_tfm.training.tally import Tally
from lightning_tfm.training.writer import Writer
from lightning_tfm.user_modules import variables_read


@dataclass
class Run:
    """What belongs together while one rank works on a run. `attempt` is shared by all ranks; only rank 0 writes."""

    experiment: Experiment
    hardware: Hardware
    attempt: Attempt
    root: Path

    @property
    def folder(self) -> RunFolder:
        return self.attempt.folder

    @property
    def identity(self) -> dict[str, Any]:
        """What the run's name is the hash of."""
        return json.loads(self.folder.identity.read_bytes())

    def train(self) -> None:
        """Train from the last checkpoint to the end, score, write result.json.

        Raises callback.Interrupted, pending_losses.NotFinite, StaleAttempt, torch's out-of-memory error, OSError.
        """
        started = time.time()
        prepare_process(self.hardware)
        data = TranslationData(self.experiment, self.root, self.hardware.micro_tokens)
        prepared = data.prepared = prepare_same(self.experiment.data, self.root, self.identity["train"])
        check_reach(self.experiment, prepared, "experiment")
        device = torch.device("cuda" if uses_gpu(self.hardware) else "cpu")
        backend = choose.backend(self.hardware, self.experiment.training.precision, device)
        check_own_classes(self.experiment.model)
        module = TransformerModule(self.experiment, prepared.tokenizer.V, backend)
        dev = prepared.split(self.experiment.data.dev)
        rank, world = int(os.environ.get("RANK", 0)), self.hardware.devices * self.hardware.num_nodes
        events, writer = EventSchedule.of(self.hardware, self.experiment.training), None
        start = find_start(self.folder, events)
        if rank == 0:
            start.settle(self.attempt)
            writer = Writer(self.attempt, self.folder.path, self.folder.training_hash)
        tally = Tally(*where(self.experiment, self.hardware, self.attempt.number, start.step) if rank == 0 else ())
        tally.validated = Samples(self.attempt, dev, prepared.tokenizer, self.hardware.compile).take
        mark = prepared.fingerprint(self.experiment.data.dev)[:16]
        callback = RunCallback(events, writer, evaluation_batches(dev)[rank::world], len(dev), mark, tally)
        agreement = Agreement(digest(self.experiment, self.hardware, self.folder.training_hash))
        callbacks = [agreement, callback]
        if self.hardware.profile and rank == 0:
            callbacks.append(Profile(self.folder.path / "profile"))
        trainer = make_trainer(self.experiment, self.hardware, callbacks)
        if self.hardware.compile:
            compile_layers(module.transformer)
        tally.here["device"] = trainer.strategy.root_device.type
        trainer.fit(module, datamodule=data, ckpt_path=start.checkpoint)
        module.to(trainer.strategy.root_device)  # Lightning leaves it on the CPU
        began = time.perf_counter()
        scores = self._score(module, prepared, rank, world)
        tally.seconds["decode"] = time.perf_counter() - began
        if rank == 0:
            record = self._record(data, tally, scores, started, module)
            self.attempt.write_json(self.folder.result, signed(to_plain(record)))
        if dist.is_initialized():
            dist.destroy_process_group()

    def _score(self, module: TransformerModule, prepared: Prepared, rank: int, world: int) -> dict[str, Score]:
        """Scores of dev and test with the last weights, and with averaged ones where snapshots were kept.

        Those by length with the weights that a table scores. Empty on all ranks but the first.
        """
        found: dict[str, Score] = {}
        splits = {"dev": self.experiment.data.dev, "test": self.experiment.data.test}
        splits["long"] = self.experiment.data.long
        weights: list[Literal["last", "average"]] = ["last"]
        if self.experiment.training.average_last:
            weights.append("average")
        for which in weights:
            if which == "average":
                module.transformer.load_state_dict(averaged(self.folder, self.experiment))
            how = replace(self.experiment.evaluation, weights=which)
            for name, split_name in splits.items():
                if split_name and (name != "long" or which == self.experiment.evaluation.weights):
                    if rank == 0:
                        steps = self.experiment.training.steps
                        self.attempt.write_progress(steps, steps, 0.0, f"translate {split_name}")
                    text = LongText(prepared, self.experiment.data) if name == "long" else prepared
                    score = score_split(module, text, split_name, how, rank, world, self.attempt)
                    key = name if which == self.experiment.evaluation.weights else f"{name}_{which}"
                    if score is not None:
                        found[key] = score
        return found

    def _record(
        self,
        data: TranslationData,
        tally: Tally,
        scores: dict[str, Score],
        started: float,
        module: TransformerModule,
    ) -> RunRecord:
        e, prepared, model = self.experiment, data.prepared, module.transformer
        world = self.hardware.devices * self.hardware.num_nodes
        source, target = tally.tokens["source"], tally.tokens["target"]
        parts = {k: round(v, 3) for k, v in tally.seconds.items()}
        flops, trained = run_flops(model, data, source, target), parts["train"] + parts["data"]
        tally.note(backends_used(module) + variables_read(self.identity["user_classes"]))
        rate = matrix_rate(e.training.precision, uses_gpu(self.hardware), self.root, self.hardware.products)
        ran = stretches(tally.ran())
        return RunRecord(
            training_hash=self.folder.training_hash,
            identity=self.identity,
            experiment=to_dict(e),
            parameters=counted(model),
            V=prepared.tokenizer.V,
            steps=e.training.steps,
            target_tokens=target,
            source_tokens=source,
            padding=tally.padding(),
            flops=flops,
            seconds=Seconds(**parts, total=round(sum(parts.values()), 3)),
            train_seconds=TrainSeconds(**{k: round(v, 3) for k, v in tally.parts.items()}),
            tokens_per_second=round(target / trained, 1),
            flops_per_second=round(flops / trained),
            matrix_flops_per_second=round(rate),
            utilisation=round(flops / trained / (rate * world), 4) if alike(ran) else None,
            scores=scores,
            hardware=machine(self.hardware),
            versions=versions(),
            git=git_state(),
            data=Texts(
                corpus=e.data.corpus,
                store=prepared.folder.name,
                train=prepared.train_fingerprint,
                dev=prepared.fingerprint(e.data.dev),
                tokenizer=prepared.tokenizer.fingerprint,
                too_long=prepared.too_long(e.data.max_len),
            ),
            inexact=list(dict.fromkeys(reason for one in ran for reason in one.inexact)),
            attempts=self.attempt.number,
            started=started,
            ended=time.time(),
            ran=ran,
            files=of_files([self.folder.metrics]),
        )


def train_cell(plan: Plan, cell: Cell, hardware: Hardware, attempt: Attempt, root: Path) -> None:
    """Train and score a cell with all processes that `hardware` asks for; result.json says what came of it.

    Raises what `Run.train` and `fork_ranks` raise.
    """
    experiment, identity = plan
    folder = attempt.folder
    attempt.write_json(folder.identity, identity)
    attempt.write_json(folder.experiment, to_dict(experiment))
    attempt.write_json(folder.cell, {"row": cell.row, "seed": cell.seed})
    run = Run(experiment, hardware, attempt, root)
    spawn = uses_gpu(hardware)  # asking for the GPUs may touch CUDA, which survives no fork
    if torchrun.started_us():
        run.train()
    elif hardware.num_nodes > 1:
        train_on_nodes(run, spawn)
    elif hardware.devices == 1:
        run.train()
    else:
        fork_ranks(run.train, hardware.devices, hardware.threads, spawn)


class Plans(Protocol):
    """Knows what to train for each cell: a Study."""

    def plan(self, cell: Cell, root: Path) -> Plan: ...

    def texts(self, cell: Cell, root: Path) -> tuple[str, str]: ...


class Devices(Protocol):
    """The devices of this machine, by slot (queue/devices.py)."""

    def assign(self, slot: int) -> None: ...


@dataclass(frozen=True)
class Training:
    """Trains the cells of a study on this machine, each in a process that a worker forked for it."""

    plans: Plans
    hardware: Hardware
    root: Path
    devices: Devices | None = None

    def train(self, task: Task) -> None:
        plan = self._plan(task)
        if self.devices is not None:
            self.devices.assign(task.slot)
        hardware = replace(self.hardware, threads=task.threads or self.hardware.threads)
        train_cell(plan, task.cell, hardware, task.attempt, self.root)

    def score(self, task: Task) -> None:
        """Score a finished run by the study's evaluation. Raises UserError."""
        prepare_process(replace(self.hardware, threads=task.threads or self.hardware.threads))
        score_anew(task.attempt, self._plan(task)[0])

    def _plan(self, task: Task) -> Plan:
        """What to train, once its text is seen to be the study's. Raises UserError."""
        plan = self.plans.plan(task.cell, self.root)
        prepare_same(plan[0].data, self.root, *self.plans.texts(task.cell, self.root))
        return plan
