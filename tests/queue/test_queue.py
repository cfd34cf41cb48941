"""The queue, devices, and Optuna's dashboard."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect, sync_playwright

from lightning_tfm.errors import UserError
from lightning_tfm.queue import launch, resources
from lightning_tfm.queue.queue import RETRIES, Queue
from lightning_tfm.queue.resources import Devices, Resources, find_devices, how_shared, visible_gpus
from lightning_tfm.queue.sampling import optuna_params
from lightning_tfm.queue.storage import Storage, find_storage
from lightning_tfm.study.cell import Cell
from tests.helpers import launching
from tests.helpers.browser import chromium
from tests.helpers.launching import Task, ablation
from tests.helpers.studies import leave, own_row
from tests.helpers.waiting import free_ports, wait_for


@pytest.fixture(params=["journal", pytest.param("postgres", marks=pytest.mark.long)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return _storage(request, tmp_path)


@pytest.fixture(params=["journal", "postgres"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """For the few tests that meet the server in every run of the suite."""
    return _storage(request, tmp_path)


def _storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "journal":
        return find_storage("", tmp_path)
    return find_storage(request.getfixturevalue("postgres").url, tmp_path)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name} {time.time()}"  # the server outlives the test


def cells(count: int, seeds: int = 1) -> list[Cell]:
    return [Cell(f"r{i}", seed, f"{i}-{seed}".ljust(64, "0"), float(i)) for i in range(count) for seed in range(seeds)]


def test_trials_of_a_table_show_row_seed_and_changed_fields(both: Storage, name: str) -> None:
    """Also of rows and seeds that are added later, as far as Optuna lets a parameter's values grow: not at all."""
    rows = [own_row("base"), own_row("A", {"model.h": 1, "model.norm": "pre"})]
    table = replace(ablation("t"), rows=rows, seeds=[21, 22])
    queue = Queue(name, both)
    queue.enqueue([Cell("old", 1, "0" * 64, 1e20)])  # as a study has it that was begun before
    assert queue.enqueue(table.cells(), params_of=optuna_params(table)) == 4
    told = {(t.user_attrs["row"], t.user_attrs["seed"]): t.params for t in queue.trials()}
    assert told["old", 1] == {}
    assert told["base", 21] == {"row": "base", "seed": 21, "model.h": 8, "model.norm": "post"}
    assert told["A", 22] == {"row": "A", "seed": 22, "model.h": 1, "model.norm": "pre"}
    more = replace(table, rows=[*rows, own_row("B", {"model.h": 4})], seeds=[21, 22, 23])
    assert queue.enqueue(more.cells(), params_of=optuna_params(more)) == 5
    late = {(t.user_attrs["row"], t.user_attrs["seed"]): t.params for t in Queue(name, both).trials()}
    assert late["B", 21] == {"seed": 21, "model.norm": "post"}
    assert late["A", 23] == {"row": "A", "model.h": 1, "model.norm": "pre"}
    claim = queue.claim()
    assert claim is not None and claim.cell.row == "old", "the longest first, as ever"
    queue.fail(claim, "interrupted", "stopped")
    assert queue.enqueue(more.cells(), params_of=optuna_params(more)) == 0


def test_two_launchers_at_once_add_each_cell_once(both: Storage, name: str, forks) -> None:
    pids = [forks.start(lambda: Queue(name, both).enqueue(cells(6))) for _ in range(3)]
    assert [forks.join(pid) for pid in pids] == [0, 0, 0]
    queue = Queue(name, both)
    assert Counter(trial.user_attrs["row"] for trial in queue._trials()) == {f"r{i}": 1 for i in range(6)}


def test_another_experiment_under_the_same_name_is_refused_and_nothing_is_written(storage: Storage, name: str) -> None:
    queue = Queue(name, storage)
    queue.enqueue(cells(1))
    with pytest.raises(UserError, match="row r0, seed 0 of another experiment"):
        queue.enqueue([Cell("new", 0, "e" * 64, 1.0), Cell("r0", 0, "f" * 64, 1.0)])
    assert len(queue.states()) == 1


def test_the_longest_run_is_claimed_first_and_a_skipped_one_stays(storage: Storage, name: str) -> None:
    queue = Queue(name, storage)
    queue.enqueue(cells(4))
    claimed = [queue.claim(skip=lambda run: run.startswith("3")) for _ in range(4)]
    assert [claim and claim.cell.row for claim in claimed] == ["r2", "r1", "r0", None]
    assert [state.state for state in queue.states()] == ["running"] * 3 + ["waiting"]


def test_workers_claim_each_cell_once(both: Storage, name: str, tmp_path: Path, forks) -> None:
    Queue(name, both).enqueue(cells(12))

    def worker() -> None:
        queue = Queue(name, both)
        while claim := queue.claim():
            with (tmp_path / "claimed").open("a") as file:
                file.write(f"{claim.cell.row}\n")
            assert queue.finish(claim, 1.0)

    assert [forks.join(pid) for pid in [forks.start(worker) for _ in range(3)]] == [0] * 3
    assert sorted((tmp_path / "claimed").read_text().split()) == sorted(f"r{i}" for i in range(12))
    queue = Queue(name, both)
    assert queue.done() and {state.state for state in queue.states()} == {"finished"}


def test_a_dead_owners_cell_is_requeued_by_exactly_one_of_many(storage: Storage, name: str, forks) -> None:
    queue = Queue(name, storage, grace=60)
    queue.enqueue(cells(2))
    for again in (1, 2):
        pid = forks.start(lambda: Queue(name, storage).claim())
        assert forks.join(pid) == 0
        reapers = [
            forks.start(lambda: (_ for _ in ()).throw(SystemExit(Queue(name, storage).reap()))) for _ in range(4)
        ]
        assert sorted(forks.join(reaper) for reaper in reapers) == [0, 0, 0, 1]
        states = {state.cell.row: state for state in queue.states()}
        assert (states["r1"].state, states["r1"].attempt) == ("waiting", 1 + again)
    assert len(queue._trials()) == 4
    assert queue._trials()[-1].user_attrs["retry_of"] == 2


def test_a_sampler_that_computes_holds_up_its_own_study_alone(both: Storage, name: str, tmp_path: Path, forks) -> None:
    def slow() -> None:
        def propose(trial_id: int, number: int) -> Cell:
            (tmp_path / "computing").touch()
            wait_for((tmp_path / "enough").exists)
            return cells(1)[0]

        Queue(name, both, budget=2).begin(propose)

    def other(name: str) -> None:
        queue = Queue(name, both)
        queue.enqueue(cells(1))
        assert queue.finish(queue.claim(), 1.0)

    computing = forks.start(slow)
    wait_for((tmp_path / "computing").exists)
    own = forks.start(lambda: (Queue(name, both, budget=2).enqueue(cells(1)), (tmp_path / "queued").touch()))
    assert forks.join(forks.start(lambda: other(f"{name}, another"))) == 0
    assert Queue(name, both, budget=2, create=False).states() == [], "looking waits for nobody"
    assert not (tmp_path / "queued").exists()
    (tmp_path / "enough").touch()
    assert [forks.join(computing), forks.join(own)] == [0, 0]


def test_a_silent_owner_is_reaped_after_the_grace_period_and_cannot_finish(both, name, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("lightning_tfm.queue.queue.time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    stopped, other = Queue(name, both, grace=60), Queue(name, both, grace=60)
    stopped.enqueue(cells(1))
    claim = stopped.claim()
    assert claim is not None
    for now[0] in range(0, 300, 50):  # as long as it beats it is left alone
        assert stopped.beat(claim) and other.reap() == 0
    now[0] += 60
    assert other.reap() == 0
    now[0] += 1
    assert other.reap() == 1
    assert other.reap() == 0
    assert not stopped.beat(claim)
    assert not stopped.finish(claim, 1.0)
    assert not stopped.fail(claim, "failed", "late")
    again = other.claim()
    assert again is not None and again.attempt == 2 and other.finish(again, 1.0)
    assert [trial.state.name for trial in other._trials()] == ["FAIL", "COMPLETE"]


def test_a_claimer_that_dies_between_its_two_writes_leaves_the_cell_to_the_next(storage, name, monkeypatch):
    queue = Queue(name, storage)
    queue.enqueue(cells(1))
    monkeypatch.setattr(queue._storage, "set_trial_state_values", lambda *a, **k: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        queue.claim()
    other = Queue(name, storage)
    assert other.states()[0].owner is None
    claim = other.claim()
    assert claim is not None and claim.attempt == 1
    assert other.states()[0].owner is not None


def test_a_reaper_killed_between_its_two_writes_loses_no_cell(storage, name, monkeypatch):
    queue = Queue(name, storage)
    queue.enqueue(cells(1))
    claim = queue.claim()
    assert claim is not None
    monkeypatch.setattr(queue, "_copy", lambda trial: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        queue.fail(claim, "failed", "x")
    other = Queue(name, storage)
    assert not other.done() and other.claim() is None
    assert other.reap() == 1 and other.reap() == 0
    again = other.claim()
    assert again is not None and again.attempt == 2


@pytest.mark.parametrize("outcome", ["failed", "killed", "nan_loss", "refused"])
def test_a_failing_cell_is_retried_so_often_and_then_failed_with_its_reason(tmp_path, name, outcome):
    queue = Queue(name, find_storage("", tmp_path))
    queue.enqueue(cells(1))
    tries = 0
    while claim := queue.claim():
        tries += 1
        assert queue.fail(claim, outcome, f"try {tries}") == (tries <= RETRIES[outcome])
    assert tries == RETRIES[outcome] + 1
    [state] = queue.states()
    assert (state.state, state.reason) == ("failed", f"try {tries}") and queue.done()
    assert queue.enqueue(cells(1)) == 0
    assert queue.retry(state.cell.training_hash) == 1 and queue.retry(state.cell.training_hash) == 0
    claim = queue.claim()
    assert claim is not None and queue.fail(claim, outcome, "") == (RETRIES[outcome] > 0)


def test_handing_back_is_not_counted(tmp_path: Path, name: str) -> None:
    queue = Queue(name, find_storage("", tmp_path))
    queue.enqueue(cells(1))
    for _ in range(30):
        claim = queue.claim()
        assert claim is not None
        assert queue.fail(claim, "interrupted", "handed back")
    assert queue.states()[0].state == "waiting"


def test_a_finished_cell_whose_run_is_gone_is_queued_again(tmp_path: Path, name: str) -> None:
    queue = Queue(name, find_storage("", tmp_path))
    queue.enqueue(cells(1))
    claim = queue.claim()
    assert claim is not None and queue.finish(claim, 1.0)
    assert queue.enqueue(cells(1), has_record=lambda run: True) == 0
    assert queue.enqueue(cells(1), has_record=lambda run: False) == 1


def test_the_password_of_a_storage_is_not_printed(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        Queue("s", find_storage("postgresql://me:secret@127.0.0.1:1/x", tmp_path))
    assert "secret" not in str(error.value)


def test_trials_carry_what_the_dashboard_shows(tmp_path: Path) -> None:
    queue = Queue("s", find_storage("", tmp_path))
    queue.enqueue(cells(1))
    queue.claim()
    [trial] = queue._trials()
    shown = json.loads(json.dumps(trial.user_attrs))
    assert (shown["row"], shown["seed"], shown["run"], shown["attempt"]) == ("r0", 0, "0-0".ljust(64, "0"), 1)
    assert shown["owner"]["pid"] == os.getpid()


def test_eight_gpus_by_two_run_four_at_once_on_disjoint_ones(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    found = find_devices(True, 1, 2, 1)
    assert len(found) == 4 and [found.of(slot) for slot in range(4)] == [list("01"), list("23"), list("45"), list("67")]
    found.assign(2)
    assert visible_gpus() == ["4", "5"]


def test_three_small_runs_share_a_device() -> None:
    found = Devices(["0", "1"], True, 1, 3)
    assert len(found) == 6 and [found.of(slot) for slot in range(6)] == [["0"]] * 3 + [["1"]] * 3


def test_runs_that_share_a_gpu_are_clients_of_a_daemon_that_runs(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(resources, "USUAL_MPS", tmp_path)
    assert how_shared().startswith("runs that share a GPU take turns on it: no MPS is running")
    (tmp_path / "control").touch()
    assert how_shared() == f"runs that share a GPU are clients of the MPS at {tmp_path}"
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/somebody/elses")
    assert how_shared() == "runs that share a GPU are clients of the MPS at /somebody/elses"


@pytest.mark.parametrize(("gpu", "runs"), [(True, 8), (True, 1), (False, 8)])
def test_a_study_says_how_its_runs_share_a_gpu(gpu, runs, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(launch, "run_study", lambda job, cells, start: [])
    launch.work(ablation("shared"), [], tmp_path, Resources(devices=Devices(["0"], gpu, 1, runs)))
    assert ("runs that share a GPU" in capsys.readouterr().err) == (gpu and runs > 1)


def test_too_many_are_refused(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match="needs 2 GPUs, this machine has 1"):
        find_devices(True, 1, 2, 1)
    with pytest.raises(UserError, match="several runs to a device"):
        find_devices(True, 1, 2, 2)


PARAMETERS = {"row": "r3", "seed": "21", r"model\.h": "8"}
"""of trial 3"""


def program() -> str:
    """The path of optuna-dashboard: $OPTUNA_DASHBOARD, beside our interpreter, or on the PATH."""
    beside = Path(sys.executable).with_name("optuna-dashboard")
    found = os.environ.get("OPTUNA_DASHBOARD") or (str(beside) if beside.exists() else shutil.which("optuna-dashboard"))
    if not found:
        warnings.warn("NOT TESTED: optuna-dashboard is not installed", stacklevel=1)
        pytest.skip("pip install optuna-dashboard, in an environment of its own; then OPTUNA_DASHBOARD=its path")
    return found


def train(task: Task) -> None:
    value = 2.0 + int(task.cell.row[1:])  # r0 to r3
    leave(task.attempt, ppl=value)


@pytest.mark.long
def test_the_dashboard_shows_a_study_and_its_trials(tmp_path: Path) -> None:
    dashboard = program()
    rows = [own_row(f"r{i}", {"model.h": 2**i} if i else {}) for i in range(4)]
    table = replace(ablation("watched"), rows=rows, seeds=[21])
    with (tmp_path / "shown").open("w") as stream:
        launching.launch(table, table.cells(), tmp_path, train, stream=stream)
    journal = tmp_path / "studies" / "watched" / "journal.log"
    before = journal.read_bytes()
    (port,) = free_ports(1)
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([dashboard, str(journal), "--port", str(port)], stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}/dashboard"
        _wait_for(address, server, tmp_path / "log")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = browser.new_page()
            page.route(lambda url: "127.0.0.1" not in url, lambda route: route.abort())
            page.set_default_timeout(60_000)
            page.goto(address, wait_until="domcontentloaded")
            page.get_by_text("watched").first.click()
            page.goto(page.url.split("?")[0] + "/trials", wait_until="domcontentloaded")
            page.get_by_text("Trial 3").first.wait_for()
            body = page.locator("body")
            for words in ("Trial 0", "Complete"):
                expect(body).to_contain_text(words, timeout=60_000)
            page.get_by_text("Trial 3").first.click()
            for key, value in PARAMETERS.items():
                page.get_by_text(re.compile(rf"^{key}\W*{value}$")).first.wait_for()
            browser.close()
        assert journal.read_bytes() == before, "looking changes nothing"
    finally:
        server.terminate()
        server.wait()


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    wait_for(answers, what=log.read_text, pause=0.3)
