"""What is gone is refused with what to use instead, and what it left behind reads, prints and goes on."""

import contextlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.gone import GONE
from lightning_tfm.study.rows import load_rows
from lightning_tfm.study.settings import SECTIONS
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import from_plain
from tests.helpers.tiny import in_child

ARCHIVES = Path(__file__).parent / "archives"
"""made by the program of commit f988f24"""


@pytest.mark.parametrize("key", GONE)
def test_what_is_gone_is_refused_with_what_to_use_instead(key, capsys):
    field = " " not in key and "." in key
    assert main(["fit", f"--{key}", "1"] if field else [*key.replace("=", " ").split(), "1"]) == 2
    assert f"{key} was removed: {GONE[key]}" in capsys.readouterr().err


@pytest.mark.parametrize("key", [key for key in GONE if key.partition(".")[0] in SECTIONS])
def test_a_key_of_a_file_is_refused_at_its_line(key, tmp_path, capsys):
    file, (section, name) = tmp_path / "e.yaml", key.split(".")
    file.write_text(f"{section}:\n  {name}: true\n")
    assert main(["fit", "--config", str(file)]) == 2
    assert f"{file}:2: {key} was removed: {GONE[key]}\n" in capsys.readouterr().err


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def said(folder: Path, *argv: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of a command in `folder`, which has to end with `code`."""

    def call() -> tuple[int, str, str]:
        os.chdir(folder)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = main(list(argv))
        return ended, out.getvalue(), err.getvalue()

    ended, out, err = in_child(call)
    assert ended == code, err
    return out, err


def rows_of(folder: Path, study: str) -> dict[str, dict]:
    return {row["row"]: row for row in json.loads(said(folder, "table", study, "--format", "json")[0])["rows"]}


def test_a_study_that_began_packed_prints_and_is_resumed_padded(tmp_path):
    folder = unpacked("packed", tmp_path)
    before = rows_of(folder, "packed")
    assert before["base"]["ppl"]["mean"] == pytest.approx(4.78932617564624, rel=1e-9)
    assert before["narrow"]["missing"] == {"1": "interrupted at step 150 of 400"}
    err = said(folder, "resume", "packed")[1]
    assert err.count(f"packed: trainer.packed was removed: {GONE['trainer.packed']}\n") == 1
    after = rows_of(folder, "packed")
    assert after["base"] == before["base"] and after["narrow"]["n"] == 1
    result = json.loads((folder / "results/runs/0b7afeb4a9519082/result.json").read_bytes())
    assert result["attempts"] == 2


def test_a_search_with_several_seeds_a_trial_prints(tmp_path):
    folder = unpacked("several", tmp_path)
    assert "3 finished" in said(folder, "status", "several")[0]
    trials = json.loads(said(folder, "report", "several", "--format", "json")[0])["trials"]
    assert (
        "has several seeds per trial: it can be read, and goes no further" in said(folder, "work", "several", code=2)[1]
    )
    err = said(folder, "tune", "several.yaml", code=2)[1]
    assert "is a different search (seeds is None, the study has [1, 2])" in err
    assert [trial["values"]["dev/ppl"] for trial in trials] == [14.70293161, 14.3917885, 15.25617702]


def test_a_row_that_study_drop_removed_stays_away(tmp_path):
    said(tmp_path, "records", "unpack", str(ARCHIVES / "dropped.tar.xz"))
    rows = rows_of(tmp_path, "dropped")
    assert {name: row["ppl"]["mean"] for name, row in rows.items()} == pytest.approx(
        {"base": 14.702799562942486, "smooth": 15.167702261865616}, rel=1e-9
    )


def test_a_study_with_a_row_of_text_cleaned_by_script_has_the_runs_it_had(tmp_path):
    said(tmp_path, "records", "unpack", str(ARCHIVES / "dropped.tar.xz"))
    plain = json.loads((tmp_path / "results/studies/dropped/study.json").read_bytes())
    of_text = {"prints": {"train": "t", "dev": "d"}, "V": 44, "store": "ab"}
    plain["rows"].append(plain["rows"][1] | {"name": "clean", "change": {"data.check_script": True}})
    plain |= {"data": {"data.check_script=True": of_text}, "base": plain["base"] | {"data": {"max_types": 5}}}
    study = from_plain(plain, "study.json")
    assert isinstance(study, Ablation) and study.cells()[-1].row == "clean"
    assert study.identity_of(study.rows[-1], 1)["train"] == "t"


def test_a_row_of_a_file_is_told_what_is_gone(tmp_path):
    (tmp_path / "rows.yaml").write_text("clean: {group: A, change: {data.check_script: true}}")
    with pytest.raises(UserError, match=r"rows.yaml:1: row 'clean': data.check_script was removed: "):
        load_rows(tmp_path / "rows.yaml")
