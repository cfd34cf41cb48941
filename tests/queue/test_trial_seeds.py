"""Searches whose trials have several seeds: means are told, the first seed may be stopped, no seed is run twice."""

import csv
import json
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.status import as_json, as_text
from lightning_tfm.errors import UserError
from lightning_tfm.queue.forecast import text as planned
from lightning_tfm.queue.open import open_queue
from lightning_tfm.queue.search_results import report
from lightning_tfm.report.search import make
from lightning_tfm.runs.attempt import Task
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.study.gains import gains
from lightning_tfm.study.study import load, save
from lightning_tfm.study.sweeps import Parameter, Pruner
from lightning_tfm.watch.study_state import Watch
from tests.launching import launch
from tests.queue.test_sampling import STEPS, Stopped, loss, search
from tests.records import leave
from tests.waiting import wait_for

SEEDS = [4, 5, 6]
SPACE = [Parameter("training.lr_factor", "categorical", [0.3, 0.4, 5.0, 6.0])]


def several(**changes):
    return search(seeds=SEEDS, space=SPACE, sampler="grid", trials=1, based=True, **changes)


def ppl_of(task: Task) -> float:
    return loss(task.cell.change) + 0.01 * (task.cell.seed - 4) ** 2


def begun(root: Path) -> list[tuple[str, int, int]]:
    """(trial, seed, process) of every run that was begun."""
    lines = (root / "begun").read_text().splitlines() if (root / "begun").exists() else []
    return [(row, int(seed), int(pid)) for row, seed, pid in map(str.split, lines)]


def train(task: Task) -> None:
    with (task.folder.root / "begun").open("a") as file:
        file.write(f"{task.cell.row} {task.cell.seed} {os.getpid()}\n")
    for step in range(1, STEPS + 1):
        task.attempt.append_metrics({"step": step, "dev_ppl": ppl_of(task) + 1 / step})
        task.attempt.write_progress(step, STEPS, 1.0, "train")
    leave(task.attempt, ppl=ppl_of(task), evaluation_hash=several().evaluation(task.cell, task.folder.root))


def train_bad_ones_until_stopped(task: Task) -> None:
    if loss(task.cell.change) < 3:
        return train(task)
    with (task.folder.root / "begun").open("a") as file:
        file.write(f"{task.cell.row} {task.cell.seed} {os.getpid()}\n")
    for step in range(1, STEPS + 1):
        task.attempt.append_metrics({"step": step, "dev_ppl": ppl_of(task) + 1 / step})
    wait_for(task.attempt.stop_asked)
    raise Stopped(STEPS)


def train_slowly_at_the_second(task: Task) -> None:
    if task.cell.seed == 5 and task.cell.row == "base" and task.attempt.number == 1:
        with (task.folder.root / "begun").open("a") as file:
            file.write(f"{task.cell.row} {task.cell.seed} {os.getpid()}\n")
        task.attempt.write_progress(2, STEPS, 1.0, "train")
        wait_for(lambda: False, seconds=30)
    train(task)


def run(root: Path, made, how=train, workers: int = 2, **resources):
    save(made, root)
    with (root / "shown").open("a") as stream:
        return launch(made, made.cells(), root, how, stream, workers=workers, **resources)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("seeds")
    states = run(root, several())
    return root, states, report(load(root, "s"), root)


def test_every_trial_is_a_run_at_each_seed_and_tells_their_mean(done) -> None:
    root, states, _ = done
    assert Counter((row, seed) for row, seed, _ in begun(root)) == {
        (state.cell.row, seed): 1 for state in states for seed in SEEDS
    }
    assert [state.state for state in states] == ["done"] * 5, "base and four points"
    for state in states:
        assert state.values == (pytest.approx(loss(state.cell.change) + 0.01 * mean([0, 1, 4])),)
        for cell in state.cell.runs:
            assert RunFolder(root, cell.training_hash).finished()
            link = json.loads((root / f"studies/s/cells/{cell.row}/{cell.seed}.json").read_text())
            assert link["training_hash"] == cell.training_hash
            experiment, identity = several().plan(cell, root)
            assert experiment.training.seed == cell.seed == identity["training"]["seed"]
    assert states[0].cell.row == "base" and [run.seed for run in states[0].cell.runs] == SEEDS


def test_their_spread_is_kept_and_shown(done) -> None:
    root, _, summary = done
    assert "t0000: dev/ppl 1.01667 ± 0.021 with training.lr_factor=0.3" in summary
    lines = json.loads((root / "studies/s/trials.json").read_text())
    assert [lines[0][f"dev/ppl seed {s}"] for s in SEEDS] == pytest.approx([1.7, 1.71, 1.74])
    assert lines[0]["dev/ppl sd"] == pytest.approx(stdev([0, 0.01, 0.04]))
    made = make("s", root)
    assert made.summary.seeds == SEEDS and made.summary.trials[0].by_seed["dev/ppl"]["6"] == pytest.approx(1.74)
    heads, first, *_ = csv.reader(made.render("csv").splitlines())
    assert float(first[heads.index("dev/ppl seed 6")]) == pytest.approx(1.74)
    assert "3 runs, at seeds 4, 5, 6" in made.render("markdown") and "1.017 ± 0.021" in made.render("markdown")
    page = made.render("html")
    assert "3 runs a trial, seeds 4, 5, 6" in page and "± 0.021" in page and "one run of one seed" not in page
    assert "means over the seeds 4, 5, 6" in (root / "studies/s/best.yaml").read_text()


def test_the_gain_over_base_has_the_noise_of_these_seeds(done) -> None:
    *_, summary = done
    assert "dev/ppl 0.7 (40.8%) better than base's 1.717, the gain's 95 % interval over these seeds [+0.65" in summary
    assert "was chosen by these seeds, which flatters it" in summary
    told = gains({"a": "maximize"}, True, [1.0], {"t": [2.0]}, {"t": {"a": [1.9, 2.1]}, "base": {"a": [0.9, 1.1]}})
    assert "[+0.392, +1.61]" in told[0], "Welch's t on 2 degrees of freedom"
    assert "interval" not in gains({"a": "maximize"}, True, [1.0], {"t": [2.0]})[0]


def test_status_and_plan_count_trials_and_runs(done, capsys) -> None:
    root, states, _ = done
    queue = open_queue(root, "s")
    assert as_text("s", Watch(root).look(queue.states())).startswith(
        "s: 5 finished, 0 running, 0 waiting, 0 failed, best: dev/ppl 1.017 (t0000)"
    )
    cells = [cell for trial in several().cells() for cell in trial.runs]
    assert "15 runs: 15 finished, 0 to run" in planned(cells, root, 1, None)
    assert sum(cell.cost for cell in cells) == pytest.approx(sum(trial.cost for trial in several().cells()))
    folder = RunFolder(root, states[1].cell.runs[2].training_hash)
    folder.path.rename(folder.path.with_name("gone"))
    (again,) = [s for s in Watch(root).look(queue.states()).cells if s.state != "done"]
    assert (again.state, again.reason) == ("waiting", "it was finished, but its folder is gone")
    folder.path.with_name("gone").rename(folder.path)
    assert main(["report", "s", "--format", "csv", "--out", str(root)]) == 0


def test_only_the_first_seed_may_be_stopped(tmp_path: Path) -> None:
    made = replace(
        several(pruner=Pruner("median", 1, 3, 1)), space=[Parameter(SPACE[0].name, "categorical", [0.3, 5.0])]
    )
    states = run(tmp_path, made, train_bad_ones_until_stopped, workers=1)
    assert [(s.cell.row, s.state) for s in states] == [("base", "done"), ("t0000", "done"), ("t0001", "pruned")]
    assert Counter(row for row, *_ in begun(tmp_path)) == {"base": 3, "t0000": 3, "t0001": 1}
    assert "median at step" in states[2].reason
    report(made, tmp_path)
    assert make("s", tmp_path).summary.trials[2].by_seed is None


@pytest.mark.parametrize("victim", ["run", "worker"])
def test_killed_in_the_middle_of_the_second_seed_it_goes_on_there(tmp_path: Path, forks, victim: str) -> None:
    made = replace(several(), space=[Parameter(SPACE[0].name, "categorical", [0.3, 0.4])])
    launcher = forks.start(lambda: run(tmp_path, made, train_slowly_at_the_second, workers=1))
    wait_for(lambda: any(row == "base" and seed == 5 for row, seed, _ in begun(tmp_path)))
    _, (_, second) = [(seed, pid) for row, seed, pid in begun(tmp_path) if row == "base"]
    queue = open_queue(tmp_path, "s")
    wait_for(lambda: Watch(tmp_path, 1).look(queue.states()).running[0].run.step == 2)
    told = json.loads(as_json("s", Watch(tmp_path).look(queue.states())))["cells"][0]
    assert (told["seed"], told["running_seed"], told["step"]) == (4, 5, 2) and len(told["runs"]) == 3
    pid = second if victim == "run" else int(Path(f"/proc/{second}/stat").read_text().split()[3])
    os.kill(pid, signal.SIGKILL)
    if victim == "worker":  # its run lives on for a moment, and is found out by its owner's death
        os.kill(second, signal.SIGKILL)
    assert forks.join(launcher) == 0
    counts = Counter((row, seed) for row, seed, _ in begun(tmp_path))
    assert counts == {(row, seed): 1 for row in ("base", "t0000", "t0001") for seed in SEEDS} | {("base", 5): 2}
    states = queue.states()
    assert [(s.state, s.attempt) for s in states] == [("done", 2), ("done", 1), ("done", 1)]
    assert states[0].values == (pytest.approx(1.7 + 0.01 * 5 / 3),)


def test_where_files_are_not_shared_every_seed_s_record_travels(tmp_path: Path) -> None:
    made = replace(several(), space=[Parameter(SPACE[0].name, "categorical", [0.3, 0.4])])
    states = run(tmp_path, made, share_files=False)
    there = dict(open_queue(tmp_path, "s").shared_records())
    assert there.keys() == {cell.training_hash for state in states for cell in state.cell.runs} and len(there) == 9
    assert all(record["scores"]["dev"]["ppl"] >= 1 for record in there.values())


def test_a_search_of_one_seed_is_as_it_was(tmp_path: Path) -> None:
    one = search(space=SPACE, sampler="grid", trials=1)
    assert "seeds" not in one.to_plain() and "ties" not in one.to_plain()
    assert all(cell.more == () and cell.runs == [cell] for cell in one.cells())
    save(one, tmp_path)
    with pytest.raises(UserError, match="a different search"):
        save(replace(one, seeds=[1, 2]), tmp_path)
