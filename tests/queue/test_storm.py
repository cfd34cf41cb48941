"""Storms: many workers, ranks and deaths."""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState

from lightning_tfm.config import Hardware, override
from lightning_tfm.data.prepare import prepare
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.process_id import start_ticks
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints
from lightning_tfm.study.study_file import save
from lightning_tfm.study.sweeps import Parameter, Pruner
from lightning_tfm.watch.run_state import Curve
from tests.helpers import held
from tests.helpers.family import runs_of
from tests.helpers.launching import Task, ablation, launch
from tests.helpers.studies import leave, own_row, search
from tests.helpers.tiny import experiment, in_child, write_corpus

RUNS = int(os.environ.get("STORM_RUNS", "200"))
WORKERS = int(os.environ.get("STORM_WORKERS", "8"))
EVERY = float(os.environ.get("STORM_EVERY", "2"))
STEPS, STEP_SECONDS = 20, 0.05
GRACE = 4.0


def cells() -> list[Cell]:
    return [Cell(f"r{i}", 1, f"{i:04d}".ljust(64, "0"), 1.0) for i in range(RUNS)]


def train(task: Task) -> None:
    """A chain of numbers, each from the one before, that goes on from its checkpoint."""
    with (task.folder.root / "pids").open("a") as file:
        file.write(f"{os.getpid()} {task.cell.row}\n")
    checkpoint = task.folder.checkpoints / "last"
    step, value = map(int, checkpoint.read_text().split()) if checkpoint.exists() else (0, int(task.cell.row[1:]))
    task.attempt.truncate_metrics(step)
    while step < STEPS:
        time.sleep(STEP_SECONDS)
        step, value = step + 1, (value * 1103515245 + 12345) % 2**31
        task.attempt.append_metrics({"step": step, "value": value})
        task.attempt.write(checkpoint, f"{step} {value}".encode())
        task.attempt.write_progress(step, STEPS, 1.0, "train")
    with (task.folder.root / "ended").open("a") as file:
        file.write(f"{task.cell.row}\n")
    task.attempt.write_json(task.folder.identity, {"row": task.cell.row})
    task.attempt.write_json(task.folder.experiment, {})
    leave(task.attempt, ppl=float(value), identity={"row": task.cell.row})


def run(root: Path, storage: str, workers: int = WORKERS, carry: bool = False) -> None:
    rows = [own_row(cell.row, {"model.h": 1 + i % 3}) for i, cell in enumerate(cells())]
    table = replace(ablation("storm"), rows=rows, seeds=[1])  # its trials carry parameters, as a table's do
    with (root / "shown").open("a") as stream:
        launch(
            table, cells(), root, train, stream, workers=workers, storage=storage, grace=GRACE, share_files=not carry
        )


class Storm:
    """Launchers of one study, and what befalls them: kills of runs and of launchers; one is stopped and woken.

    A run whose own process was killed three times is given up, so none is here.
    """

    def __init__(self, forks, launches: list[Callable[[], None]], roots: list[Path]) -> None:
        self.forks, self.launches, self.roots = forks, launches, roots
        self.launchers = [forks.start(launch) for launch in launches]
        self.kills, self.woken = 0, False
        self._stopped: list[int] = []
        self._struck: Counter[str] = Counter()
        self._dice = random.Random(1)

    def rage(self) -> float:
        """Until all launchers have ended well; returns the seconds."""
        began = time.monotonic()
        while any(start_ticks(pid) for pid in self.launchers):
            time.sleep(EVERY)
            victims = [
                pid for launcher in self.launchers for pid in sorted(runs_of(launcher)) if pid not in self._stopped
            ]
            if victims:
                self._strike(self._dice.choice(victims))
            if self._stopped and not self.woken and time.monotonic() - self._since > 2 * GRACE:
                self.woken = True
                for pid in reversed(self._stopped):
                    if start_ticks(pid):
                        os.kill(pid, signal.SIGCONT)
        assert [self.forks.join(pid) for pid in self.launchers] == [0] * len(self.launchers)
        return time.monotonic() - began

    def _strike(self, victim: int) -> None:
        lists = [root / "pids" for root in set(self.roots) if (root / "pids").is_file()]  # none before a first run
        rows = dict(line.split() for path in lists for line in path.read_text().splitlines())
        row = rows.get(str(victim))
        if self.kills == 6:
            self._stopped = [self.launchers[-1], *runs_of(self.launchers[-1])]
            self._since = time.monotonic()
            for pid in self._stopped:
                os.kill(pid, signal.SIGSTOP)
        elif self.kills % 2 and start_ticks(self.launchers[0]) and self.launchers[0] not in self._stopped:
            self.forks.kill(self.launchers[0])
            self.launchers[0] = self.forks.start(self.launches[0])
        elif row is not None and self._struck[row] < 2 and start_ticks(victim):
            self._struck[row] += 1
            os.kill(victim, signal.SIGKILL)
        else:
            return
        self.kills += 1


def curve(cell: Cell) -> list[dict[str, int]]:
    """The record of an undisturbed run."""
    value, found = int(cell.row[1:]), []
    for step in range(1, STEPS + 1):
        value = (value * 1103515245 + 12345) % 2**31
        found.append({"step": step, "value": value})
    return found


def assert_whole(root: Path, where: list[Path], storage: str) -> None:
    """Every run has one result, told once, that of an undisturbed study; the curve lies where it was trained."""
    for cell in cells():
        result = RunFolder(root, cell.training_hash).read_result()
        assert result is not None and result.scores["dev"].ppl == curve(cell)[-1]["value"]
        folders = [RunFolder(path, cell.training_hash) for path in where]
        trained = [folder for folder in folders if folder.finished() and Curve.of(folder.path).lines]
        assert trained and all(Curve.of(folder.path).lines == curve(cell) for folder in trained)
        assert all(folder.owner() is None for folder in trained)
    queue = Queue("storm", find_storage(storage, root / "studies" / "storm"), lambda text: None)
    told = [t.user_attrs["row"] for t in queue.study(None, None).get_trials(states=(TrialState.COMPLETE,))]
    assert Counter(told) == {cell.row: 1 for cell in cells()}
    assert {state.state for state in queue.states()} == {"finished"} and queue.done()


def assert_all_befell(storm: Storm) -> None:
    assert storm.woken or RUNS * STEPS * STEP_SECONDS / WORKERS < 7 * EVERY + 2 * GRACE + EVERY, "too short for all"


def assert_nobody_left(roots: list[Path]) -> None:
    for root in roots:
        assert not [pid for pid in map(int, (root / "pids").read_text().split()[::2]) if start_ticks(pid)]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_storm_of_kills_changes_nothing(tmp_path: Path, forks) -> None:
    storm = Storm(forks, [lambda: run(tmp_path, "")], [tmp_path])
    seconds = storm.rage()
    print(f"journal: {RUNS} runs, {storm.kills} kills, {seconds:.0f} s")
    assert_all_befell(storm)
    assert_whole(tmp_path, [tmp_path], "")
    with (tmp_path / "again").open("w") as stream:
        final = launch("storm", cells(), tmp_path, train, stream)
    assert {state.state for state in final} == {"finished"} and len(final) == RUNS
    assert_nobody_left([tmp_path])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shared", [True, False])
def test_a_storm_over_two_working_directories_on_postgres(tmp_path: Path, forks, postgres, shared: bool) -> None:
    roots = [tmp_path / name for name in (("home", "home") if shared else ("home", "away"))]
    for number, root in enumerate(roots):
        root.mkdir(exist_ok=True), (tmp_path / f"desk{number}").mkdir()

    def launch_at(number: int) -> None:
        os.chdir(tmp_path / f"desk{number}")
        run(Path("..") / roots[number].name, postgres.url, WORKERS // 2, carry=not shared)

    storm = Storm(forks, [lambda: launch_at(0), lambda: launch_at(1)], roots)
    seconds = storm.rage()
    print(
        f"two directories, files {'shared' if shared else 'apart'}: {RUNS} runs, {storm.kills} kills, {seconds:.0f} s"
    )
    assert_all_befell(storm)
    with (tmp_path / "again").open("w") as stream:
        final = launch("storm", cells(), roots[0], train, stream, storage=postgres.url, share_files=shared)
    assert {state.state for state in final} == {"finished"} and len(final) == RUNS
    assert_whole(roots[0], roots, postgres.url)
    assert_nobody_left(roots)
    if not shared:
        assert all((root / "ended").exists() for root in roots), "both took part"


HARDWARE = Hardware(accelerator="cpu", devices=2, threads=1, validate_every=4, log_every=4, checkpoint_every=1000)


def search_with_two_ranks(root: str) -> list:
    from lightning_tfm.queue.launch import run_study
    from lightning_tfm.queue.pool import Job
    from lightning_tfm.queue.resources import Resources

    out = Path(root) / "out"
    base = experiment(write_corpus(Path(root) / "text"), training__steps=60, training__warmup=5)
    base = override(base, {"model.positions": held.NAME}, "tests")  # long enough for the worker to look in between
    prepared = prepare(base.data, out)
    prints = Fingerprints(prepared.train_fingerprint, prepared.fingerprint(base.data.dev))
    rates = [Parameter("training.lr_factor", "categorical", [0.5, 1e-5])]
    of_text = {"prints": prints, "V": prepared.tokenizer.V, "store": prepared.folder.name}
    pruner = Pruner("median", 1, 3, 1)
    made = search(name="s", base=base, space=rates, sampler="grid", trials=1, pruner=pruner, based=False, **of_text)
    save(made, out)
    cells = [replace(cell, cost=-number) for number, cell in enumerate(made.cells())]  # the good one first
    resources = Resources(hardware=HARDWARE)
    job = Job(made, out, resources, first_validation=4)
    with (Path(root) / "shown").open("w") as stream:
        states = run_study(job, cells, stream)
    return [(s.cell.row, s.state, s.reason, s.cell.training_hash) for s in states]


def test_both_ranks_stop_at_the_same_step(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(held.VARIABLE, str(tmp_path / "never"))
    (_, good, _, _), (_, bad, reason, name) = in_child(search_with_two_ranks, str(tmp_path))
    assert (good, bad) == ("finished", "stopped early"), (tmp_path / "shown").read_text()
    folder = RunFolder(tmp_path / "out", name)
    steps = re.findall(r"rank (\d): stopped after step (\d+) as unpromising", folder.log.read_text())
    assert sorted(rank for rank, _ in steps) == ["0", "1"] and len({step for _, step in steps}) == 1
    assert f"median at step 8; stopped after step {steps[0][1]}" == reason
    assert not folder.finished()


def ranks_that_differ(root: str) -> str:
    import os

    from lightning_tfm.config import training_hash, training_identity
    from lightning_tfm.runs.outcome import RunFailed
    from lightning_tfm.runs.process.ranks import fork_ranks
    from lightning_tfm.runs.train import Run

    out = Path(root) / "out"
    base = experiment(write_corpus(Path(root) / "text"))
    prepared = prepare(base.data, out)
    identity = training_identity(base, prepared.train_fingerprint, {})
    attempt = RunFolder(out, training_hash(identity)).claim()

    def one_rank() -> None:
        other = experiment(Path(root) / "text", training__lr_factor=2.0)
        asked = base if os.environ["RANK"] == "0" else other
        Run(asked, identity, HARDWARE, attempt, prepared.folder).train()

    try:
        fork_ranks(one_rank, 2, 1)
    except RunFailed as error:
        return f"{error.outcome}: {error}, {len(Curve.of(attempt.folder.path).lines)} records"
    return "trained"


def test_ranks_with_other_configurations_refuse_to_start(tmp_path: Path) -> None:
    said = in_child(ranks_that_differ, str(tmp_path))
    assert said.startswith("refused: ") and "ranks 1 were given a configuration that differs from rank 0" in said
    assert "0 records" in said
