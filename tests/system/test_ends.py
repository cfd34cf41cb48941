"""How a run ends: stopped by a signal and gone on with on another layout, or failed, with a name in its record."""

import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lightning_tfm.config import Experiment, Hardware
from tests.helpers.tiny import attempt, experiment, in_child, metrics, write_corpus
from tests.system.moments import Strike

STEPS = 22
EXACT = {"training__steps": STEPS, "training__precision": "float64"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    write_corpus(root / "text", longest=22)
    return root


@pytest.fixture(scope="module")
def unbroken(corpus, tmp_path_factory) -> list[dict]:
    code, path = in_child(attempt, experiment(corpus / "text", **EXACT), tmp_path_factory.mktemp("unbroken"), often(1))
    assert code == 0
    return metrics(path)


def often(devices: int) -> Hardware:
    return Hardware(devices=devices, log_every=1, validate_every=5, checkpoint_every=9)


def struck(e: Experiment, root: Path, hardware: Hardware, strike: Strike) -> tuple[int, Path]:
    strike.arm()
    return attempt(e, root, hardware)


def outcome(path: Path) -> dict:
    return json.loads((path / "outcome.json").read_bytes())


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_writes_a_checkpoint_and_says_so(corpus, unbroken, tmp_path, signum, code):
    e = experiment(corpus / "text", **EXACT)
    found, path = in_child(struck, e, tmp_path, often(1), Strike("update", 13, signum))
    assert (found, outcome(path)["outcome"]) == (code, "interrupted")
    assert [file.name for file in sorted((path / "checkpoints").iterdir())][-1] == "step-00000013.ckpt"
    found, path = in_child(attempt, e, tmp_path, often(1))
    assert found == 0
    assert metrics(path) == unbroken


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_stopped_on_one_layout_and_gone_on_with_on_another(corpus, unbroken, tmp_path, before, after):
    """In mid-epoch. That every sentence still comes once, the plan's own tests say: the step is all its state.

    The record says where both parts were made, and counts the padding of all ranks: it came out negative.
    """
    e = experiment(corpus / "text", **EXACT)
    found, path = in_child(struck, e, tmp_path, often(before), Strike("update", 13, signal.SIGTERM))
    assert (found, len(metrics(path))) == (143, 13 + 2)
    found, path = in_child(attempt, e, tmp_path, often(after))
    assert found == 0
    ours, theirs = metrics(path), unbroken
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-9)
    record = json.loads((path / "result.json").read_bytes())
    parts = [(x["attempt"], x["first"], x["last"], x["hardware"]["processes"], x["device"]) for x in record["ran"]]
    assert parts == [(1, 1, 13, before, "cpu"), (2, 14, STEPS, after, "cpu")]
    assert all(one["versions"]["torch"] and one["seconds"] > 0 for one in record["ran"])
    assert 0 < record["padding"] < 0.5


@pytest.mark.parametrize("devices", [1, 2])
def test_checkpoints_by_the_clock_lose_nothing_else(corpus, unbroken, tmp_path, devices):
    """Due at once here, so that every step leaves one whatever the steps say; killed, the curve is that of no kill."""
    e = experiment(corpus / "text", **EXACT)
    hardware = Hardware(devices=devices, log_every=1, validate_every=5, checkpoint_every=1000, checkpoint_minutes=1e-9)
    found, path = in_child(struck, e, tmp_path, hardware, Strike("update", 13, signal.SIGTERM))
    assert found == 143
    there = [file.name for file in sorted((path / "checkpoints").iterdir())]
    assert there == ["step-00000012.ckpt", "step-00000013.ckpt"]
    assert in_child(attempt, e, tmp_path, hardware)[0] == 0
    for mine, other in zip(metrics(path), unbroken, strict=True):
        assert mine == (other if devices == 1 else pytest.approx(other, rel=1e-9))


def out_of_memory() -> None:
    from lightning_tfm.training.module import TransformerModule

    def batch_loss(self, batch, noise):
        raise torch.OutOfMemoryError("CUDA out of memory")

    TransformerModule.batch_loss = batch_loss


def full_disk() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("change", "spoil", "name", "said"),
    [
        ({"training__lr_factor": 1e30}, nothing, "nan_loss", "micro-batch 1 of shape"),
        ({}, out_of_memory, "out_of_memory", "out of memory"),
        ({}, full_disk, "disk_full", "File too large"),
    ],
    ids=["nan", "memory", "disk"],
)
def test_a_failure_has_a_name(corpus, tmp_path, change, spoil: Callable[[], None], name, said):
    e = experiment(corpus / "text", training__steps=STEPS, **change)

    def spoiled() -> tuple[int, Path]:
        from lightning_tfm.data.prepare import prepare

        prepare(e.data, tmp_path)
        spoil()
        return attempt(e, tmp_path, often(1))

    code, path = in_child(spoiled)
    found = outcome(path)
    assert code not in (0, 130, 143)
    assert found["outcome"] == name
    assert said in found["reason"]
    assert not (path / "result.json").exists()
    assert not list(path.glob("checkpoints/*.tmp"))
