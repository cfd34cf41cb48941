"""One run: trained and scored. Killed at any moment it resumes from its last checkpoint, on any number of devices."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
import torch.distributed as dist

from lightning_tfm.accel import select
from lightning_tfm.config import Experiment, Hardware, to_dict
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.module import TranslationData, evaluation_batches
from lightning_tfm.data.sources.length_buckets import LongText, check_reach
from lightning_tfm.errors import UserError
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.registry import SCHEDULES, own_parts
from lightning_tfm.runs.environment import attempt_provenance, git_state, machine, versions
from lightning_tfm.runs.evaluation import check_metrics, score_split
from lightning_tfm.runs.folder import Attempt, RunFolder
from lightning_tfm.runs.process.forking import by_torchrun
from lightning_tfm.runs.record import Parameters, RunRecord, Score, Seconds, Texts, TrainSeconds, segments, to_plain
from lightning_tfm.runs.samples import Samples
from lightning_tfm.runs.trainer import RankConfigCheck, digest, make_trainer, prepare_process
from lightning_tfm.runs.weights import average_weights, find_start
from lightning_tfm.study.cell import Cell, Plan
from lightning_tfm.study.user_classes import whole_modules
from lightning_tfm.sums import of_files, with_checksum
from lightning_tfm.training.backend import backends_used, compile_layers
from lightning_tfm.training.callback import Profile, RunCallback
from lightning_tfm.training.counters import RunCounters
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.precision import uses_gpu
from lightning_tfm.training.schedule import EventSchedule, check_schedule
from lightning_tfm.training.weight_files import CheckpointWriter


@dataclass
class Run:
    """What belongs together while one rank works on a run. `attempt` is shared by all ranks; only rank 0 writes."""

    experiment: Experiment
    identity: dict[str, Any]
    """what the run's name is a hash of"""
    hardware: Hardware
    attempt: Attempt
    store: Path
    """the token store of its text (data/prepare.py)"""
    beside: Sequence[pl.Callback] = ()
    """what watches the training, on the first rank"""

    @property
    def folder(self) -> RunFolder:
        return self.attempt.folder

    def train(self) -> None:
        """Train from the last checkpoint to the end, score, write result.json.

        Raises UserError where the store holds another text than the run is named by, callback.Interrupted,
        evaluate.NotFinite, StaleAttempt, torch's out-of-memory error, OSError.
        """
        rank = int(os.environ.get("RANK", 0))
        prepare_process(self.hardware)
        prepared = Prepared(self.store)
        if prepared.train_fingerprint != self.identity["train"]:
            raise UserError(f"{self.store} holds another text than the run is named by: nothing was trained on it")
        data = TranslationData(self.experiment, prepared, self.hardware.micro_tokens)
        check_reach(self.experiment, prepared, "experiment")
        for split in filter(None, (self.experiment.data.dev, self.experiment.data.test)):
            check_metrics(prepared, split, self.experiment.evaluation)
        device = torch.device("cuda" if uses_gpu(self.hardware) else "cpu")
        backend = select.backend(self.hardware, self.experiment.training.precision, device)
        variables: list[str] = []
        if own_parts(self.experiment.model):  # before the first step
            from lightning_tfm.model.causality_check import check_own_classes

            lines = check_own_classes(self.experiment.model)
            if rank == 0:
                print(*whole_modules(self.experiment), *lines, sep="\n", file=sys.stderr)
        if rank == 0 and (classes := self.identity["user_classes"]):
            from lightning_tfm.user_code.modules import variables_read

            variables = variables_read(classes)
        module = TransformerModule(self.experiment, prepared.tokenizer.V, backend)
        dev = prepared.split(self.experiment.data.dev)
        events, writer = EventSchedule.of(self.hardware, self.experiment.training), None
        start, world = find_start(self.folder, events), self.hardware.devices * self.hardware.num_nodes
        counters = RunCounters()
        if rank == 0:
            start.settle(self.attempt)
            writer = CheckpointWriter(self.attempt, self.folder.path, self.folder.training_hash)
            counters = RunCounters(*attempt_provenance(self.experiment, self.hardware, self.attempt.number, start.step))
        if self.experiment.data.translated:
            counters.validated = Samples(self.attempt, dev, prepared.tokenizer, self.hardware.compile).take
        mark = prepared.fingerprint(self.experiment.data.dev)[:16]
        callback = RunCallback(events, writer, evaluation_batches(dev)[rank::world], len(dev), mark, counters)
        same_config = RankConfigCheck(digest(self.experiment, self.hardware, self.folder.training_hash))
        beside = self.beside if rank == 0 else ()
        trainer = make_trainer(self.experiment, self.hardware, [same_config, callback.stopwatch, callback, *beside])
        if self.hardware.compile:
            compile_layers(module.transformer)
        counters.this_attempt["device"] = trainer.strategy.root_device.type
        trainer.fit(module, datamodule=data, ckpt_path=start.checkpoint)
        module.to(trainer.strategy.root_device)  # Lightning leaves it on the CPU
        began = time.perf_counter()
        scores = self._score(module, prepared, rank, world)
        counters.seconds["decode"] = time.perf_counter() - began
        if rank == 0:
            counters.note(backends_used(module) + variables)
            record = self._record(data, module, counters, scores)
            self.attempt.write_json(self.folder.result, with_checksum(to_plain(record)))
        if dist.is_initialized():
            dist.destroy_process_group()

    def _score(self, module: TransformerModule, prepared: Prepared, rank: int, world: int) -> dict[str, Score]:
        """Scores of dev and test with the last weights, and with averaged ones if snapshots were kept.

        Those by length with the weights that a table scores. Empty on all ranks but the first.
        """
        scores: dict[str, Score] = {}
        splits = {"dev": self.experiment.data.dev, "test": self.experiment.data.test}
        splits["long"] = self.experiment.data.long
        weights: list[Literal["last", "average"]] = ["last"]
        if self.experiment.training.average_last:
            weights.append("average")
        for which in weights:
            if which == "average":
                module.transformer.load_state_dict(average_weights(self.folder, self.experiment))
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
                        scores[key] = score
        return scores

    def _record(
        self, data: TranslationData, module: TransformerModule, counters: RunCounters, scores: dict[str, Score]
    ) -> RunRecord:
        """What result.json holds."""
        e, prepared = self.experiment, data.prepared
        model, source, target = module.transformer, counters.tokens["source"], counters.tokens["target"]
        parts = {k: round(v, 3) for k, v in counters.seconds.items()}
        flops, trained = run_flops(model, data, source, target), parts["train"] + parts["data"]
        ran = segments(counters.ran())
        return RunRecord(
            training_hash=self.folder.training_hash,
            identity=self.identity,
            experiment=to_dict(e),
            parameters=count_by_part(model),
            V=prepared.tokenizer.V,
            steps=e.training.steps,
            target_tokens=target,
            source_tokens=source,
            padding=counters.padding(),
            flops=flops,
            seconds=Seconds(**parts, total=round(sum(parts.values()), 3)),
            train_seconds=TrainSeconds(**{k: round(v, 3) for k, v in counters.parts.items()}),
            tokens_per_second=round(target / trained, 1),
            flops_per_second=round(flops / trained),
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
            inexact=list(dict.fromkeys(reason for segment in ran for reason in segment.inexact)),
            attempts=self.attempt.number,
            started=self.folder.begun,
            ended=time.time(),
            ran=ran,
            files=of_files([self.folder.metrics]),
        )


def write_plan(plan: Plan, cell: Cell, attempt: Attempt) -> None:
    """What names the run and what it trains, into its folder: by one process, before others take part, since the first
    rank sweeps away what is half written."""
    experiment, identity = plan
    attempt.write_json(attempt.folder.identity, identity)
    attempt.write_json(attempt.folder.experiment, to_dict(experiment))
    attempt.write_json(attempt.folder.cell, {"row": cell.row, "seed": cell.seed})


def train_cell(plan: Plan, cell: Cell, hardware: Hardware, attempt: Attempt, store: Path) -> None:
    """Train and score a cell with all processes that `hardware` requests, or torchrun has started; result.json has it.

    `store`: the token store of its text (data/prepare.py).

    Raises what `Run.train` and `fork_ranks` raise.
    """
    experiment, identity = plan
    if not by_torchrun():  # whose first rank has written it
        write_plan(plan, cell, attempt)
    beside: list[pl.Callback] = []
    if hardware.profile:
        beside.append(Profile(attempt.folder.path / "profile"))
    if experiment.training.schedule not in SCHEDULES:
        check_schedule(experiment.training, experiment.model.d_model)
    run = Run(experiment, identity, hardware, attempt, store, beside)
    if by_torchrun() or hardware.devices == 1:
        run.train()
    else:
        from lightning_tfm.runs.process.ranks import fork_ranks

        # asking for the GPUs may touch CUDA, which survives no fork
        fork_ranks(run.train, hardware.devices, hardware.threads, spawn=uses_gpu(hardware))


def count_by_part(model: SequenceModel) -> Parameters:
    """Trainable numbers by part, also with user-defined classes."""
    sums = {"embedding": 0, "encoder": 0, "decoder": 0, "positions": 0}
    for name, parameter in model.named_parameters():
        place = "positions" if "_positions." in name or ".scheme." in name else name.partition(".")[0].split("_")[0]
        sums[place if place in sums else "embedding"] += parameter.numel() if parameter.requires_grad else 0
    return Parameters(**sums, total=sum(sums.values()))


def run_flops(model: SequenceModel, data: TranslationData, source_tokens: int, target_tokens: int) -> int:
    """Training FLOPs by formula (model/size.py); attention pairs from the mean over the pairs that are trained on."""
    source, target, ids = data.lengths()
    source, target = source[ids].astype(float), target[ids].astype(float)
    epochs = target_tokens / target.sum()
    batches = data.experiment.training.steps / epochs
    pairs = AttentionPairs(*(round(x * epochs) for x in AttentionPairs.of(model.config, source, target, batches)))
    return training_flops(model.config, model.V, source_tokens, target_tokens, pairs, model.weights())
