"""Searches with real workers; the runs are arithmetic on the parameters, with a record that a pruner can read."""

import io
import json
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightning_tfm.config import Experiment, Hardware, override
from lightning_tfm.errors import UserError
from lightning_tfm.queue.launch import join, publish, work
from lightning_tfm.queue.queue import Claim, Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.sampling import SearchTrials, optuna_params, warmup_line
from lightning_tfm.queue.search_results import _summary, importances, report, trials_and_importances
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.queue.studies import make_queue, open_queue
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Measure, Outcome, read_small
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import load_rows
from lightning_tfm.study.search import Search
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load, load_as, save
from lightning_tfm.study.sweeps import Parameter, Pruner, read_sweep
from lightning_tfm.study.trials import gain_lines
from lightning_tfm.training.schedule import EventSchedule
from lightning_tfm.watch.run_state import Curve
from tests.helpers import studies
from tests.helpers.launching import Task, Train, launch
from tests.helpers.studies import leave
from tests.helpers.waiting import wait_for

STEPS = 8
SPACE = [
    Parameter("training.lr_factor", "log_uniform_values", [], 0.01, 10.0),
    Parameter("model.P_drop", "uniform", [], 0.0, 0.5),
]
GRID = [Parameter("model.h", "categorical", [1, 2, 4]), Parameter("model.N", "int_uniform", [], 1, 2)]


def search(**changes: Any) -> Search:
    default = {"name": "s", "base": Experiment(), "space": SPACE, "trials": 6, "V": 100, "based": False}
    return studies.search(**default | changes)


class Stopped(Exception):
    outcome = "pruned"

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


def loss(change: dict[str, Any]) -> float:
    return 1.0 + sum(abs(float(value) - 0.3) for value in change.values())


def train(task: Task, after: Callable[[int], object] = lambda step: None) -> None:
    """Perplexity falls with the steps to what the parameters decide; `after` is called after each."""
    worst = loss(task.cell.change)
    with (task.folder.root / "begun").open("a") as file:
        file.write(f"{task.cell.row} {os.getpid()}\n")
    for step in range(1, STEPS + 1):
        if task.attempt.stop_asked():
            raise Stopped(step - 1)
        task.attempt.append_metrics({"step": step, "dev_ppl": worst + 1 / step})
        task.attempt.write_progress(step, STEPS, 1.0, "train")
        after(step)
    leave(task.attempt, ppl=worst, bleu=10 / worst)


def train_watched(task: Task) -> None:
    """`train`, but a bad trial waits after each step until the pool has looked at it (see `noting`)."""
    seen = task.folder.root / f"{task.cell.row} seen"

    def wait(step: int) -> None:
        wait_for(lambda: task.attempt.stop_asked() or (seen.exists() and len(seen.read_text()) >= step))

    train(task, wait if loss(task.cell.change) > 1.6 else lambda step: None)


@pytest.fixture
def noting(monkeypatch) -> None:
    """After each look at a trial the pool leaves a file with a letter for each step that it saw."""
    watch = SearchTrials.watch

    def noted(self: SearchTrials, claim: Claim, folder: RunFolder, pid: int) -> None:
        steps = len(Curve.of(folder.path).lines)
        watch(self, claim, folder, pid)
        (folder.root / f"{claim.cell.row} seen").write_text("x" * steps)

    monkeypatch.setattr(SearchTrials, "watch", noted)


def train_until_stopped(task: Task) -> None:
    """`train`, but a bad trial does not end before it is stopped."""
    if loss(task.cell.change) <= 1.6:
        return train(task)
    for step in range(1, STEPS + 1):
        task.attempt.append_metrics({"step": step, "dev_ppl": loss(task.cell.change) + 1 / step})
    wait_for(task.attempt.stop_asked)
    raise Stopped(STEPS)


def run(root: Path, made: Search, workers: int = 2, storage: str = "", train: Train = train):
    save(made, root)
    with (root / "shown").open("a") as stream:
        return launch(made, made.cells(), root, train, stream, workers=workers, storage=storage)


def trials(root: Path) -> list[dict[str, Any]]:
    return json.loads((root / "studies" / "s" / "trials.json").read_text())


@pytest.mark.parametrize(
    ("sampler", "kind"),
    [
        ("tpe", "journal"),
        ("random", "journal"),
        ("cmaes", "journal"),
        pytest.param("random", "postgres", marks=pytest.mark.long),
    ],
)
def test_a_search_makes_its_trials_and_no_two_alike(tmp_path: Path, sampler: str, kind: str, request) -> None:
    storage = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    made = search(sampler=sampler)
    states = run(tmp_path, made, workers=3, storage=storage)
    assert [state.state for state in states] == ["finished"] * 6
    assert len({json.dumps(state.cell.change) for state in states}) == 6
    assert all(state.values == (pytest.approx(loss(state.cell.change)),) for state in states)
    run(tmp_path, made, storage=storage)
    assert len((tmp_path / "begun").read_text().splitlines()) == 6, "a second call has nothing left"
    assert len(run(tmp_path, replace(made, trials=7), storage=storage)) == 7


def test_a_gaussian_process_proposes_in_a_process_that_forks(tmp_path: Path) -> None:
    assert [s.state for s in run(tmp_path, search(sampler="gp", trials=12), workers=1)] == ["finished"] * 12


def test_the_points_of_a_grid_run_once_each(tmp_path: Path) -> None:
    states = run(tmp_path, search(space=GRID, sampler="grid", trials=1), workers=3)
    assert Counter(tuple(s.cell.change.values()) for s in states) == {(h, N): 1 for h in (1, 2, 4) for N in (1, 2)}
    assert {s.state for s in states} == {"finished"}
    summary = report(load(tmp_path, "s"), tmp_path)
    assert "6 finished" in summary and "too few to tell" in summary


@pytest.mark.parametrize("kind", ["journal", pytest.param("postgres", marks=pytest.mark.long)])
def test_what_promises_little_is_stopped_and_recorded_with_its_step(tmp_path, kind, request) -> None:
    storage = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    rates = [Parameter("training.lr_factor", "categorical", [0.4, 0.3, 5.0, 6.0])]  # the second beats the first
    made = search(pruner=Pruner("median", 1, 3, 1), space=rates, sampler="grid", trials=1, prune_in_warmup=True)
    states = run(tmp_path, made, workers=1, storage=storage, train=train_until_stopped)
    pruned = [s for s in states if s.state == "stopped early"]
    assert [s.cell.change["training.lr_factor"] for s in pruned] == [5.0, 6.0] and len(states) == 4
    queue = open_queue(tmp_path, "s", storage)
    line = warmup_line(replace(made, prune_in_warmup=False), queue)
    assert line.startswith(f"s: {', '.join(s.cell.row for s in pruned)}: stopped inside the warm-up by the rule of an")
    assert warmup_line(made, queue) == "", "they were asked to be"
    report(made, tmp_path, storage)
    for state in pruned:
        folder = RunFolder(tmp_path, state.cell.training_hash)
        assert not folder.finished() and read_small(Outcome, folder.outcome).outcome == "pruned"
        assert f"stopped after step {read_small(Outcome, folder.outcome).step}" in state.reason
        assert "median at step" in state.reason
    lines = trials(tmp_path)
    assert Counter(line["state"] for line in lines)["pruned"] == len(pruned)
    assert all(line["dev/ppl"] is None for line in lines if line["state"] == "pruned")
    best = min((s for s in states if s.state == "finished"), key=lambda s: s.values)
    assert best.cell.training_hash[:16] in (tmp_path / "studies" / "s" / "best.yaml").read_text()


@pytest.mark.usefixtures("noting")
@pytest.mark.parametrize(("kind", "within"), [("asha", False), ("hyperband", True)])
def test_rungs_stop_trials_which_are_recorded_with_their_steps(tmp_path: Path, kind: str, within: bool) -> None:
    base = override(Experiment(), {"training.steps": STEPS, "training.warmup": 3}, "test")
    made = search(base=base, pruner=Pruner(kind, 1, 2), trials=14, sampler="random", prune_in_warmup=within)
    states = run(tmp_path, made, workers=2, train=train_watched)
    assert len(states) == 14 and {s.state for s in states} == {"finished", "stopped early"}
    study = Queue("s", find_storage("", tmp_path / "studies" / "s")).study(None, None)
    trials = {t.user_attrs["row"]: t for t in study.get_trials()}
    for state in states:
        trial, folder = trials[state.cell.row], RunFolder(tmp_path, state.cell.training_hash)
        if state.state == "finished":
            assert trial.value == pytest.approx(loss(state.cell.change)) and folder.finished()
            continue
        decided = trial.user_attrs["pruned_by"]
        told = trial.intermediate_values
        assert decided in ((1, 2, 4, 8) if within else (4, 8)) and decided in told, "a rung, past the warm-up"
        assert all(told[step] == pytest.approx(loss(state.cell.change) + 1 / step) for step in told)
        assert trial.user_attrs["stopped_at"] == read_small(Outcome, folder.outcome).step >= decided
        assert state.reason == f"{kind} at step {decided}; stopped after step {trial.user_attrs['stopped_at']}"
        assert not folder.finished()
    report(made, tmp_path)
    for line in json.loads((tmp_path / "studies" / "s" / "trials.json").read_text()):
        assert (line["dev/ppl"] is None) == (line["state"] == "pruned")


class Growing:
    """A run's folder: dev perplexity at steps `every` apart, the same in every run."""

    def __init__(self, every: int, path: Path) -> None:
        self.every, self.path, self.stopped = every, path, False
        path.mkdir(exist_ok=True)

    def reach(self, now: int) -> None:
        steps = range(self.every, now + 1, self.every)
        lines = [json.dumps({"step": k, "dev_ppl": 5 + 95 * math.exp(-k / 20)}) + "\n" for k in steps]
        (self.path / "metrics.jsonl").write_text("".join(lines))

    def ask_to_stop(self, pid: int) -> bool:
        self.stopped = True
        return True


@pytest.mark.parametrize("found", [0, 13])
def test_equal_trials_are_not_stopped_for_where_they_were_trained(tmp_path: Path, found: int) -> None:
    """One machine says how often it validates, another does not, and `found` had been begun by `fit` (0: none had)."""
    base = override(Experiment(), {"training.steps": 100, "training.warmup": 10}, "test")
    made = search(base=base, sampler="random", trials=8, pruner=Pruner("asha", 5, 3), validate_every=5)
    queue, stopped = Queue("s", find_storage("", tmp_path), budget=8), []
    for asked in (5, 5, 0, 0, 5, 5, 5, 5):
        every = EventSchedule.of(made.hardware_of(Hardware(validate_every=asked)), base.training).validate_every
        trials = SearchTrials(made, queue, every)
        claim, curve = trials.propose(), Growing(every if asked else found or every, tmp_path / "run")
        for now in range(1, 101):
            curve.reach(now)
            trials.watch(claim, curve, 1)
        trials.finish(claim, curve, [])
        queue.finish(claim, 5.0)
        stopped.append(curve.stopped)
    assert not any(stopped)


def test_every_machine_validates_as_the_search_says(tmp_path: Path, monkeypatch) -> None:
    made, jobs = search(pruner=Pruner("median"), validate_every=5), []
    monkeypatch.setattr("lightning_tfm.queue.launch.run_study", lambda job, cells, start: jobs.append(job))
    save(made, tmp_path)
    work(made, [], tmp_path, Resources())
    assert (jobs[0].first_validation, jobs[0].resources.hardware.validate_every) == (5, 5)
    publish(make_queue(made, tmp_path, Resources(), print), jobs[0].folder, made.to_plain())
    with pytest.raises(UserError, match="validate_every=7: the trials of study 's' are validated every 5 steps"):
        join("s", tmp_path, Resources(hardware=Hardware(validate_every=7)))


def test_a_search_is_no_table(tmp_path: Path) -> None:
    save(search(), tmp_path)
    assert load_as(Search, tmp_path, "s") == load(tmp_path, "s")
    with pytest.raises(UserError, match="is a search, not a table"):
        load_as(Ablation, tmp_path, "s")
    with pytest.raises(UserError, match="already has 6 trials, more than the 3 requested"):
        save(search(trials=3), tmp_path)
    with pytest.raises(UserError, match=r"a different search \(sampler is tpe, the study has|a different search"):
        save(search(sampler="random"), tmp_path)


def test_a_stop_request_reaches_only_the_attempt_it_was_made_for(tmp_path: Path, forks) -> None:
    folder = RunFolder(tmp_path, "a" * 64)
    attempt = folder.claim()
    assert not folder.ask_to_stop(os.getpid() + 1) and not attempt.stop_asked()
    assert folder.ask_to_stop(os.getpid()) and attempt.stop_asked()
    attempt.release()
    assert not folder.claim().stop_asked()


def test_a_killed_trial_goes_on_with_the_same_parameters(tmp_path: Path, forks) -> None:
    def train_again(task: Task) -> None:
        train(task, lambda step: time.sleep(3600 if (task.cell.row, task.attempt.number) == ("t0000", 1) else 0))

    made = search(trials=2, space=SPACE[:1])
    launcher = forks.start(lambda: run(tmp_path, made, workers=1, train=train_again))
    wait_for(lambda: (tmp_path / "begun").exists() and "\n" in (tmp_path / "begun").read_text())
    pid = int((tmp_path / "begun").read_text().split()[1])
    os.kill(pid, signal.SIGKILL)
    assert forks.join(launcher) == 0
    queue = Queue("s", find_storage("", tmp_path / "studies" / "s"))
    assert [(s.state, s.attempt) for s in queue.states()] == [("finished", 2), ("finished", 1)]
    study = queue.study(None, None)
    params = [t.params for t in study.get_trials() if t.user_attrs["row"] == "t0000"]
    assert len(params) == 2 and params[0] == params[1]


def test_limits_refuse_before_training_and_cost_no_budget(tmp_path: Path) -> None:
    widths = [Parameter("model.d_model", "categorical", [64, 512])]
    made = search(space=widths, constraints={"parameters": 8_000_000.0}, trials=3, sampler="random")
    states = run(tmp_path, made, workers=1)
    assert [s.cell.change for s in states] == [{"model.d_model": 64}], "the one point that keeps the limit"
    none = search(
        name="none", space=[Parameter("model.d_model", "categorical", [512])], constraints={"parameters": 9.0}
    )
    save(none, tmp_path)
    with pytest.raises(UserError, match=r"no point of its space keeps the limits \(parameters ≤ 9\)"):
        launch(none, [], tmp_path, train, io.StringIO())


def test_several_objectives_yield_what_nothing_beats(tmp_path: Path) -> None:
    made = search(objectives={"dev/ppl": "minimize", "dev/bleu": "maximize"}, trials=12)
    run(tmp_path, made)
    summary = report(made, tmp_path)
    assert "importance for dev/bleu (PED-ANOVA on 12 finished trials)" in summary
    assert len(list((tmp_path / "studies" / "s").glob("best-t*.yaml"))) == 1, "both objectives agree here"


def test_a_search_by_a_metric_that_was_asked_for_finds_its_best(tmp_path: Path) -> None:
    """The lowest perplexity has the lowest F1 here."""

    def scored(task: Task) -> None:
        worst = loss(task.cell.change)
        leave(task.attempt, ppl=worst, measures={"f1": Measure(10 * worst, "by hand")})

    made = search(objectives={"dev/f1": "maximize"}, trials=5)
    run(tmp_path, made, train=scored)
    summary = report(made, tmp_path)
    found = {trial["trial"]: trial["dev/f1"] for trial in trials(tmp_path)}
    best = max(found, key=lambda name: found[name])
    assert len({*found.values()}) > 1 and f"{best}: dev/f1 {found[best]:.6g}" in summary
    folder = tmp_path / "studies/s"
    assert f"to test it at 5 new seeds: lightning-tfm sweep {folder}/best-sweep.yaml --out {tmp_path}" in summary
    sweep = read_sweep(folder / "best-sweep.yaml")
    (row,) = load_rows(folder / "best-rows.yaml")
    assert sweep.rows == ["base", row.name] and sweep.seeds == [made.base.training.seed + k for k in range(1, 6)]
    assert row.change == {key: value for key, value in next(t for t in trials(tmp_path) if t["trial"] == best).items()
                          if key in ("training.lr_factor", "model.P_drop")}  # fmt: skip
    assert load_experiment(folder / "best-base.yaml") == made.base


def test_base_runs_first_and_a_space_that_is_exhausted_stops(tmp_path: Path) -> None:
    """50 trials were asked for; the space has two points beside base, which is one more."""
    space = [Parameter("training.lr_factor", "categorical", [0.3, 0.8])]
    made = search(space=space, trials=50, based=True)
    states = run(tmp_path, made, workers=2)
    assert next(s.cell.row for s in states) == "base" and {s.state for s in states} == {"finished"}
    assert next(s.cell.change["training.lr_factor"] for s in states) == 1.0
    assert sorted(s.cell.change["training.lr_factor"] for s in states[1:]) == [0.3, 0.8]
    begun = (tmp_path / "begun").read_text().splitlines()
    assert len(begun) == 3 and any(line.startswith("base ") for line in begun[:2]), "two workers begin at once"
    text = report(load_as(Search, tmp_path, "s"), tmp_path)
    assert "3 finished" in text and "the space has 2 points" in text and "too few to tell" in text
    assert "dev/ppl 0.7 (41.2 %) better than base's 1.7" in text
    run(tmp_path, made)
    assert len((tmp_path / "begun").read_text().splitlines()) == 3, "there is nothing left to try"


def test_base_is_one_of_a_grid_s_points_once(tmp_path: Path) -> None:
    made = search(space=[Parameter("model.h", "categorical", [4, 8])], sampler="grid", trials=1, based=True)
    assert [(cell.row, cell.change) for cell in made.cells()] == [("base", {"model.h": 8}), ("t0000", {"model.h": 4})]
    assert [cell.row for cell in replace(made, based=False).cells()] == ["t0000", "t0001"]


def test_a_search_begun_before_base_ran_first_gets_none_in_the_middle(tmp_path: Path) -> None:
    path = save(search(), tmp_path) and tmp_path / "studies/s/study.json"
    plain = json.loads(path.read_text())
    del plain["based"]
    path.write_text(json.dumps(plain))
    assert not save(search(based=True, trials=7), tmp_path).based
    assert gain_lines(search(based=False), [], []) == [
        "started before base was the first run of a search: no base to compare with"
    ]


def test_runs_that_trials_share_count_once_in_importance(tmp_path: Path) -> None:
    queue = Queue("s", find_storage("", tmp_path), budget=24)
    for i in range(24):
        change = {"training.lr_factor": 0.1 * (1 + i % 2)}
        cell = Cell(f"t{i:04d}", 1, f"{i % 2:064x}", 1.0, change)
        queue.enqueue([cell], params_of=optuna_params(search(space=SPACE[:1])))
        queue.finish(queue.claim(), 1.0 + i % 2)
    found = importances(search(space=SPACE[:1]), queue.trials())
    assert found[0].why_not == "too few to tell: 2 finished trials, at least 10 are needed"


def test_a_perplexity_that_is_infinite_is_no_value_of_a_trial(tmp_path: Path) -> None:
    """It was Infinity in trials.json, which is no JSON, and gains over a base of it were "inf (nan %)"."""
    queue, made = Queue("s", find_storage("", tmp_path), budget=1), search(space=SPACE[:1])
    cell = Cell("t0000", 1, "0" * 64, 1.0, {"training.lr_factor": 0.1})
    queue.enqueue([cell], params_of=optuna_params(made))
    queue.finish(queue.claim(), math.inf)
    (trial,), _ = trials_and_importances(made, queue)
    assert (trial.state, trial.values) == ("finished", {"dev/ppl": None})


@pytest.mark.parametrize(("ties", "words"), [({}, "1 proposal above a limit"), ({"model.d_ff": {}}, "not whole")])
def test_why_proposals_were_refused_is_said(ties: dict, words: str) -> None:
    made = search(space=SPACE[:1], ties=ties)
    assert _summary(made, [], 1, {})[0].endswith(words)


def test_a_base_outside_the_space_is_no_evidence_for_the_sampler(tmp_path: Path) -> None:
    space = [Parameter("training.lr_factor", "uniform", [], 0.1, 0.5), SPACE[1]]
    made = search(space=space, based=True, trials=3)
    assert optuna_params(made)(made.cells()[0]) == ({}, {})
    queue = Queue("s", find_storage("", tmp_path), budget=3)
    queue.enqueue(made.cells(), params_of=optuna_params(made))
    queue.finish(queue.claim(), 2.0)
    assert [state.cell.row for state in queue.states()] == ["base"]
    assert queue.study(None, None).get_trials() == [] and len(queue.trials()) == 1
