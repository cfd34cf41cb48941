"""What a study would run, and how it is resumed."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.study_options import EARLIER, FILE, command_line, resumable
from lightning_tfm.cli.train.plan import Pace, forecast, pace_of
from lightning_tfm.config import Experiment, override
from lightning_tfm.errors import UserError
from lightning_tfm.queue.clusters import NotSubmitted
from lightning_tfm.queue.queue import Claim, Queue
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Seconds, to_plain
from lightning_tfm.study.cell import Cell, predicted_cost
from lightning_tfm.study.rows import Fingerprints
from lightning_tfm.study.search import Search
from lightning_tfm.study.sequential import Course, late, seeds_of
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import link, load
from lightning_tfm.watch.time_left import duration
from tests.helpers.studies import record_of
from tests.helpers.tiny import TINY, write_corpus

HEAD = "name: small\nmethod: {method}\nmetric: {{name: dev/ppl, goal: minimize}}\n"
HEAD += 'command: [lightning-tfm, fit, "${{args}}"]\n'
TABLE = HEAD.format(method="grid") + "parameters:\n  row: {values: [base, A-h1]}\n  seed: {values: [1, 2]}\n"
GRID = HEAD.format(method="grid") + "parameters:\n  model.h: {values: [1, 2]}\n  model.N: {values: [1, 2]}\n"
UNSEEDED = HEAD.format(method="grid") + "parameters:\n  row: {values: [base, A-h1]}\n"
SEARCH = HEAD.format(method="random") + "parameters:\n  model.d_ff: {distribution: int_uniform, min: 16, max: 512}\n"


def call(verb: str, tmp_path: Path, sweep: str, *more: str) -> int:
    (tmp_path / "small.yaml").write_text(sweep)
    sizes = TINY | {"data.folder": str(write_corpus(tmp_path / "text")), "out": str(tmp_path / "out")}
    return main([verb, str(tmp_path / "small.yaml"), *(f"--{k}={v}" for k, v in sizes.items()), *more])


def plan(tmp_path: Path, sweep: str, *more: str) -> int:
    return call("plan", tmp_path, sweep, *more)


@pytest.mark.parametrize(
    ("sweep", "more", "words"),
    [
        (TABLE, [], ["base", "A-h1", "seed 2", "4 runs: 0 finished, 4 to run", "time unknown"]),
        (GRID, ["--rate=1e9"], ["base ", "t0002", "4 runs: 0 finished, 4 to run", "at 1.00e+09 FLOP/s each"]),
        (
            SEARCH,
            ["--trials=7"],
            ["base ", "6 more to be proposed", "as drawn from the space", "7 runs: 0 finished, 7 to run"],
        ),
    ],
)
def test_what_would_run(tmp_path: Path, capsys, sweep: str, more: list[str], words: list[str]) -> None:
    assert plan(tmp_path, sweep, *more) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in words), said
    assert not (tmp_path / "out" / "runs").exists() and not (tmp_path / "out" / "studies").exists()


def test_a_file_without_base_is_said_to_compare_nothing(tmp_path: Path, capsys) -> None:
    for rows, told in (("[A-h1]", True), ("[base, A-h1]", False)):
        assert plan(tmp_path, TABLE.replace("[base, A-h1]", rows)) == 0
        assert ("none of its rows is base" in capsys.readouterr().err) == told


def test_jobs_of_a_tuning_that_cannot_be_submitted_are_named_though_the_study_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "studies" / "mine-tuning").mkdir(parents=True)
    with pytest.raises(NotSubmitted, match="no partition"), resumable(tmp_path, "mine", "sweep", [], jobs=True):
        raise NotSubmitted("no partition")


def test_a_terminal_s_picture_begins_only_where_there_is_something_to_follow(tmp_path, capsys, monkeypatch) -> None:
    """One that was never ended hid the cursor for good."""
    monkeypatch.setattr("lightning_tfm.queue.launch.View", lambda name: pytest.fail("nobody follows these jobs"))
    assert call("sweep", tmp_path, TABLE, "--launcher=none") == 0
    said = capsys.readouterr()
    assert said.out.startswith("lightning-tfm work small ") and "status small --out" in said.err


MINE = HEAD.format(method="grid") + "parameters:\n  row: {values: [base, mine]}\n  seed: {values: [1]}\n"


def test_what_sweep_would_refuse_plan_refuses_in_the_same_words(tmp_path: Path, capsys, monkeypatch) -> None:
    def rows(h: int) -> list[str]:
        (tmp_path / "mine.yaml").write_text(f"mine: {{group: X, change: {{model.h: {h}}}}}\n")
        return ["--rows", str(tmp_path / "mine.yaml")]

    monkeypatch.setattr("lightning_tfm.queue.launch.work", lambda *study, **how: [])
    assert call("sweep", tmp_path, MINE, *rows(1)) == 0
    assert plan(tmp_path, MINE, *rows(1)) == 0
    for h, more in ((4, []), (1, ["--training.lr_factor=3"]), (1, ["--data.vocab_size=43"])):
        change = [*rows(h), *more]
        capsys.readouterr()
        assert plan(tmp_path, MINE, *change) == 2
        said = capsys.readouterr()
        assert re.search("was started with a different experiment|hide the old one", said.err) and not said.out
        told = said.err.splitlines(keepends=True)
        *progress, refusal = [line for line in told if "training pairs" not in line]
        assert len(progress) == (2 if "--data.vocab_size=43" in more else 0), "only a text of its own is read"
        assert call("sweep", tmp_path, MINE, *change) == 2
        assert capsys.readouterr().err.endswith(refusal)


def test_one_seed_where_seeds_are_listed_is_refused(tmp_path: Path, capsys) -> None:
    for verb in ("plan", "sweep"):
        for option in ("--seed=3", "--training.seed=3"):
            assert call(verb, tmp_path, TABLE, option) == 2
            said = capsys.readouterr().err
            assert f"{option}: {tmp_path}/small.yaml lists the seeds, and a table's seeds are --seeds 3" in said
        assert call(verb, tmp_path, MINE, "--seeds=4", "--seed=3") == 2
        assert "--seed=3: --seeds=4 lists the seeds" in capsys.readouterr().err
    for verb in ("plan", "tune"):
        assert call(verb, tmp_path, GRID, "--seeds=1,2") == 2
        assert "tune --seeds was removed: a trial is one run" in capsys.readouterr().err
    assert plan(tmp_path, UNSEEDED, "--seed=3") == 0 and plan(tmp_path, TABLE, "--seed=3", "--seed=null") == 0
    said = capsys.readouterr().out
    assert "base           seed 3 " in said and "base           seed 1 " in said


def test_the_experiments_own_seed_is_no_other_study_where_seeds_are_listed(tmp_path: Path, monkeypatch) -> None:
    def seeded(seed: int) -> list[str]:
        (tmp_path / "seeded.yaml").write_text(f"seed: {seed}\n")
        return ["--config", str(tmp_path / "seeded.yaml"), "--seeds=1,2"]

    def begin(study: Ablation | Search, cells: list[Cell], root: Path, resources: object, start: bool) -> list:
        return Queue(study.name, find_storage("", root / "studies" / study.name)).states()

    monkeypatch.setattr("lightning_tfm.queue.launch.work", begin)
    assert call("sweep", tmp_path, TABLE, *seeded(3)) == 0
    assert call("sweep", tmp_path, TABLE, *seeded(4)) == 0 and plan(tmp_path, TABLE, "--seeds=1,2") == 0
    kept = json.loads((tmp_path / "out" / "studies" / "small" / "study.json").read_text())
    assert kept["base"]["training"]["seed"] == 3 and kept["seeds"] == [1, 2]


def test_a_row_of_the_very_sweep_is_not_called_unknown(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.yaml").write_text("mine: {group: X, change: {model.h: 1}}\n")
    sweep = MINE.replace('"${args}"', f'--rows, {tmp_path}/mine.yaml, "${{args}}"')
    for verb in ("sweep", "plan"):
        assert call(verb, tmp_path, sweep, "--row=mine") == 2
        assert "row 'mine': a study takes its rows from " in capsys.readouterr().err


def test_a_row_that_the_queue_holds_as_another_run_is_refused_too(tmp_path: Path, capsys, monkeypatch) -> None:
    def begin(study: Ablation, cells: list[Cell], root: Path, resources: object, start: bool) -> list:
        folder = root / "studies" / study.name
        Queue(study.name, find_storage("", folder)).enqueue(cells)
        link(folder, replace(cells[0], training_hash="f" * 64))  # as by another version of a class of the user's
        return []

    monkeypatch.setattr("lightning_tfm.queue.launch.work", begin)
    assert call("sweep", tmp_path, TABLE) == 0
    assert plan(tmp_path, TABLE) == 2
    assert f"holds row base, seed 1 of another experiment (run {'f' * 16}" in capsys.readouterr().err


@pytest.mark.parametrize("budget", [False, True])
def test_trials_that_are_over_are_not_to_run(tmp_path: Path, capsys, monkeypatch, budget: bool) -> None:
    def end_two(search: Search, cells: list[Cell], root: Path, resources: object, start: bool) -> list:
        queue = Queue(search.name, find_storage("", root / "studies" / search.name), budget=search.budget)
        queue.enqueue(cells)

        def take() -> Claim:
            return queue.begin(lambda key, n: search.cell(n, {"model.d_ff": 16 + n})) if budget else queue.claim()

        assert queue.prune(take(), "median at step 4") and not queue.fail(take(), "refused", "")
        return queue.states()

    monkeypatch.setattr("lightning_tfm.queue.launch.work", end_two)
    sweep, more = (SEARCH, ["--trials=4"]) if budget else (GRID, [])
    assert call("tune", tmp_path, sweep, *more) == 1, "one has failed"
    capsys.readouterr()
    assert plan(tmp_path, sweep, *more) == 0
    said = capsys.readouterr().out
    assert "stopped early: median at step 4" in said
    assert "4 runs: 0 finished, 2 to run, 2 stopped early or failed" in said
    if budget:
        assert plan(tmp_path, sweep, "--trials=3") == 2


def test_a_run_whose_record_was_lost_after_its_last_step_is_still_to_run(tmp_path: Path) -> None:
    attempt = RunFolder(tmp_path, "f" * 64).claim()
    attempt.write_progress(100, 100, 0.0, "train")
    attempt.folder.checkpoints.mkdir()
    (attempt.folder.checkpoints / "step-100.ckpt").touch()
    attempt.release()
    told = forecast([Cell("base", 1, "f" * 64, 1e9)], tmp_path, 1, Pace(rate=1e9)).splitlines()
    assert told[0].endswith("resumes at step 100 of 100")
    assert told[1].startswith("1 run: 0 finished, 1 to run; 0.00e+00 of")


def test_of_a_run_that_is_at_work_only_the_rest_is_to_come(tmp_path: Path) -> None:
    attempt = RunFolder(tmp_path, "f" * 64).claim()
    attempt.write_progress(75, 100, 5210.0, "train")
    told = forecast([Cell("base", 1, "f" * 64, 1e9)], tmp_path, 1, Pace(rate=1e9)).splitlines()
    attempt.release()
    assert told[0].endswith("running now") and told[1].endswith("2.50e+08 of 1.00e+09 FLOP")


@pytest.mark.parametrize("pieces", [25, 400])
def test_a_run_takes_what_its_like_took_whatever_a_sentence_is_said_to_have(tmp_path: Path, pieces: int) -> None:
    made = record_of(Experiment(), Fingerprints("t", "d"))
    attempt = RunFolder(tmp_path, made.training_hash).claim()
    attempt.write_json(attempt.folder.result, to_plain(made))
    pace = pace_of(tmp_path, pieces)
    assert pace is not None
    assert pace.seconds(predicted_cost(Experiment(), 300, pieces)) == pytest.approx(made.seconds.total)


def test_short_runs_which_hardly_compute_do_not_decide_what_long_ones_take(tmp_path: Path) -> None:
    def cost(steps: int) -> float:
        return predicted_cost(override(Experiment(), {"training.steps": steps}, "test"), 300)

    for number, steps in enumerate([1, 2, 3, 2, 1, 4, 3, 2, 1, 1000]):  # each starts and is scored in 4 s
        seconds = Seconds(train=cost(steps) / 1e12, validate=0.0, data=0.0, decode=4.0, total=4 + cost(steps) / 1e12)
        experiment = override(Experiment(), {"training.steps": steps, "training.seed": number}, "test")
        made = record_of(experiment, Fingerprints("t", "d"), seconds=seconds)
        attempt = RunFolder(tmp_path, made.training_hash).claim()
        attempt.write_json(attempt.folder.result, to_plain(made))
    pace = pace_of(tmp_path)
    assert pace is not None and str(pace) == "as 10 finished runs here took"
    for steps in (500, 4000):
        assert pace.seconds(cost(steps)) == pytest.approx(4 + cost(steps) / 1e12)
    assert pace.seconds(0.0) == 0.0 and Pace(rate=1e9).seconds(3e9) == 3
    run = Cell("base", 1, "f" * 64, cost(4000))
    told = forecast([run], tmp_path, 1, pace).splitlines()
    whole = duration(pace.seconds(run.cost))
    assert whole in told[0] and told[-1] == f"about {whole} with 1 at once, as 10 finished runs here took"


ELSEWHERE = ["--data.folder=nowhere", "--rate=1e12"]


@pytest.mark.parametrize(
    ("sweep", "more", "words"),
    [
        (
            TABLE,
            ["--launcher=slurm", "--slurm.jobs=4", "--slurm.gpus=8", "--trainer.accelerator=gpu"],
            ["with 32 at once"],
        ),
        (
            TABLE,
            ["--trainer.accelerator=gpu", "--workers=8"],
            ["with 8 at once", "planned without it: trainer.accelerator=gpu"],
        ),
        (
            TABLE,
            ["--tune=training.lr_factor=0.5,1,2", "--tune-seeds=7,8"],
            ["16 runs: 0 finished, 16 to run", "base's value"],
        ),
        (GRID, [], ["4 runs"]),
        (SEARCH, ["--trials=3"], ["3 runs"]),
    ],
)
def test_a_machine_without_the_gpus_and_the_text_plans_for_one_that_has_them(tmp_path, capsys, sweep, more, words):
    """A login node: the configuration says what a run costs; what is assumed is said."""
    assert plan(tmp_path, sweep, *ELSEWHERE, *more) == 0
    said = capsys.readouterr().out
    assert "not on this machine, planned without it: data.folder=nowhere: no such folder" in said
    assert "25 tokens per sentence" in said and all(word in said for word in words), said
    assert not re.search(r"\b[0-9a-f]{16}\b", said), "the name of a run follows from its text"


def test_longer_sentences_cost_more_attention(tmp_path, capsys):
    def flops(*more: str) -> float:
        assert plan(tmp_path, TABLE, *ELSEWHERE, *more) == 0
        return float(re.search(r"of (\S+) FLOP", capsys.readouterr().out)[1])

    assert flops() < flops("--pieces=200") and flops() == flops("--pieces=25")


def test_a_wrong_field_is_refused_however_little_is_here(tmp_path, capsys):
    assert plan(tmp_path, TABLE, *ELSEWHERE, "--model.h=3", "--model.hh=2") == 2
    assert plan(tmp_path, TABLE, *ELSEWHERE, "--trainer.accelerator=gpu", "--workers=-1") == 2


@pytest.fixture
def worked(monkeypatch) -> list:
    """(study, cells, resources) of each time that workers would have begun."""
    found: list = []

    def work(study, cells, root, resources, start=False):
        found.append((study, cells, resources))
        if len(found) == 1:
            raise SystemExit(130)
        return []

    monkeypatch.setattr("lightning_tfm.queue.launch.work", work)
    return found


def begin(tmp_path: Path, *more: str) -> Path:
    """A study that Ctrl-C stopped, with rows of the user's own; its results folder."""
    (tmp_path / "mine.yaml").write_text("mine: {group: X, change: {model.h: 1}}  # half\n")
    with pytest.raises(SystemExit):
        call("sweep", tmp_path, MINE, "--rows", str(tmp_path / "mine.yaml"), "--trainer.log_every=7", *more)
    return tmp_path / "out"


def test_the_last_line_of_a_stopped_study_resumes_it_from_anywhere(tmp_path: Path, capsys, monkeypatch, worked) -> None:
    out = begin(tmp_path, "--workers", "1")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"stopped; to resume: lightning-tfm resume small --out {out}"
    before = load(out, "small")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["resume", "small", "--workers=2", "--out=../out"]) == 0
    (_, first, _), (study, cells, resources) = worked
    assert (study, load(out, "small"), cells) == (before, before, first)
    assert resources.workers == 2 and resources.hardware.log_every == 7
    kept = json.loads((out / "studies" / "small" / FILE).read_text())["options"]
    assert kept["workers"] == 2 and kept["trainer"]["log_every"] == 7, "what was added stays"


def test_the_study_is_what_study_json_says_whatever_became_of_its_files(tmp_path: Path, capsys, worked) -> None:
    out = begin(tmp_path)
    (tmp_path / "mine.yaml").write_text("mine: {group: X, change: {model.h: 2}}\n")
    (tmp_path / "small.yaml").unlink()
    assert main(["resume", "small", "--out", str(out)]) == 0
    assert worked[1][:2] == worked[0][:2]
    for path in (tmp_path / "text").glob("train.*"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[::-1]))
    assert main(["resume", "small", "--out", str(out)]) == 2
    assert "the text data.train=train has changed" in capsys.readouterr().err and len(worked) == 2


def test_a_study_of_an_earlier_version_resumes_by_its_command(tmp_path: Path, monkeypatch, worked) -> None:
    monkeypatch.chdir(Path.cwd())  # it is left for the directory of the command
    out = begin(tmp_path, "--workers", "1")
    folder = out / "studies" / "small"
    (folder / FILE).unlink()
    typed = ["small.yaml", "--rows", "mine.yaml", "--workers", "1", "--trainer.log_every=9", "--name=small"]
    plain = {"verb": "sweep", "arguments": typed, "directory": str(tmp_path), "files": {"small.yaml": "0" * 64}}
    (folder / EARLIER).write_text(json.dumps(plain))
    assert main(["resume", "small", "--out", str(out)]) == 0
    resources = worked[1][2]
    assert (resources.workers, resources.hardware.log_every, Path.cwd()) == (1, 9, tmp_path)
    assert worked[1][:2] == worked[0][:2]


def test_the_seeds_that_looks_may_take_are_kept_or_follow_those_taken(tmp_path: Path, worked) -> None:
    begin(tmp_path)
    course, study = Course(late(2, 4), [], {}), replace(worked[0][0], seeds=[1, 2])
    assert seeds_of(course, study, tmp_path) == [1, 2, 3, 4]
    assert seeds_of(replace(course, seeds=(1, 2, 20, 30)), study, tmp_path) == [1, 2, 20, 30]
    with pytest.raises(UserError, match="says not which seeds follow 20"):
        seeds_of(course, replace(study, seeds=[1, 20]), tmp_path)


def test_what_may_not_be_added(tmp_path: Path, capsys, worked) -> None:
    out = begin(tmp_path)
    (out / "studies" / "small" / "journal.log").touch()
    for given, words in (
        (["--training.steps=9"], "--training.steps belongs to what the study is"),
        (["--storage", "postgresql+psycopg://h/other"], "where its queue is"),
    ):
        assert main(["resume", "small", "--out", str(out), *given]) == 2
        assert words in capsys.readouterr().err and len(worked) == 1
    assert main(["resume", "smal", "--out", str(out)]) == 2
    assert "there are: small" in capsys.readouterr().err


EARLY = "early_terminate: {type: hyperband, min_iter: 1}\n" + SEARCH


def test_a_search_that_stops_trials_early_keeps_its_validations(tmp_path: Path, capsys, monkeypatch, worked) -> None:
    """Trials are compared at equal steps: no machine may validate at others."""
    monkeypatch.setattr("lightning_tfm.queue.search_results.report", lambda *search: "")
    out = str(tmp_path / "out")
    with pytest.raises(SystemExit):
        call("tune", tmp_path, EARLY, "--trainer.validate_every=2")
    for verb in ("tune", "plan"):
        assert call(verb, tmp_path, EARLY, "--trainer.validate_every=1") == 2
        assert "--trainer.validate_every=1: the trials of study 'small' are vali" in capsys.readouterr().err
    assert main(["resume", "small", "--out", out, "--trainer.validate_every", "3"]) == 2
    assert "validated every 2 steps" in capsys.readouterr().err and len(worked) == 1
    call("tune", tmp_path, EARLY)  # as the study has it
    main(["resume", "small", "--out", out])
    assert [(study.validate_every, study.pruner.min_step) for study, *_ in worked] == [(2, 2)] * 3
    assert worked[2][0] == worked[0][0], "as it was begun"
    path = tmp_path / "out/studies/small/study.json"
    plain = json.loads(path.read_text())
    assert plain.pop("validate_every") == 2
    path.write_text(json.dumps(plain))  # begun before it was kept
    main(["resume", "small", "--out", out])
    assert worked[3][0].validate_every == 0


def test_no_password_is_written_down() -> None:
    address = "postgresql+psycopg://me:secret@host/db"
    typed = command_line("work", ["mine", "--storage", address, f"--storage={address}"]).split()
    assert "secret" not in str(typed) and typed[3] == "--storage" and typed[4].endswith("//me@host/db")


def test_a_worker_that_is_stopped_says_how_it_joins_again(monkeypatch, capsys) -> None:
    def stop(*anything):
        raise SystemExit(130)

    monkeypatch.setattr("lightning_tfm.queue.launch.join", stop)
    with pytest.raises(SystemExit):
        main(["work", "mine", "--workers", "1", "--storage", "postgresql+psycopg://me:secret@host/db"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("stopped; to resume: lightning-tfm work mine --workers 1 --storage postgresql")
    assert last.endswith("//me@host/db")


def test_a_wide_name_moves_no_column_of_a_plan(tmp_path: Path) -> None:
    cells = [Cell(name, 1, letter * 64, 1e9) for name, letter in (("half", "e"), ("절반", "f"))]
    half, wide = forecast(cells, tmp_path, 1, None).splitlines()[:2]
    assert half.index("seed") == wide.index("seed") + len("절반")
