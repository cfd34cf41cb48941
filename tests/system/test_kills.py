"""Killed at any moment a run loses the steps since its checkpoint and nothing else: the end is the same to the bit.

The long form takes LIGHTNING_TFM_KILLS runs on one process (default 20, the figure to report) and half as many on two;
a shorter form sets the variable lower.
"""

import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_tfm.accel.onednn import has_onednn
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.runs.process.process_id import start_ticks
from tests.helpers.tiny import LINES, attempt, experiment, in_child, metrics, weights, write_corpus, write_lines
from tests.helpers.waiting import wait_for
from tests.system.moments import MOMENTS, Strike

KILLS = int(os.environ.get("LIGHTNING_TFM_KILLS", "20"))
RANK_KILLS = max(1, KILLS // 2)
NOTICED = 60.0
"""seconds within which the death of a rank ends the others"""
HARDWARE = {"checkpoint_every": 4, "validate_every": 5, "log_every": 1}


MODERN = {
    "model__feed_forward": "geglu", "model__norm": "sandwich", "model__norm_kind": "rms",
    "training__optimizer": "muon", "training__weight_decay": 0.01, "training__schedule": "wsd",
}  # fmt: skip


def make(root: Path, **more: Any) -> Experiment:
    changes = {"training__steps": 22, "training__average_last": 2, "training__average_every": 6}
    return experiment(root / "text", **changes, **more)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    write_corpus(root / "text")
    return root


def armed(e: Experiment, root: Path, hardware: Hardware, strike: Strike, pids: Path) -> tuple[int, Path, Counter]:
    """`attempt` with a blow waiting in it. Ranks are forked from here, patched like this process."""
    from lightning_tfm.runs.train import Run

    seen, work = strike.arm(), Run.train

    def noted(run) -> None:
        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n")
        work(run)

    Run.train = noted
    return *attempt(e, root, hardware), seen


@pytest.fixture(scope="module")
def unbroken(corpus, tmp_path_factory):
    """Processes -> (directory of a run that nobody disturbed, how often each moment came)."""
    found = {}
    for devices in (1, 2):
        root = tmp_path_factory.mktemp(f"unbroken{devices}")
        hardware = Hardware(devices=devices, **HARDWARE)
        code, path, seen = in_child(armed, make(corpus), root, hardware, Strike(), root / "pids")
        assert code == 0
        found[devices] = path, seen
    return found[1][0], found[2][0], found[1][1]


def same(run: Path, expected: Path) -> None:
    """Weights, averaged weights, the whole curve and the scores, bit for bit."""
    ours, theirs = weights(run), weights(expected)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert metrics(run) == metrics(expected)
    results = [json.loads((path / "result.json").read_bytes()) for path in (run, expected)]
    for key in ("scores", "target_tokens", "source_tokens", "steps", "training_hash", "identity"):
        assert results[0][key] == results[1][key], key
    assert sorted(path.name for path in (run / "snapshots").iterdir()) == ["step-00000016.pt", "step-00000022.pt"]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000020.ckpt", "step-00000022.ckpt"]


def start(forks, root: Path, *args) -> int:
    def quiet() -> None:
        log = os.open(root / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.exit(armed(*args)[0])

    return forks.start(quiet)


def nothing_left(pids: Path) -> None:
    for pid in map(int, pids.read_text().split() if pids.exists() else []):
        wait_for(lambda pid=pid: start_ticks(pid) is None, NOTICED, f"process {pid} was left behind")


def kill_and_finish(forks, e: Experiment, root: Path, hardware: Hardware, strike: Strike) -> Path:
    """A run that is struck once, and then left in peace. Returns its directory."""
    ended = forks.join(start(forks, root, e, root, hardware, strike, root / "pids"), NOTICED + 60)
    if hardware.devices == 1:
        assert ended == -signal.SIGKILL
    else:
        outcome = next(root.glob("runs/*/outcome.json"))
        assert ended == 1
        assert f"rank {strike.rank} of 2: killed by SIGKILL" in json.loads(outcome.read_bytes())["reason"]
    nothing_left(root / "pids")
    code, path = in_child(attempt, e, root, hardware)
    assert code == 0
    assert len(list((path / "attempts").glob("*.json"))) == 2
    return path


def kill_by_the_clock(
    forks, e: Experiment, root: Path, hardware: Hardware, draw: random.Random, expected: Path
) -> Path:
    """As above, but at a time that nobody chose while it lasts, and on two ranks the launcher, too."""
    pid = start(forks, root, e, root, hardware, Strike(), root / "pids")
    time.sleep(draw.uniform(0.0, json.loads((expected / "result.json").read_bytes())["seconds"]["total"]))
    victims = [pid]
    if hardware.devices > 1 and (root / "pids").exists():
        victims += [pid for pid in map(int, (root / "pids").read_text().split()) if start_ticks(pid)]
    with suppress(ProcessLookupError):  # it came to its end in this moment
        os.kill(draw.choice(victims), signal.SIGKILL)
    forks.join(pid, NOTICED)
    nothing_left(root / "pids")
    code, path = in_child(attempt, e, root, hardware)
    assert code == 0
    return path


def nth(draw: random.Random, seen: Counter, moment: str) -> int:
    assert seen[moment], f"an unbroken run never comes to {moment}"
    return draw.randint(1, seen[moment])


@pytest.mark.parametrize(
    "moment", ["half a checkpoint", *(pytest.param(at, marks=pytest.mark.long) for at in ("validation", "epoch's end"))]
)
def test_one_process_killed(corpus, unbroken, tmp_path, forks, moment):
    strike = Strike(moment, max(2, unbroken[2][moment] // 2))
    same(kill_and_finish(forks, make(corpus), tmp_path, Hardware(**HARDWARE), strike), unbroken[0])


NO_ONEDNN = pytest.mark.skipif(not has_onednn(), reason="this torch has no oneDNN")


HALF, LSTM, T5 = (
    Strike("half a checkpoint", 2),
    {"model__layer": "lstm"},
    {"model__positions": "t5", "model__P_attention": 0.1},
)
LONG = pytest.mark.long
KINDS = {
    "a language model": pytest.param(LINES, HALF, "torch"),
    "one stack": pytest.param({"model__stack": "prefix", "model__P_attention": 0.1}, HALF, "torch", marks=LONG),
    "modern": pytest.param(MODERN, Strike("forward", 15), "torch", marks=LONG),
    "modern, oneDNN": pytest.param(MODERN, Strike("forward", 15), "onednn", marks=(LONG, NO_ONEDNN)),
    "lstm": pytest.param(LSTM, Strike("update", 11), "torch", marks=LONG),
    "t5": pytest.param(T5, Strike("update", 11), "torch", marks=LONG),
}


@pytest.mark.parametrize(("change", "strike", "products"), KINDS.values(), ids=KINDS)
def test_a_run_of_another_kind_killed(corpus, tmp_path_factory, tmp_path, forks, change, strike, products):
    """Muon's momentum and AdamW's moments come back from the checkpoint; oneDNN's sums are the same every time.

    Every layer type is stopped and resumed within a process in tests/training/test_dropout.py.
    """
    whole, hardware = tmp_path_factory.mktemp("whole"), Hardware(products=products, **HARDWARE)
    e = make(write_lines(whole / "text").parent if change is LINES else corpus, **change)
    code, expected = in_child(attempt, e, whole, hardware)
    assert code == 0
    same(kill_and_finish(forks, e, tmp_path, hardware, strike), expected)


def test_a_rank_of_two_killed(corpus, unbroken, tmp_path, forks):
    run = kill_and_finish(forks, make(corpus), tmp_path, Hardware(devices=2, **HARDWARE), Strike("forward", 13, rank=1))
    same(run, unbroken[1])


@pytest.mark.long
@pytest.mark.parametrize("number", range(KILLS))
def test_one_process_killed_at_every_moment(corpus, unbroken, tmp_path, forks, number):
    draw = random.Random(number)
    if number % 2:
        run = kill_by_the_clock(forks, make(corpus), tmp_path, Hardware(**HARDWARE), draw, unbroken[0])
    else:
        moment = MOMENTS[number // 2 % len(MOMENTS)]
        strike = Strike(moment, nth(draw, unbroken[2], moment))
        run = kill_and_finish(forks, make(corpus), tmp_path, Hardware(**HARDWARE), strike)
    same(run, unbroken[0])


ON_ALL_RANKS = ("forward", "update", "validation", "epoch's end", "decoding")


@pytest.mark.long
@pytest.mark.parametrize("number", range(RANK_KILLS))
def test_a_rank_of_two_killed_at_every_moment(corpus, unbroken, tmp_path, forks, number):
    draw = random.Random(100 + number)
    hardware = Hardware(devices=2, **HARDWARE)
    if number % 3 == 2:
        run = kill_by_the_clock(forks, make(corpus), tmp_path, hardware, draw, unbroken[1])
    else:
        rank = draw.randint(0, 1)
        moment = draw.choice(ON_ALL_RANKS if rank else MOMENTS)
        share = Counter({name: max(1, count // 2 - 1) for name, count in unbroken[2].items()})
        seen = share if moment in ("validation", "decoding") else unbroken[2]
        run = kill_and_finish(
            forks, make(corpus), tmp_path, hardware, Strike(moment, nth(draw, seen, moment), rank=rank)
        )
    same(run, unbroken[1])


@pytest.mark.long
def test_killed_again_and_again(corpus, unbroken, tmp_path, forks):
    """Every attempt dies a few steps further; what is lost is never more than the steps since the last checkpoint."""
    e, hardware = make(corpus), Hardware(**HARDWARE)
    for _ in range(5):
        pid = start(forks, tmp_path, e, tmp_path, hardware, Strike("update", 6), tmp_path / "pids")
        if forks.join(pid) != -signal.SIGKILL:
            break
    code, path = in_child(attempt, e, tmp_path, hardware)
    assert code == 0 and len(list((path / "attempts").glob("*.json"))) >= 5
    same(path, unbroken[0])


STEPS = 22
EXACT = {"training__steps": STEPS, "training__precision": "float64"}


@pytest.fixture(scope="module")
def long_corpus(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    write_corpus(root / "text", longest=22)
    return root


@pytest.fixture(scope="module")
def unbroken_curve(long_corpus, tmp_path_factory) -> list[dict]:
    code, path = in_child(
        attempt, experiment(long_corpus / "text", **EXACT), tmp_path_factory.mktemp("unbroken"), often(1)
    )
    assert code == 0
    return metrics(path)


def often(devices: int) -> Hardware:
    return Hardware(devices=devices, log_every=1, validate_every=5, checkpoint_every=9)


def struck(e: Experiment, root: Path, hardware: Hardware, strike: Strike) -> tuple[int, Path]:
    strike.arm()
    return attempt(e, root, hardware)


def outcome(path: Path) -> dict:
    return json.loads((path / "outcome.json").read_bytes())


@pytest.mark.parametrize(
    ("signum", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long), (signal.SIGINT, 130)]
)
def test_a_signal_writes_a_checkpoint_and_says_so(long_corpus, unbroken_curve, tmp_path, signum, code):
    e = experiment(long_corpus / "text", **EXACT)
    found, path = in_child(struck, e, tmp_path, often(1), Strike("update", 13, signum))
    assert (found, outcome(path)["outcome"]) == (code, "interrupted")
    assert [file.name for file in sorted((path / "checkpoints").iterdir())][-1] == "step-00000013.ckpt"
    found, path = in_child(attempt, e, tmp_path, often(1))
    assert found == 0
    assert metrics(path) == unbroken_curve


@pytest.mark.parametrize(("before", "after"), [(2, 1), pytest.param(1, 2, marks=pytest.mark.long)])
def test_stopped_on_one_layout_and_gone_on_with_on_another(long_corpus, unbroken_curve, tmp_path, before, after):
    """In mid-epoch. That every sentence still comes once, the plan's own tests say: the step is all its state.

    The record says where both parts were made, and counts the padding of all ranks: it came out negative.
    """
    e = experiment(long_corpus / "text", **EXACT)
    found, path = in_child(struck, e, tmp_path, often(before), Strike("update", 13, signal.SIGTERM))
    assert (found, len(metrics(path))) == (143, 13 + 2)
    found, path = in_child(attempt, e, tmp_path, often(after))
    assert found == 0
    ours, theirs = metrics(path), unbroken_curve
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-9)
    record = json.loads((path / "result.json").read_bytes())
    parts = [(x["attempt"], x["first"], x["last"], x["hardware"]["processes"], x["device"]) for x in record["ran"]]
    assert parts == [(1, 1, 13, before, "cpu"), (2, 14, STEPS, after, "cpu")]
    assert all(one["versions"]["torch"] and one["seconds"] > 0 for one in record["ran"])
    assert 0 < record["padding"] < 0.5


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.long)])
def test_checkpoints_by_the_clock_lose_nothing_else(long_corpus, unbroken_curve, tmp_path, devices):
    """Due at once here, so that every step leaves one whatever the steps say; killed, the curve is that of no kill."""
    e = experiment(long_corpus / "text", **EXACT)
    hardware = Hardware(devices=devices, log_every=1, validate_every=5, checkpoint_every=1000, checkpoint_minutes=1e-9)
    found, path = in_child(struck, e, tmp_path, hardware, Strike("update", 13, signal.SIGTERM))
    assert found == 143
    there = [file.name for file in sorted((path / "checkpoints").iterdir())]
    assert there == ["step-00000012.ckpt", "step-00000013.ckpt"]
    assert in_child(attempt, e, tmp_path, hardware)[0] == 0
    for mine, other in zip(metrics(path), unbroken_curve, strict=True):
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
def test_a_failure_has_a_name(long_corpus, tmp_path, change, spoil: Callable[[], None], name, said):
    e = experiment(long_corpus / "text", training__steps=STEPS, **change)

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
