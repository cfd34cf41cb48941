"""`resume`: a study by its name alone, as it was started, and a clear refusal where it would be another one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.queue.rounds import seeds_of
from lightning_tfm.queue.worker_options import EARLIER, FILE, command_line
from lightning_tfm.study.sequential import Course, late
from lightning_tfm.study.study_file import load
from tests.study.test_plan import MINE, SEARCH, call


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


def test_a_study_of_an_earlier_version_resumes_by_its_command(tmp_path: Path, worked) -> None:
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
        (["--seeds", "1-9"], "--seeds belongs to what the study is"),
        (["--training.steps=9"], "--training.steps belongs to what the study is"),
        (["--worker=2"], "did you mean '--workers'?"),
        (["--storage", "postgresql+psycopg://h/other"], "where its queue is"),
    ):
        assert main(["resume", "small", "--out", str(out), *given]) == 2
        assert words in capsys.readouterr().err and len(worked) == 1
    assert main(["resume", "smal", "--out", str(out)]) == 2
    assert "there are: small" in capsys.readouterr().err


def test_a_search_resumes_too(tmp_path: Path, capsys, monkeypatch, worked) -> None:
    monkeypatch.setattr("lightning_tfm.queue.searches.results.report", lambda *search: "")
    with pytest.raises(SystemExit):
        call("tune", tmp_path, SEARCH, "--trials=7")
    assert "resume small" in capsys.readouterr().err.splitlines()[-1]
    main(["resume", "small", "--out", str(tmp_path / "out")])
    assert worked[1][0].trials == 7 and worked[1][0] == worked[0][0]


EARLY = "early_terminate: {type: hyperband, min_iter: 1}\n" + SEARCH


def test_a_search_that_stops_trials_early_keeps_its_validations(tmp_path: Path, capsys, monkeypatch, worked) -> None:
    """Trials are compared at equal steps: no machine may validate at others."""
    monkeypatch.setattr("lightning_tfm.queue.searches.results.report", lambda *search: "")
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

    monkeypatch.setattr("lightning_tfm.queue.storages.join.join", stop)
    with pytest.raises(SystemExit):
        main(["work", "mine", "--workers", "1", "--storage", "postgresql+psycopg://me:secret@host/db"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("stopped; to resume: lightning-tfm work mine --workers 1 --storage postgresql")
    assert last.endswith("//me@host/db")
