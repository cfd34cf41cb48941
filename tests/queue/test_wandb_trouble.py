"""W&B in trouble while a run trains: its service is killed, its disk is full, its server cannot be reached."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lightning_tfm.queue import wandb_mirror
from lightning_tfm.queue.wandb_mirror import Mirror, mirrored
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.process_id import start_ticks
from lightning_tfm.study.cell import Cell
from tests.helpers import held
from tests.helpers.studies import leave
from tests.helpers.tiny import write_corpus
from tests.helpers.waiting import wait_for
from tests.queue.offline import read_back

ROOT = Path(__file__).parents[2]
SIZES = {"model.N": 1, "model.d_model": 16, "model.d_ff": 16, "model.h": 2, "model.d_k": 8, "model.d_v": 8}
SIZES |= {"data.corpus": "files", "data.vocab_size": 44, "training.tokens": 200, "training.steps": 1600}
SIZES |= {"model.positions": held.NAME, "training.warmup": 50, "evaluation.extra_len": 4, "evaluation.beam": 1}
SIZES |= {"trainer.log_every": 10, "trainer.threads": 1, "trainer.accelerator": "cpu"}


@pytest.fixture(autouse=True)
def quiet(monkeypatch) -> None:
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_PROJECT", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)


def call(*argv: str) -> list[str]:
    return [sys.executable, "-m", "lightning_tfm.cli.main", *argv]


class Fit:
    """`fit --wandb offline`, running; held back until `let_go`."""

    def __init__(self, out: Path, text: Path, mode: str) -> None:
        options = [f"--{k}={v}" for k, v in (SIZES | {"data.folder": str(text), "out": str(out)}).items()]
        self.out, self.said = out, out / "said"
        out.mkdir(exist_ok=True)
        environment = os.environ | {held.VARIABLE: str(out / "go")}
        with self.said.open("w") as file:
            self.process = subprocess.Popen(
                call("fit", *options, "--wandb", mode), cwd=ROOT, env=environment, stdout=file, stderr=file
            )

    def let_go(self) -> None:
        (self.out / "go").touch()

    @property
    def wandb(self) -> Path:
        return self.out / "studies" / "fit"

    def until(self, condition: Callable[[], object], seconds: float = 90.0) -> None:
        def there() -> object:
            assert self.process.poll() is None, self.said.read_text()
            return condition()

        wait_for(there, seconds, self.said.read_text)

    def step(self) -> int:
        found = list(self.out.glob("runs/*/progress.json"))
        return json.loads(found[0].read_text())["step"] if found else 0

    def end(self) -> Path:
        assert self.process.wait(180) == 0, self.said.read_text()
        (run,) = self.out.glob("runs/*")
        assert json.loads((run / "result.json").read_text())["steps"] == SIZES["training.steps"]
        return run


def curve(run: Path) -> dict[int, float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def assert_all_there(found: dict[str, list[dict]], run: Path) -> None:
    """Every step with our value, one whose file was not closed perhaps twice, and the scores."""
    (history,) = found.values()
    logged = [(item["optimizer_step"], item["train/loss"]) for item in history if "train/loss" in item]
    assert set(logged) == set(curve(run).items())
    score = json.loads((run / "result.json").read_text())["scores"]["dev"]["bleu"]
    assert {item["dev/bleu"] for item in history if "dev/bleu" in item} == {score}


def services() -> set[int]:
    """Pids of W&B's service processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"wandb-core" in path.read_bytes().split(b"\0")[0]:
                found.add(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):  # it ended
            continue
    return found


def mine(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return False
    return pid == ancestor


@pytest.mark.long
def test_its_service_killed_in_mid_run_costs_nothing(tmp_path: Path) -> None:
    fit = Fit(tmp_path / "out", write_corpus(tmp_path / "text"), "offline")
    found: list[int] = []

    def look() -> bool:
        found[:] = [pid for pid in services() if mine(pid, fit.process.pid)]
        return bool(found) and fit.step() > 20

    fit.until(look)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    assert fit.step() < SIZES["training.steps"], "too late for this test"
    fit.let_go()
    run = fit.end()
    assert "replay" not in fit.said.read_text(), "the mirror is started again and sends the rest by itself"
    assert_all_there(read_back(fit.wandb), run)
    assert not [pid for pid in found if start_ticks(pid)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "out" / "studies" / "fit" / "wandb"
    folder.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        warnings.warn("NOT TESTED, no small disk could be mounted (that takes root)", stacklevel=1)
        pytest.skip("mount: " + done.stderr.decode())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.long
def test_its_disk_full_in_mid_run_is_said_and_replay_sends_the_rest(tmp_path: Path, small_disk: Path) -> None:
    fit = Fit(tmp_path / "out", write_corpus(tmp_path / "text"), "offline")
    fit.until(lambda: fit.step() > 20 and list(small_disk.glob("offline-run-*/*.wandb")))
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    fit.let_go()
    run = fit.end()
    said = fit.said.read_text()
    assert f"no run was harmed; to send what is missing there: lightning-tfm wandb replay {run}" in said
    again = call("wandb", "replay", str(run), "--mode", "offline")
    full = subprocess.run(again, cwd=ROOT, capture_output=True, text=True)
    assert full.returncode == 2 and "the same command sends the rest" in full.stderr
    filler.unlink()
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_all_there(read_back(fit.wandb), run)


@pytest.mark.long
def test_its_server_out_of_reach_is_said_and_nothing_is_taken_for_sent(tmp_path: Path, forks, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setattr(wandb_mirror, "PATIENCE", 8.0)
    cell = Cell("r", 1, "a" * 64, 1.0)
    folder, said = RunFolder(tmp_path, cell.training_hash), []
    files = tmp_path / "studies" / "s"
    with mirrored("online", tmp_path, "s", files, lambda: [cell], said.append):
        attempt = folder.claim()
        attempt.write_json(folder.experiment, {})
        began = time.monotonic()
        for step in range(1, 21):
            attempt.append_metrics({"step": step, "loss": 1 / step})
            time.sleep(0.1)
        assert time.monotonic() - began < wandb_mirror.PATIENCE, "the run waited for W&B"
        leave(attempt, steps=20, scores={})
        attempt.release()
    assert len(said) == 1 and "lightning-tfm wandb replay s" in said[0]
    assert not (folder.path / "wandb.json").exists()
    look = forks.start(lambda: Mirror(files, "offline", "s").look(tmp_path, [cell]))  # W&B stays in this process
    assert forks.join(look) == 0
    (history,) = read_back(files).values()
    assert [item["optimizer_step"] for item in history if "train/loss" in item] == list(range(1, 21))
