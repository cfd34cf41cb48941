"""The LightningDataModule: prepared text in, planned batches out."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import lightning.pytorch as pl
import numpy as np

from lightning_tfm.config import Experiment
from lightning_tfm.data.batch import Batch, Step, make_batch
from lightning_tfm.data.batch_plan import Plan, cut_by_budget
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.token_store import EncodedText, Split

if TYPE_CHECKING:
    from lightning_tfm.data.prefetcher import Prefetcher

EVALUATION_TOKENS = 4096
"""Source or target tokens of one batch when scoring. Fixed, so that scores do not depend on the hardware."""


class TranslationData(pl.LightningDataModule):
    """Batches of `experiment` (at its true sizes, see `Experiment.scaled`) from its text (`prepare.prepare`).

    `micro_tokens` limits the padded tokens of a micro-batch (0: no limit). Use it with
    `Trainer(use_distributed_sampler=False, max_steps=…)`: one batch is one optimizer step.
    """

    def __init__(self, experiment: Experiment, prepared: Prepared, micro_tokens: int = 0):
        super().__init__()
        self.experiment, self.prepared, self.micro_tokens = experiment, prepared, micro_tokens

    def lengths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pieces of source and target of all training pairs, end token included; those not above data.max_len."""
        split, limit = self.prepared.train, self.experiment.data.max_len
        source, target = split.source_lengths + 1, split.target_lengths + 1
        return source, target, np.flatnonzero((source <= limit) & (target <= limit))

    def plan(self) -> Plan:
        """The plan of the training split, without the pairs above data.max_len."""
        source, target, ids = self.lengths()
        return Plan(source, target, self.experiment.training.tokens, self.experiment.training.seed, ids)

    def train_dataloader(self) -> "StepLoader | Prefetcher":
        trainer = self._trainer()
        split = self.prepared.train
        world, rank, first = trainer.world_size, trainer.global_rank, trainer.global_step
        loader = StepLoader(self.plan(), split, first, rank, world, self.micro_tokens)
        kind = trainer.strategy.root_device.type
        if kind == "cpu":
            return loader
        from lightning_tfm.data.prefetcher import Prefetcher

        return Prefetcher(loader, pinned=kind == "cuda")

    def val_dataloader(self) -> "Batches":
        return self._share_of(self.experiment.data.dev)

    def test_dataloader(self) -> "Batches":
        return self._share_of(self.experiment.data.test)

    def _share_of(self, split_name: str) -> "Batches":
        """This rank's batches of a split: whole batches are dealt, so over all ranks every line comes exactly once."""
        trainer = self._trainer()
        return Batches(evaluation_batches(self.prepared.split(split_name))[trainer.global_rank :: trainer.world_size])

    def _trainer(self) -> pl.Trainer:
        assert self.trainer is not None, "a trainer asks for its loaders"
        return self.trainer


def evaluation_batches(split: Split | EncodedText) -> list[Batch]:
    """All batches of a split, sentences of similar length together; `index_B` holds line numbers from 0."""
    source, target = split.source_lengths + 1, split.target_lengths + 1
    order = np.lexsort((target, source))
    edges = cut_by_budget(source[order], target[order], max(EVALUATION_TOKENS, int(source.max()), int(target.max())))
    lines = [order[a:b] for a, b in pairwise(edges)]
    return [make_batch([split.source(i) for i in ids], [split.target(i) for i in ids], ids) for ids in lines]


class Batches:
    """Batches as one loader; Lightning takes a list for a list of loaders."""

    def __init__(self, batches: list[Batch]):
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


class StepLoader:
    """Endless optimizer steps from `first` on. Its only state is the trainer's own step count."""

    def __init__(self, plan: Plan, split: Split, first: int, rank: int, world: int, micro_tokens: int):
        self.plan, self.split, self.first = plan, split, first
        self.rank, self.world, self.micro_tokens = rank, world, micro_tokens

    def __iter__(self) -> Iterator[Step]:
        step = self.first
        while True:
            yield self.step(step)
            step += 1

    def step(self, step: int) -> Step:
        ids = self.plan.global_batch(step)
        micro = []
        for positions in self.plan.micro_batches(step, self.rank, self.world, self.micro_tokens):
            chosen = ids[positions]
            source, target = [self.split.source(i) for i in chosen], [self.split.target(i) for i in chosen]
            micro.append(make_batch(source, target, positions))
        return Step(step, *self.plan.step_tokens(step), micro)
