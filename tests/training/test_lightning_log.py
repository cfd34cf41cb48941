"""A logger of the user's own Trainer sees training; a run without one computes nothing for it."""

import csv
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.training import module as training
from lightning_tfm.training.module import TransformerModule
from tests.helpers.tiny import experiment, in_child, write_corpus


def fit(folder: Path, logger: CSVLogger | bool, **changes) -> TransformerModule:
    torch.set_num_threads(1)
    e = experiment(write_corpus(folder / "text"), **changes)
    data = TranslationData(e, prepare(e.data, folder))
    module = TransformerModule(e, V=data.prepared.tokenizer.V)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=4,
        logger=logger,
        log_every_n_steps=2,
        use_distributed_sampler=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=data)
    return module


def both(folder: Path) -> tuple[list[dict], bool, list[float]]:
    """What a logger got, whether the weights are those of a run without one, and the sums of the latter."""
    with_logger = fit(folder, CSVLogger(str(folder), name="logs", version=""), training__clip_norm=0.05)
    training.log_step = None  # which is not called without a logger
    without = fit(folder, False, training__clip_norm=0.05)
    same = all(torch.equal(a, b) for a, b in zip(with_logger.parameters(), without.parameters(), strict=True))
    lines = list(csv.DictReader((folder / "logs" / "metrics.csv").read_text().splitlines()))
    return lines, same, without.sums.tolist()


def test_loss_nll_rate_and_gradient_norm_at_the_trainers_interval_and_no_bit_changes(tmp_path: Path) -> None:
    lines, same, sums = in_child(both, tmp_path)
    assert same and sums[0] > sums[1] > 0
    assert [int(line["step"]) for line in lines] == [1, 3]
    for line in lines:
        assert 3 < float(line["train_nll"]) < float(line["train_loss"]) < 9, "nats for a token of 44"
        assert float(line["grad_norm"]) > 0.05, "before clipping"
    assert float(lines[1]["lr"]) == pytest.approx(2 * float(lines[0]["lr"])), "warm-up"
