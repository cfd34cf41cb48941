"""What is committed reads and prints, and what is gone is refused with what to use instead."""

import ast
import contextlib
import csv
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lightning_tfm as lt
from benchmarks import material
from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.gone import GONE
from lightning_tfm.report.archive import unpack
from lightning_tfm.report.study_report import make
from lightning_tfm.runs.record import RunRecord, read_record
from lightning_tfm.study.settings import SECTIONS
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import from_plain, load_as
from tests.helpers.studies import Generator, own_row
from tests.helpers.tiny import forget_ours, in_child

ROOT = Path(__file__).parents[1]
FOLDER = re.compile(r"/(?<![\w.:/$~}-]/)(?:home|root|work|tmp|mnt|media|scratch|Users)/[\w.-]+")


def committed() -> Iterator[tuple[str, str]]:
    """Name and content of every text in the repository but tests, which make folders up; inside archives too."""
    if not (ROOT / ".git").exists():
        pytest.skip("NOT TESTED: not a checkout, and git knows what is committed")
    trusted = ["-c", f"safe.directory={ROOT}"]  # whoever owns it
    done = subprocess.run(["git", *trusted, "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in filter(None, done.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not (name.startswith("tests/") and name.endswith(".py")):
            yield from texts(name, path.read_bytes())


def texts(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    if name.endswith(".xz"):
        yield from texts(name.removesuffix(".xz"), lzma.decompress(data))
    elif name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                yield from texts(f"{name}:{member.name}", file.read() if file else b"")
    elif b"\0" not in data:
        yield name, data.decode()


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for key, inner in value.items() for text in (*strings(key), *strings(inner)))
    elif isinstance(value, list):
        yield from (text for inner in value for text in strings(inner))


NVIDIAS = {"/tmp/nvidia-mps"}
"""where NVIDIA's daemon for sharing a GPU listens, unless told otherwise"""


def absolute(name: str, text: str) -> set[str]:
    """Folders of a machine that a text names; in JSON, which programs write, every absolute path is one."""
    found = set(FOLDER.findall(text))
    if name.endswith(".json") and '"/' in text:
        found |= {leaf for leaf in strings(json.loads(text)) if leaf.startswith("/")}
    return found - NVIDIAS


def test_no_committed_file_names_a_folder_of_a_machine():
    found = {name: sorted(folders) for name, text in committed() if (folders := absolute(name, text))}
    assert found == {}


def test_the_check_sees_them_where_they_are():
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in (("result.json", b'{"folder": "/data/text"}'), ("log", b"in /home/me/results")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    inside = dict(texts("study.tar.xz", lzma.compress(archive.getvalue())))
    assert [absolute(name, text) for name, text in inside.items()] == [{"/data/text"}, {"/home/me"}]
    assert absolute("x.md", "https://host/home/x, ~/work/x, a/tmp/x and /proc/self") == set()


def test_a_benchmark_s_record_names_no_folder():
    sizes = {"root": "/tmp/x", "N": 3, "experiment": {"data": {"folder": "/srv/text/multi30k", "source": "en"}}}
    assert material.without_folders(sizes) == {"N": 3, "experiment": {"data": {"folder": "multi30k", "source": "en"}}}


def test_the_readmes_picture_of_the_architecture_is_what_draw_writes(tmp_path):
    assert main(["draw", "--config", str(ROOT / "experiments/base.yaml"), "--to", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (ROOT / "docs/_static/architecture.svg").read_bytes()


RECORDS = Path(__file__).parents[1] / "experiments/results/norm/records.tar.xz"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    assert main(["records", "unpack", str(RECORDS), "--out", str(folder)]) == 0
    return folder


def lines_of(frame) -> list[dict]:
    """Of a DataFrame, with numbers as Python's and None where a cell is empty."""
    return [
        {key: None if isinstance(value, float) and value != value else value for key, value in line.items()}
        for line in frame.astype(object).to_dict("records")
    ]


@pytest.fixture
def study(root):
    return lt.load_study("norm", root)


def test_a_table_is_the_report_with_numbers_as_numbers(study, root):
    printed = list(csv.DictReader(io.StringIO(make("norm", root).render("csv"))))
    table = lines_of(study.table())
    assert [line["row"] for line in table] == [line["row"] for line in printed]
    for line, text in zip(table, printed, strict=True):
        assert list(line) == list(text)
        for key, value in line.items():
            assert value is None if text[key] == "" else str(value) == text[key] or float(text[key]) == value
    assert isinstance(table[0]["d_model"], int) and isinstance(table[0]["ppl mean"], float)
    assert all(line["differences to"] == table[1]["row"] for line in lines_of(study.table(table[1]["row"])))


def test_a_row_whose_name_is_a_number_keeps_its_name(tmp_path):
    rows = [own_row(name, {"model.h": h}, "007") for name, h in (("1e3", 4), ("16", 16))]
    Generator(tmp_path, rows, [1]).write_all()
    table = lines_of(lt.load_study("made", tmp_path).table())
    assert [(line["group"], line["row"], line["h"]) for line in table] == [("007", "1e3", 4), ("007", "16", 16)]


def test_every_run_and_every_point_of_its_curve_has_a_line(study, root):
    runs = lines_of(study.runs())
    asked = {(row.name, seed) for row in study.study.rows for seed in study.study.seeds}
    assert {(run["row"], run["seed"]) for run in runs} == asked
    assert {run["state"] for run in runs} == {"finished"}
    curves = lines_of(study.curves())
    for run in runs:
        mine = [point for point in curves if (point["row"], point["seed"]) == (run["row"], run["seed"])]
        assert mine[-1]["step"] == run["steps"] and mine[-1]["dev_ppl"] == pytest.approx(run["ppl"], rel=1e-9)
    with pytest.raises(UserError, match=r"no run of norm has logged 'dev_bleu'; logged: .*dev_ppl"):
        study.curves("dev_bleu")


def test_a_table_is_a_data_frame_and_pandas_is_loaded_for_it_alone(root):
    pandas = pytest.importorskip("pandas")

    def read() -> tuple[bool, int, int]:
        forget_ours("pandas")
        study = import_module("lightning_tfm").load_study("norm", root)
        sys.modules["pandas"] = pandas
        frame = study.runs()
        return isinstance(frame, pandas.DataFrame), len(frame), len(study.study.cells())

    is_frame, lines, cells = in_child(read)
    assert is_frame and lines == cells


def test_a_single_text_is_not_taken_for_a_list_of_its_letters(study):
    with pytest.raises(UserError, match=r"translate\('Ta torror'\): expected a list of sentences"):
        study.run(study.study.rows[0].name, study.study.seeds[0]).translate("Ta torror")


def test_what_is_not_there_is_named(root):
    with pytest.raises(UserError, match=r"norn.*norm"):
        lt.load_study("norn", root)
    study = lt.load_study("norm", root)
    with pytest.raises(UserError, match=r"no row 'bass': near it: base"):
        study.run("bass", 31)
    with pytest.raises(UserError, match=r"norm has no finished run of row 'base' at seed 99"):
        study.run("base", 99)
    assert study.run("base", 31).record.identity["training"]["seed"] == 31
    with pytest.raises(UserError, match=r"run 'ffffffff' under .*: none"):
        lt.load_run("ffffffff", root)
    with pytest.raises(AttributeError, match=r"no attribute 'load_runs'; it has .*load_run"):
        lt.load_runs  # noqa: B018


def test_types_and_names_are_the_same_and_cost_nothing_before_they_are_used():
    tree = ast.parse(Path(lt.__file__).read_text(encoding="utf-8"))
    imported = {
        name.asname: node.module.removeprefix("lightning_tfm.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("lightning_tfm.")
        for name in node.names
    }
    assert imported == lt._HOME
    assert all(getattr(lt, name).__name__ == name for name in imported)
    code = "import sys, lightning_tfm; print('torch' in sys.modules, dir(lightning_tfm).count('load_run'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == ["False", "1"]


@pytest.mark.long
@pytest.mark.parametrize("file", sorted(ROOT.glob("experiments/results/*/records.tar.xz")), ids=lambda f: f.parent.name)
def test_the_runs_of_every_committed_study_have_the_names_that_its_definition_gives_today(file, tmp_path):
    name, count, _ = unpack(file, tmp_path)
    named = {cell.training_hash[:16] for cell in load_as(Ablation, tmp_path, name).whole.cells()}
    results = sorted(tmp_path.glob("runs/*/result.json"))
    assert {path.parent.name for path in results} <= named and len(results) == count > 0
    assert [path for path in results if not isinstance(read_record(path), RunRecord)] == []


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
