"""Studies with real pools that are killed, stopped and interrupted; the runs themselves only sleep and write."""

import errno
import io
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError
from lightning_tfm.queue import pool, queue
from lightning_tfm.queue.housekeeping import retry
from lightning_tfm.queue.queue import Claim, Queue
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.outcome import RunFailed
from lightning_tfm.runs.process import forking
from lightning_tfm.runs.process.forking import children
from lightning_tfm.runs.process.process_id import start_ticks
from lightning_tfm.runs.record import Outcome, RunRecord, read_small
from lightning_tfm.study.cell import Cell
from lightning_tfm.watch.run_state import Curve
from lightning_tfm.watch.study_state import CellState, value_of_aim
from tests.helpers.family import is_stopped, runs_of
from tests.helpers.launching import Task, launch
from tests.helpers.studies import DEV, leave
from tests.helpers.waiting import Hurried, wait_for

STEPS = 10
ENDLESS = 3600.0
"""seconds that no test waits for"""


def make_cells(count: int) -> list[Cell]:
    return [Cell(f"r{i}", 1, f"{i:03d}".ljust(64, "0"), 1.0) for i in range(count)]


class Fake:
    """Trains by sleeping: STEPS steps with a checkpoint after each, from which it goes on.

    With `held` no run takes its last step before `let_go`; one that is `deaf_to` a signal takes none.
    """

    def __init__(self, root: Path, step_seconds: float = 0.01, held: bool = False, deaf_to: int = 0) -> None:
        self.root, self.step_seconds, self.held, self.deaf_to = root, step_seconds, held, deaf_to
        root.mkdir(parents=True, exist_ok=True)

    def let_go(self) -> None:
        (self.root / "go").touch()

    def note(self, kind: str, task: Task) -> None:
        with (self.root / "notes").open("a") as file:
            file.write(f"{kind} {task.cell.row} {os.getpid()}\n")

    def notes(self, kind: str) -> list[tuple[str, int]]:
        path = self.root / "notes"
        lines = [text.split() for text in path.read_text().splitlines()] if path.exists() else []
        return [(row, int(pid)) for found, row, pid in lines if found == kind]

    def __call__(self, task: Task) -> None:
        if self.deaf_to:
            signal.signal(self.deaf_to, signal.SIG_IGN)
        self.note("began", task)
        time.sleep(ENDLESS if self.deaf_to else 0)
        folder, attempt = task.folder, task.attempt
        checkpoint = folder.checkpoints / "last"
        step = int(checkpoint.read_text()) if checkpoint.exists() else 0
        attempt.truncate_metrics(step)
        while step < STEPS:
            time.sleep(self.step_seconds)
            if self.held and step == STEPS - 1:
                wait_for((self.root / "go").exists)
            step += 1
            attempt.append_metrics({"step": step, "loss": hash((task.cell.row, step)) % 1000})
            attempt.write(checkpoint, str(step).encode())
            attempt.write_progress(step, STEPS, 100.0, "train")
        leave(attempt)
        self.note("ended", task)


def study(root: Path, train: Callable[[Task], None], count: int, workers: int, **more: object) -> list[CellState]:
    with (root / "shown").open("a") as stream:
        return launch("s", make_cells(count), root, train, stream, workers=workers, **more)


def shown(root: Path) -> str:
    return (root / "shown").read_text()


def states(root: Path) -> dict[str, CellState]:
    queue = Queue("s", find_storage("", root / "studies" / "s"))
    return {state.cell.row: state for state in queue.states()}


def assert_whole(root: Path, fake: Fake, count: int) -> None:
    """Every run finished exactly once, with the metrics of an undisturbed one, and nobody is left."""
    assert {state.state for state in states(root).values()} == {"finished"} and len(states(root)) == count
    assert Counter(row for row, _ in fake.notes("ended")) == {f"r{i}": 1 for i in range(count)}
    for cell in make_cells(count):
        folder = RunFolder(root, cell.training_hash)
        assert folder.finished() and folder.owner() is None
        assert [record["step"] for record in Curve.of(folder.path).lines] == list(range(1, STEPS + 1))


def test_damaged_records_of_a_run_end_no_pool_and_hide_no_reason(tmp_path: Path) -> None:
    def train(task: Task) -> None:
        task.attempt.append_metrics({"step": 1, "loss": 2.0})
        with task.folder.metrics.open("a") as file:
            file.write("{\n")
        task.folder.progress.write_text("{")
        raise RuntimeError("why it failed")

    (found,) = study(tmp_path, train, 1, workers=1)
    assert found.state == "failed" and "why it failed" in found.reason
    assert "s: 0 finished, 0 running, 0 waiting, 1 failed" in shown(tmp_path)


RECORD = "result.json"
LATER = f"scores/{DEV.evaluation_hash[:16]}/{Experiment().data.dev}.json"


@pytest.mark.parametrize(("damaged", "before"), [(RECORD, True), (RECORD, False), (LATER, False)])
def test_a_record_that_cannot_be_read_fails_its_own_cell_alone(tmp_path: Path, damaged: str, before: bool) -> None:
    run = RunFolder(tmp_path, make_cells(1)[0].training_hash)

    def damage() -> None:
        (run.path / damaged).parent.mkdir(parents=True, exist_ok=True)
        (run.path / damaged).write_text('{"half": true}')

    def train(task: Task) -> None:
        leave(task.attempt)
        if task.cell.row == "r0":
            damage()

    if before:
        attempt = run.claim()
        leave(attempt)
        attempt.release()
        damage()
    children_before = children()
    first, second = study(tmp_path, train, 2, workers=1)
    assert (first.state, second.state) == ("failed", "finished") and children() == children_before
    assert str(run.path) in first.reason and ".json: " in first.reason and first.attempt == 1
    assert f"s: refused: r0/1; when the cause is gone, {'lightning-tfm resume s'}" in shown(tmp_path)
    (run.path / damaged).unlink()
    assert {state.state for state in study(tmp_path, Fake(tmp_path), 2, workers=1, again=True)} == {"finished"}


def test_a_record_damaged_after_its_study_ended_fails_its_own_cell_and_the_others_train(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    study(tmp_path, fake, 2, workers=1)
    record = RunFolder(tmp_path, make_cells(1)[0].training_hash).result
    record.write_text('{"half": true}')
    found = study(tmp_path, fake, 3, workers=1)
    assert [state.state for state in found] == ["failed", "finished", "finished"] and str(record) in found[0].reason
    assert f"{record}: " in shown(tmp_path) and "s: refused: r0/1; when the cause is gone" in shown(tmp_path)
    record.unlink()
    found = study(tmp_path, fake, 3, workers=1, again=True)
    assert {state.state for state in found} == {"finished"}
    assert Counter(row for row, _ in fake.notes("ended")) == {"r0": 2, "r1": 1, "r2": 1}


def test_a_finished_run_without_the_score_that_a_study_asks_for_fails_its_own_cell_alone(tmp_path: Path, monkeypatch):
    def values(study: object, record: RunRecord) -> tuple[float, ...]:
        return (value_of_aim(record, "dev/f1" if record.steps == 7 else "dev/ppl"),)

    monkeypatch.setattr(pool, "values_of", values)
    first, second = study(tmp_path, lambda task: leave(task.attempt, steps=6 + (task.cell.row == "r0")), 2, workers=1)
    assert (first.state, second.state) == ("failed", "finished")
    assert first.reason == "the run's record holds no dev/f1"


def test_a_failure_that_cannot_be_recorded_ends_the_pool(tmp_path: Path, monkeypatch) -> None:
    def refuse(self: Queue, claim: object, outcome: str, reason: str) -> bool:
        raise UserError("the storage is broken")

    monkeypatch.setattr(Queue, "fail", refuse)
    before = children()
    with pytest.raises(UserError, match="the storage is broken"):
        study(tmp_path, lambda task: os._exit(1), 2, workers=2)
    assert children() == before


def test_every_cell_is_run_once_in_its_own_process_and_a_second_call_runs_none(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    before = children()
    ended = study(tmp_path, fake, 6, workers=3)
    assert [(state.cell.row, state.state, state.attempt) for state in ended] == [
        (f"r{i}", "finished", 1) for i in range(6)
    ]
    assert_whole(tmp_path, fake, 6)
    pids = {pid for _, pid in fake.notes("began")}
    assert len(pids) == 6 and os.getpid() not in pids and children() == before
    link = json.loads((tmp_path / "studies/s/cells/r0/1.json").read_text())
    assert link == {"row": "r0", "seed": 1, "training_hash": make_cells(1)[0].training_hash}
    study(tmp_path, fake, 8, workers=1)  # two more rows
    assert Counter(row for row, _ in fake.notes("began")) == {f"r{i}": 1 for i in range(8)}
    assert "s: 8 finished, 0 running, 0 waiting, 0 failed" in shown(tmp_path)


def test_a_record_that_is_written_anew_after_it_was_read_is_read_again(tmp_path: Path, monkeypatch) -> None:
    """What the pool and the view read once for both is another file's as soon as it is."""
    asked: list[float] = []

    def values(study: object, record: RunRecord) -> tuple[float, ...]:
        asked.append(record.scores["dev"].ppl)
        return (record.scores["dev"].ppl,)

    monkeypatch.setattr(pool, "values_of", values)
    run = RunFolder(tmp_path, make_cells(1)[0].training_hash)
    finish = Queue.finish

    def finish_and_change(self: Queue, claim: Claim, *values: float) -> bool:
        leave(run.claim(), ppl=5.0)
        return finish(self, claim, *values)

    monkeypatch.setattr(Queue, "finish", finish_and_change)
    study(tmp_path, lambda task: leave(task.attempt, ppl=3.0), 1, workers=1)
    assert asked == [3.0] and "best: dev/ppl 5 (r0/1)" in shown(tmp_path)


def test_a_run_that_somebody_else_works_on_is_waited_for(tmp_path: Path, forks) -> None:
    fake = Fake(tmp_path)

    def other() -> None:  # `fit` asking for the same run
        attempt = RunFolder(tmp_path, make_cells(1)[0].training_hash).claim()
        (tmp_path / "ready").touch()
        time.sleep(0.8)
        leave(attempt, ppl=3.0)
        attempt.release()

    pid = forks.start(other)
    wait_for((tmp_path / "ready").exists)
    assert {state.state for state in study(tmp_path, fake, 2, workers=1)} == {"finished"}
    assert [row for row, _ in fake.notes("began")] == ["r1"] and forks.join(pid) == 0


@pytest.mark.parametrize(
    ("error", "tries", "words"),
    [
        (ValueError("no luck"), 3, "ValueError: no luck"),
        (RunFailed("nan_loss", "loss of step 7 is nan", 7), 1, "loss of step 7 is nan"),
        (FloatingPointError("nan"), 1, "nan"),
        (UserError("your fault"), 1, "your fault"),
        (MemoryError(), 2, "MemoryError"),
        (OSError(errno.ENOSPC, "No space left"), 2, "No space left"),
        (SystemExit(3), 3, "SystemExit: 3"),
    ],
)
def test_a_failing_run_is_named_and_the_study_goes_on(tmp_path, error, tries, words):
    fake = Fake(tmp_path)

    def train(task: Task) -> None:
        if task.cell.row == "r0":
            fake.note("tried", task)
            raise error
        fake(task)

    study(tmp_path, train, 2, workers=1)
    found = states(tmp_path)
    assert (found["r1"].state, found["r0"].state, len(fake.notes("tried"))) == ("finished", "failed", tries)
    assert words in found["r0"].reason and words in shown(tmp_path)
    folder = RunFolder(tmp_path, make_cells(1)[0].training_hash)
    outcome = read_small(Outcome, folder.outcome)
    assert outcome is not None and words in outcome.reason and outcome.attempt == tries
    log = folder.log.read_text()
    unexpected = isinstance(error, (ValueError, SystemExit))  # what has a name is told in a line
    assert words in log and ("Traceback" in log) == unexpected


def test_the_same_command_tries_once_more_what_may_go_on_now(tmp_path: Path) -> None:
    causes = {
        "r0": OSError(errno.ENOSPC, "No space left on device"),
        "r1": UserError("the text has changed since"),
        "r2": MemoryError(),
        "r3": FloatingPointError("loss is nan"),
        "r4": ValueError("a bug"),
    }
    fake, cells = Fake(tmp_path / "fake"), make_cells(5)

    def train(task: Task) -> None:
        fake.note("tried", task)
        if (tmp_path / "trouble").exists() or task.cell.row in ("r3", "r4"):
            raise causes[task.cell.row]
        fake(task)

    def tried() -> list[int]:
        count = Counter(row for row, _ in fake.notes("tried"))
        return [count[cell.row] for cell in cells]

    (tmp_path / "trouble").touch()
    assert {state.state for state in launch("s", cells, tmp_path, train, again=True)} == {"failed"}
    first = tried()
    launch("s", cells, tmp_path, train)
    assert tried() == first, "one who joins tries nothing again"
    stream = io.StringIO()
    launch("s", cells, tmp_path, train, stream, again=True)
    assert [now - before for now, before in zip(tried(), first, strict=True)] == [1, 1, 1, 0, 0], "once a command"
    told = stream.getvalue()
    assert "failed before, tried once more: r0/1 (disk_full), r1/1 (refused), r2/1 (out_of_memory)" in told
    assert "s: disk_full: r0/1; when the cause is gone, the same command tries once more\n" in told
    assert f"s: failed: r4/1; when the cause is mended: lightning-tfm runs retry s --out {tmp_path}, then" in told
    assert "s: nan_loss: r3/1; the same run gives the same again\n" in told
    (tmp_path / "trouble").unlink()
    states = launch("s", cells, tmp_path, train, again=True)
    assert [state.state for state in states] == ["finished", "finished", "finished", "failed", "failed"]
    causes.clear()
    assert retry(tmp_path, "s") == 2
    states = launch("s", cells, tmp_path, lambda task: fake(task), again=True)
    assert {state.state for state in states} == {"finished"}, "the command that was named helps"


@pytest.mark.parametrize(
    ("number", "tries", "words"),
    [(0, 1, "without result.json"), (signal.SIGKILL, 3, "killed by SIGKILL (out of memory?)")],
)
def test_a_run_that_ends_without_a_word_has_failed(tmp_path: Path, number: int, tries: int, words: str) -> None:
    fake = Fake(tmp_path)
    [state] = study(tmp_path, lambda task: (fake.note("tried", task), os.kill(os.getpid(), number)), 1, workers=1)
    assert (state.state, len(fake.notes("tried"))) == ("failed", tries) and words in state.reason


@pytest.mark.parametrize("kind", ["journal", pytest.param("postgres", marks=pytest.mark.long)])
def test_kills_of_runs_and_of_the_pool_lose_and_double_nothing(tmp_path, forks, kind, request):
    storage = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    fake = Fake(tmp_path, 0.02, held=True)

    def work() -> None:
        study(tmp_path, fake, 8, workers=3, storage=storage, patience=5)

    launcher = forks.start(work)
    victims: set[int] = set()
    for kill in range(5):
        wait_for(lambda: len({pid for _, pid in fake.notes("began")}) == 3 + len(victims))
        time.sleep(0.1)
        family = runs_of(launcher)
        assert len(family) == 3 and not family & victims
        if kill == 2:
            forks.kill(launcher)
            wait_for(lambda family=family: not any(forks.alive(pid) for pid in family))
            victims.update(family)
            launcher = forks.start(work)
        else:
            os.kill(victim := sorted(family)[0], signal.SIGKILL)
            victims.add(victim)
    fake.let_go()
    assert forks.join(launcher) == 0
    assert Counter(row for row, _ in fake.notes("ended")) == {f"r{i}": 1 for i in range(8)}
    if kind == "journal":
        assert_whole(tmp_path, fake, 8)
    assert shown(tmp_path).count("killed by SIGKILL") == 4 and "is gone; queued again" in shown(tmp_path)
    assert re.search(r"r\d seed 1: killed: killed by SIGKILL at step \d \(out of memory\?\); queued", shown(tmp_path))
    assert not [pid for _, pid in fake.notes("began") if forks.alive(pid)]


@pytest.mark.long
def test_an_outage_of_the_database_costs_no_run(tmp_path: Path, forks, postgres) -> None:
    fake = Fake(tmp_path, 0.1, held=True)
    launcher = forks.start(lambda: study(tmp_path, fake, 4, workers=2, storage=postgres.url, grace=4.0))
    wait_for(lambda: len(fake.notes("began")) == 2)
    postgres.control("stop")
    fake.let_go()
    wait_for(lambda: "the storage does not answer, waiting for it" in shown(tmp_path))
    time.sleep(2)
    postgres.control("start")
    assert forks.join(launcher) == 0
    assert Counter(row for row, _ in fake.notes("began")) == {f"r{i}": 1 for i in range(4)}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_signal_lets_runs_write_a_checkpoint_and_hands_them_back(tmp_path, forks, number, code):
    fake = Fake(tmp_path, 0.05, held=True)

    def train(task: Task) -> None:
        try:
            fake(task)
        except (SystemExit, KeyboardInterrupt):
            task.attempt.write(task.folder.path / "saved", b"")
            raise

    launcher = forks.start(lambda: study(tmp_path, train, 3, workers=2))
    wait_for(lambda: len(fake.notes("began")) == 2)
    family = runs_of(launcher)
    os.kill(launcher, number)
    assert forks.join(launcher) == code
    assert not any(forks.alive(pid) for pid in family)
    assert {state.state for state in states(tmp_path).values()} == {"waiting"}
    saved = [RunFolder(tmp_path, cell.training_hash) for cell in make_cells(2)]
    assert all((folder.path / "saved").exists() and folder.owner() is None for folder in saved)
    assert {read_small(Outcome, folder.outcome).outcome for folder in saved} == {"interrupted"}
    fake.let_go()
    study(tmp_path, train, 3, workers=2)
    assert_whole(tmp_path, fake, 3)


def test_a_run_that_does_not_stop_is_killed_after_the_patience(tmp_path: Path, forks) -> None:
    fake = Fake(tmp_path, deaf_to=signal.SIGTERM)
    launcher = forks.start(lambda: study(tmp_path, fake, 1, workers=1, patience=0.3))
    wait_for(lambda: fake.notes("began"))
    os.kill(launcher, signal.SIGTERM)
    assert forks.join(launcher) == 143
    assert states(tmp_path)["r0"].state == "waiting"
    assert not forks.alive(fake.notes("began")[0][1])


def test_a_pool_with_free_slots_stops_too(tmp_path: Path, forks) -> None:
    fake = Fake(tmp_path, 0.2, held=True)
    launcher = forks.start(lambda: study(tmp_path, fake, 1, workers=3))
    wait_for(lambda: fake.notes("began") and len(runs_of(launcher)) == 1)
    time.sleep(0.3)
    os.kill(launcher, signal.SIGTERM)
    assert forks.join(launcher) == 143
    assert states(tmp_path)["r0"].attempt == 2  # queued again once: nobody took it up after the signal


def test_a_second_ctrl_c_kills_at_once(tmp_path: Path, forks, monkeypatch) -> None:
    class UntilLater:
        """Seconds that last until a file is there, on a machine however slow."""

        def __gt__(self, seconds: float) -> bool:
            (tmp_path / f"compared by {os.getpid()}").touch()
            return not (tmp_path / "later").exists()

    monkeypatch.setattr(forking, "ONE_SIGNAL", UntilLater())
    fake = Fake(tmp_path, deaf_to=signal.SIGINT)
    launcher = forks.start(lambda: study(tmp_path, fake, 1, workers=1, patience=ENDLESS))
    wait_for(lambda: fake.notes("began"))
    os.kill(launcher, signal.SIGINT)
    wait_for(lambda: "stopping" in shown(tmp_path))
    os.kill(launcher, signal.SIGINT)  # too soon: taken for the same one
    wait_for((tmp_path / f"compared by {launcher}").exists)
    (tmp_path / "later").touch()
    assert start_ticks(launcher) is not None
    os.kill(launcher, signal.SIGINT)
    assert forks.join(launcher) == 130
    wait_for(lambda: not forks.alive(fake.notes("began")[0][1]))


def test_a_stopped_pool_and_run_lose_the_cell_and_cannot_write_when_woken(tmp_path, forks, monkeypatch) -> None:
    fake, silent = Fake(tmp_path, 0.1, held=True), tmp_path / "silent"
    first = forks.start(lambda: study(tmp_path, fake, 1, workers=1, grace=60.0))
    wait_for(lambda: len(fake.notes("began")) == 1)
    [(_, run)] = fake.notes("began")
    monkeypatch.setattr(queue, "time", Hurried(lambda: silent.exists() and is_stopped(first)))
    other = forks.start(lambda: study(tmp_path, fake, 1, workers=1, grace=60.0))
    for pid in (first, run):
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda pid=pid: is_stopped(pid))
    folder = RunFolder(tmp_path, make_cells(1)[0].training_hash)
    os.utime(folder.attempts / "0001.beat", (0, 0))
    silent.touch()
    fake.let_go()
    wait_for(lambda: len(fake.notes("began")) == 2)
    for pid in (run, first):
        os.kill(pid, signal.SIGCONT)
    assert [forks.join(pid) for pid in (first, other)] == [0, 0]
    assert_whole(tmp_path, fake, 1)
    assert folder.newest() == 2 and "attempt 1 was replaced by attempt 2" in folder.log.read_text()
    assert "has been silent for 60 s; queued again" in shown(tmp_path)


def test_a_run_that_hangs_stopped_under_a_living_pool_is_killed_and_retried(tmp_path: Path, monkeypatch) -> None:
    fake = Fake(tmp_path)

    def train(task: Task) -> None:
        if task.attempt.number == 1:
            fake.note("stops", task)
            os.kill(os.getpid(), signal.SIGSTOP)
        fake(task)

    monkeypatch.setattr(pool, "time", Hurried(lambda: any(is_stopped(pid) for _, pid in fake.notes("stops"))))
    [state] = study(tmp_path, train, 1, workers=1, grace=60.0)
    assert (state.state, state.attempt) == ("finished", 2)
    assert "gave no sign of life for 60 s" in shown(tmp_path)


def test_an_error_of_the_pool_s_own_leaves_no_process_and_hands_every_cell_back(tmp_path: Path, monkeypatch) -> None:
    def train(task: Task) -> None:
        if task.cell.row == "r1":
            time.sleep(ENDLESS)
        leave(task.attempt)

    before = children()
    with monkeypatch.context() as spoiled, pytest.raises(ZeroDivisionError):
        spoiled.setattr(pool, "values_of", lambda study, record: 1 / 0)
        study(tmp_path, train, 2, workers=2)
    assert children() == before
    assert {state.state for state in states(tmp_path).values()} == {"waiting"}
    assert {state.state for state in study(tmp_path, Fake(tmp_path), 2, workers=2)} == {"finished"}
