"""W&B: its agent, the mirror of runs, and trouble with its service."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wandb
import yaml
from wandb.util import get_core_path

from lightning_tfm.queue import wandb_mirror
from lightning_tfm.queue.wandb_mirror import Mirror, mirror_to_wandb, send_verdicts
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.process_id import start_ticks
from lightning_tfm.study.cell import Cell
from tests.helpers import held
from tests.helpers.studies import leave
from tests.helpers.tiny import write_corpus
from tests.helpers.waiting import wait_for

ROOT = Path(__file__).parents[2]
AGENT = """
import json, sys
import wandb
from wandb import wandb_agent
from wandb.apis.public import sweeps

command, arguments, program = json.loads(sys.argv[1])
waiting = [{"type": "run", "run_id": name, "program": program, "args": arguments} for name in ("first1", "second2")]
sweeps._sweep_with_runs = lambda api, sweep, specs: {"config": json.dumps({"command": command})}
sweeps._register_agent = lambda api, host, sweep_id: {"id": "agent"}
sweeps._agent_heartbeat = lambda api, agent, metrics, status: [waiting.pop(0)] if waiting and not status else []
wandb.Api = lambda: None
wandb_agent.Agent.POLL_INTERVAL = 0.2
wandb_agent.Agent(None, __import__("queue").Queue(), sweep_id="sweep9", count=2).run()
"""


@pytest.mark.long
def test_a_run_of_an_agent_is_one_run_there_and_a_finished_one_reports_what_is_stored(tmp_path: Path) -> None:
    sweep = yaml.safe_load((ROOT / "sweeps" / "heads.yaml").read_text())
    assert sweep["program"] == "lightning-tfm" and sweep["command"][-1] == "${args}"
    text, out = write_corpus(tmp_path / "text"), tmp_path / "out"
    fixed = ["--model.N=1", "--model.d_model=16", "--model.d_ff=16", "--data.corpus=files", f"--data.folder={text}"]
    fixed += ["--training.warmup=8"]
    fixed += ["--data.vocab_size=44", "--training.steps=40", "--training.tokens=200", "--evaluation.extra_len=4"]
    fixed += [f"--out={out}", "--wandb=offline", "--trainer.accelerator=cpu", "--trainer.log_every=10"]
    command = ["${env}", sys.executable, "-m", "lightning_tfm.cli.main", "fit", *fixed, "${args}"]
    chosen = {"model.h": 4, "model.d_k": 5, "model.d_v": 3, "training.lr_factor": 1e-05, "model.positions": "learned"}
    chosen |= {"model.attention_bias": True}
    handed = [command, {key: {"value": value} for key, value in chosen.items()}, sweep["program"]]
    environment = os.environ | {"WANDB_SWEEP_ID": "sweep9", "WANDB_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for name in ("WANDB_RUN_ID", "WANDB_PROJECT", "WANDB_MODE"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", AGENT, json.dumps(handed)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (run,) = out.glob("runs/*")
    experiment, result = (json.loads((run / name).read_text()) for name in ("experiment.json", "result.json"))
    for key, value in chosen.items():
        section, name = key.split(".")
        assert experiment[section][name] == value
    assert result["attempts"] == 1 and "is already trained" in done.stderr
    found = read_back(out / "studies" / "fit")
    assert sorted(found) == ["first1", "second2"], "the agent's ids"
    assert _values(found["first1"]) == _values(found["second2"])
    assert [item["optimizer_step"] for item in found["second2"] if "train/loss" in item] == [10, 20, 30, 40]
    assert [i["dev/ppl"] for i in found["second2"] if "dev/bleu" in i] == [result["scores"]["dev"]["ppl"]]


def read_back(folder: Path) -> dict[str, list[dict]]:
    """W&B run id -> its history, all offline folders of that run together."""
    return {
        run: [item["history"]["item"] for item in items if item["type"] == "history"]
        for run, items in read_all(folder).items()
    }


def read_all(folder: Path) -> dict[str, list[dict]]:
    """W&B run id -> all that its files hold."""
    found: dict[str, list[dict]] = {}
    for record in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")):
        command = [get_core_path(), "leet", "inspect", "--no-observability", "--json"]
        command += ["--run-file", str(record), str(record.parents[1])]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        found.setdefault(record.stem.removeprefix("run-"), []).extend(json.loads(line) for line in lines)
    return found


def _values(history: list[dict]) -> list[dict]:
    return [{key: value for key, value in item.items() if "/" in key and "translations" not in key} for item in history]


TRANSLATIONS = ["eins\u2028noch\x85eins", "", "zwei"]
CELLS = [Cell(f"r{i}", 1, f"{i}abc".ljust(64, "0"), 1.0) for i in range(2)]


def write_run(root: Path, cell: Cell, steps: range, whole: bool, **scored: Any) -> None:
    folder = RunFolder(root, cell.training_hash)
    attempt = folder.claim()
    attempt.write_json(folder.experiment, {"model": {"h": 4}})
    for step in steps:
        attempt.append_metrics({"step": step, "loss": 5 / step, "lr": 0.1})
        attempt.append_metrics({"step": step, "dev_ppl": 9 / step})
    if whole:
        hyp = folder.scores("e" * 64) / "val.hyp.txt"
        attempt.write(hyp, "".join(f"{line}\n" for line in TRANSLATIONS).encode())
        leave(attempt, ppl=2.5, bleu=11.0, **scored)
    attempt.release()


@pytest.fixture(autouse=True)
def quiet(monkeypatch) -> None:
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_PROJECT", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)


def test_what_is_damaged_of_each_run_is_named_on_a_line_of_its_own(tmp_path: Path, monkeypatch, capsys) -> None:
    class Sent:
        id = "r"
        log = staticmethod(lambda values: None)

    mirror = Mirror(tmp_path / "studies" / "s", "offline", "s", _sent={"r": set()})
    monkeypatch.setattr(Mirror, "_run", lambda self, folder, cell, records: Sent)
    monkeypatch.setattr(Mirror, "_end", lambda self, *of_run: None)
    for cell in CELLS:
        write_run(tmp_path, cell, range(1, 4), whole=True)
        metrics = RunFolder(tmp_path, cell.training_hash).metrics
        metrics.write_bytes(metrics.read_bytes() + b"nonsense\n")
    mirror.look(tmp_path, CELLS)
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["r0 seed 1", "r1 seed 1"]


@pytest.mark.long
def test_one_run_each_with_our_values_and_a_resumed_one_repeats_no_step(tmp_path: Path, forks, monkeypatch) -> None:
    folder = tmp_path / "studies" / "s"

    def look() -> None:
        wandb.setup()  # a service that was started elsewhere (WANDB_SERVICE) has a working directory of its own
        monkeypatch.chdir(tmp_path)
        mirror = Mirror(Path("studies/s"), "offline", "s")
        mirror.look(tmp_path, CELLS)
        mirror.close()

    write_run(tmp_path, CELLS[0], range(1, 7), whole=True)
    write_run(tmp_path, CELLS[1], range(1, 4), whole=False)
    assert forks.join(forks.start(look)) == 0
    # W&B calls the second folder of one second …-1
    (half,) = folder.glob(f"wandb/offline-run-*-{CELLS[1].training_hash[:16]}")
    half.rename(half.with_name(f"offline-run-20260101_000000-{half.name.split('-')[3]}-1"))
    write_run(tmp_path, CELLS[1], range(4, 7), whole=True)
    assert forks.join(forks.start(look)) == 0
    found = read_back(folder)
    assert sorted(found) == [cell.training_hash[:16] for cell in CELLS]
    for history in found.values():
        steps = [h for h in history if "train/loss" in h]
        assert [h["optimizer_step"] for h in steps] == [1, 2, 3, 4, 5, 6]
        assert all(h["train/loss"] == 5 / h["optimizer_step"] for h in steps)
        assert all(h["dev/ppl"] == 9 / h["optimizer_step"] for h in steps)
        assert [h["dev/bleu"] for h in history if "dev/bleu" in h] == [11.0]


@pytest.mark.long
def test_a_row_that_was_renamed_has_its_new_name_there_and_is_sent_once_more(tmp_path: Path, forks) -> None:
    folder, (cell, shared) = tmp_path / "studies" / "s", CELLS
    write_run(tmp_path, cell, range(1, 4), whole=True)
    write_run(tmp_path, shared, range(1, 4), whole=True)

    def look(group: str, *cells: Cell) -> None:
        mirror = Mirror(folder, "offline", group)
        mirror.look(tmp_path, list(cells))
        mirror.close()

    renamed = replace(cell, row="wide")
    assert forks.join(forks.start(lambda: look("s", cell, shared))) == 0
    for _ in range(2):
        assert forks.join(forks.start(lambda: look("s", renamed, shared))) == 0
    assert forks.join(forks.start(lambda: look("another", replace(shared, row="theirs")))) == 0
    items = [item for item in read_all(folder)[cell.training_hash[:16]] if item["type"] == "run"]
    assert [item["run"]["display_name"] for item in items] == ["r0 seed 1", "wide seed 1"], "once"
    summary = [
        item["summary"]["update"] for item in read_all(folder)[cell.training_hash[:16]] if item["type"] == "summary"
    ]
    assert [one["row"] for one in summary if "row" in one][-1] == "wide"
    (theirs,) = [item for item in read_all(folder)[shared.training_hash[:16]] if item["type"] == "run"]
    assert theirs["run"]["display_name"] == "r1 seed 1", "the study that sent a run names it"


@pytest.mark.long
def test_summaries_say_what_a_run_is_and_verdicts_and_translations_are_tables(tmp_path: Path, forks) -> None:
    folder, said = tmp_path / "studies" / "s", []
    cells = [Cell("base", 1, CELLS[0].training_hash, 1.0), Cell("r1", 1, CELLS[1].training_hash, 1.0)]
    for cell in cells:
        write_run(tmp_path, cell, range(1, 3), whole=True)
    ppl = ["ppl difference percent estimate", "ppl difference verdict"]
    heads = ["row", "flops", *ppl, "bleu difference estimate", "bleu difference verdict"]
    rows = [["base", 1e9, None, None, None, None], ["r1", 2e9, 3.5, "reproduced", -0.2, "undecided"]]

    def send() -> None:
        mirror = Mirror(folder, "offline", "s")
        mirror.look(tmp_path, cells)
        mirror.close()
        send_verdicts(folder, "offline", "s", (heads, rows, {"differences": "<svg/>"}), said.append)
        assert not said, said

    assert forks.join(forks.start(send)) == 0
    found = read_all(folder)
    summaries = {run: {} for run in found}
    for run, items in found.items():
        for item in items:
            summaries[run] |= item["summary"]["update"] if item["type"] == "summary" else {}
    other = summaries[CELLS[1].training_hash[:16]]
    assert (other["row"], other["seed"], other["study"], other["flops"]) == ("r1", 1, "s", 10**11)
    table = summaries["table-s"]
    assert [table[f"r1/{head}"] for head in (*ppl, "flops")] == [3.5, "reproduced", 2e9]
    assert (table["verdicts.nrows"], table["verdicts.ncols"]) == (2, 6)
    (page,) = folder.glob("wandb/offline-run-*-table-s/files/media/html/differences*.html")
    assert page.read_text() == "<svg/>"
    (path,) = folder.glob("wandb/offline-run-*-table-s/files/media/table/verdicts*.json")
    assert json.loads(path.read_text()) == {"columns": heads, "data": rows}, "numbers as numbers"
    tables = [json.loads(p.read_text()) for p in folder.glob("wandb/*/files/media/table/dev/translations*.json")]
    assert [table["data"] for table in tables] == [[[i, line] for i, line in enumerate(TRANSLATIONS)]] * 2


@pytest.mark.long
def test_a_mirror_that_died_is_started_again_once_and_sends_all(tmp_path: Path) -> None:
    said: list[str] = []
    folder, died = tmp_path / "studies" / "s", tmp_path / "died"
    write_run(tmp_path, CELLS[0], range(1, 7), whole=True)

    def cells() -> list[Cell]:
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return CELLS[:1]

    with mirror_to_wandb("offline", tmp_path, "s", folder, cells, said.append):
        wait_for(died.exists, what="the mirror's first look")
    (history,) = read_back(folder).values()
    assert [h["optimizer_step"] for h in history if "train/loss" in h] == [1, 2, 3, 4, 5, 6] and not said


@pytest.mark.long
def test_a_killed_mirror_harms_nobody_and_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    write_run(tmp_path, CELLS[0], range(1, 3), whole=False)

    def broken() -> list[Cell]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    folder = tmp_path / "studies" / "s"
    with mirror_to_wandb("offline", tmp_path, "s", folder, broken, said.append):
        pass
    assert len(said) == 1 and "no run was harmed" in said[0] and "wandb replay s" in said[0]
    assert f", see {folder / 'mirror.log'}; " in said[0] and (folder / "mirror.log").is_file()


@pytest.mark.long
def test_a_folder_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    said: list[str] = []
    blocked = tmp_path / "file"
    blocked.write_text("")
    with mirror_to_wandb("offline", tmp_path, "s", blocked / "s", lambda: CELLS, said.append):
        pass
    assert len(said) == 1 and "replay" in said[0]
    assert "mirror.log" not in said[0], "there is none"


SIZES = {"model.N": 1, "model.d_model": 16, "model.d_ff": 16, "model.h": 2, "model.d_k": 8, "model.d_v": 8}
SIZES |= {"data.corpus": "files", "data.vocab_size": 44, "training.tokens": 200, "training.steps": 320}
SIZES |= {"model.positions": held.NAME, "training.warmup": 10, "evaluation.extra_len": 4, "evaluation.beam": 1}
SIZES |= {"trainer.log_every": 2, "trainer.threads": 1, "trainer.accelerator": "cpu"}


def call(*argv: str) -> list[str]:
    return [sys.executable, "-m", "lightning_tfm.cli.main", *argv]


class Fit:
    """`fit --wandb offline`, running; held back until `let_go`."""

    def __init__(self, out: Path, text: Path, mode: str) -> None:
        options = [f"--{k}={v}" for k, v in (SIZES | {"data.folder": str(text), "out": str(out)}).items()]
        self.out, self.said = out, out / "said"
        out.mkdir(exist_ok=True)
        environment = os.environ | {held.VARIABLE: str(out / "go"), "HELD_SECONDS": "0.1"}
        with self.said.open("w") as file:
            self.process = subprocess.Popen(
                call("fit", *options, "--wandb", mode), cwd=ROOT, env=environment, stdout=file, stderr=file
            )

    def let_go(self) -> None:
        (self.out / "go").touch()

    @property
    def wandb(self) -> Path:
        return self.out / "studies" / "fit"

    def until(self, condition: Callable[[], object], seconds: float = 200.0) -> None:
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
        return bool(found) and fit.step() > 4

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
    fit.until(lambda: fit.step() > 4 and list(small_disk.glob("offline-run-*/*.wandb")))
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
    with mirror_to_wandb("online", tmp_path, "s", files, lambda: [cell], said.append):
        attempt = folder.claim()
        attempt.write_json(folder.experiment, {})
        began = time.monotonic()
        for step in range(1, 21):
            attempt.append_metrics({"step": step, "loss": 1 / step})
            time.sleep(0.01)
        assert time.monotonic() - began < wandb_mirror.PATIENCE, "the run waited for W&B"
        leave(attempt, steps=20, scores={})
        attempt.release()
    assert len(said) == 1 and "lightning-tfm wandb replay s" in said[0]
    assert not (folder.path / "wandb.json").exists()
    look = forks.start(lambda: Mirror(files, "offline", "s").look(tmp_path, [cell]))  # W&B stays in this process
    assert forks.join(look) == 0
    (history,) = read_back(files).values()
    assert [item["optimizer_step"] for item in history if "train/loss" in item] == list(range(1, 21))
