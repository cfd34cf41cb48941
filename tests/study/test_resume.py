"""`resume`: a study by its name alone, as it was started, and a clear refusal where it would be another one."""

import json
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.queue import command
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
    recorded = json.loads((out / "studies" / "small" / "command.json").read_text())
    assert [word for word in recorded["arguments"] if "workers" in word] == ["--workers=2"], "what was added stays"
    assert "1" not in recorded["arguments"], "the value that it replaces is gone"


def test_comments_may_change_and_nothing_else(tmp_path: Path, capsys, worked) -> None:
    out = begin(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text("# of our own\nmine: {group: X, change: {model.h: 1}}\n")
    assert main(["resume", "small", "--out", str(out)]) == 0
    for content, words in (
        ("mine: {group: X, change: {model.h: 2}}\n", "mine.yaml has changed since"),
        (None, "no longer exists"),
    ):
        mine.unlink() if content is None else mine.write_text(content)
        assert main(["resume", "small", "--out", str(out)]) == 2
        said = capsys.readouterr().err
        assert words in said and "--name" in said and "cannot be resumed as it was started (lightning-tfm sweep" in said
    assert len(worked) == 2


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
    (out / "studies" / "small" / command.FILE).unlink()
    assert main(["resume", "small", "--out", str(out)]) == 2
    assert "type the command that started it again" in capsys.readouterr().err
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
    found = command.without_password(["s.yaml", "--storage", address, f"--storage={address}"])
    assert "secret" not in " ".join(found) and found[1] == "--storage" and found[2].endswith("//me@host/db")


def test_a_worker_that_is_stopped_says_how_it_joins_again(monkeypatch, capsys) -> None:
    def stop(*anything):
        raise SystemExit(130)

    monkeypatch.setattr("lightning_tfm.queue.storages.join.join", stop)
    with pytest.raises(SystemExit):
        main(["work", "mine", "--workers", "1", "--storage", "postgresql+psycopg://me:secret@host/db"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("stopped; to resume: lightning-tfm work mine --workers 1 --storage postgresql")
    assert last.endswith("//me@host/db")
