"""`import lightning_tfm as lt`: studies as data; docs/howto/notebook.ipynb, run by its test, has runs."""

import ast
import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_tfm as lt
from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.report.build import make
from lightning_tfm.study.rows import Paper, Row
from tests.helpers.studies import Generator

NONE = Paper(None, None, None)
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
    rows = [Row(name, "007", {"model.h": h}, NONE, "here") for name, h in (("1e3", 4), ("16", 16))]
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
    code = "import sys, lightning_tfm as lt; study = lt.load_study('norm', sys.argv[1])"
    code += "; assert 'pandas' not in sys.modules; frame = study.runs(); assert type(frame).__name__ == 'DataFrame'"
    code += "; assert len(frame) == len(study.study.cells())"
    command = [sys.executable, "-c", code, str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
