"""A tuned study says in every format which value each row took, of which, and what the choice cost."""

import json

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.queue.row_tuning import Tuning, best_value, variants
from lightning_tfm.report import archive
from lightning_tfm.report.build import make, render_table, write_table
from lightning_tfm.study.rows import all_rows
from tests.helpers.studies import Generator

PLAIN = {
    "key": "training.lr_factor",
    "values": [0.5, 1.0, 2.0],
    "seeds": [1001],
    "study": "made-tuning",
    "cost": {"runs": 9, "seconds": 1234.5, "flops": 3.5e12},
    "rows": [
        {"row": "base", "value": 1.0, "ppl": {"0.5": 5.5, "1.0": 5.0, "2.0": 6.0}},
        {"row": "A-h1", "value": 0.5, "ppl": {"0.5": 5.125, "1.0": 5.25, "2.0": 6.5}},
        {"row": "C-N2", "value": 1.0, "ppl": {"0.5": 7.5, "1.0": 7.0, "2.0": 8.0}},
    ],
}
COST = "the choice took 9 runs, 1,234 s and 3.50e+12 FLOPs (made-tuning)"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Generator(tmp_path_factory.mktemp("tuned"), ["base", "A-h1", "C-N2", "E-learned"], [1, 2])
    found.write_all()
    (found.root / "studies/made/tuning.json").write_text(json.dumps(PLAIN))
    return found


def test_the_report_in_all_formats(made):
    report = make("made", made.root)
    html = report.render("html")
    assert 'id="section-tuning"' in html and COST in html and "5.125" in html and "A-h1: 0.5" in html
    said = "0.5 (at the edge of what was tried) for A-h1; 1.0 for base, C-N2"
    md = report.render("markdown")
    assert COST in md and said in md and "training.lr_factor of 3 (0.5, 1.0, 2.0), chosen by dev PPL at seed 1001" in md
    assert f"Tuned: {said}" in report.render("latex")
    heads, *lines = report.render("csv").splitlines()
    where = heads.split(",").index("best training.lr_factor")
    assert [line.split(",")[where] for line in lines] == ["1.0", "0.5", "1.0", ""]  # E-learned joined later
    found = json.loads(report.render("json"))["tuning"]
    assert found["runs"] == 9 and found["rows"][1]["value"] == 0.5 and found["rows"][1]["ppl"]["1.0"] == 5.25


def test_the_table_too(made):
    table = write_table(made.study, made.root)
    assert COST in " ".join(render_table(table, "text", 80).split()) and COST in render_table(table, "markdown")
    assert "best training.lr_factor" in render_table(table, "csv").splitlines()[0]
    assert json.loads(render_table(table, "json"))["tuning"]["flops"] == 3.5e12


def test_an_archive_carries_it(made, tmp_path):
    cells = make("made", made.root).cells
    archive.pack(cells, tmp_path / "a.tar.xz", made.root / "studies/made")
    assert archive.unpack(tmp_path / "a.tar.xz", tmp_path)[1] == 8
    assert make("made", tmp_path).summary.analyses["tuning"] == make("made", made.root).summary.analyses["tuning"]


def test_a_study_that_was_not_tuned_says_nothing_and_a_broken_record_is_named(made, tmp_path):
    path = made.root / "studies/made/tuning.json"
    before = path.read_text()
    try:
        path.write_text(json.dumps(PLAIN | {"cost": None}))  # as it was written first
        assert "its runs are from the study made-tuning" in make("made", made.root).render("markdown")
        path.unlink()
        report = make("made", made.root)
        assert all("tun" not in report.render(kind) for kind in ("markdown", "csv", "json", "latex"))
        assert "section-tuning" not in report.render("html")
        path.write_text('{"key": 1}')
        with pytest.raises(UserError, match=r"tuning.json: not a record of tuning \(key=1: expected text"):
            make("made", made.root)
    finally:
        path.write_text(before)


def test_a_value_is_never_chosen_by_a_run_that_was_scored_otherwise(tmp_path):
    asked = Tuning("training.lr_factor", [0.5, 1.0], [1001])
    base = all_rows()["base"]
    tried = Generator(tmp_path, variants(asked, [base]), [1001], name="made-tuning")
    half, whole = tried.study.rows
    tried.write(half, 1001, 0.05)
    tried.write(whole, 1001, 0.0, ppl=3.0, evaluation_hash="f" * 64)
    with pytest.raises(UserError, match=r"lr_factor=1\.0 is not scored as the table will be"):
        best_value(tried.study, asked, base, tmp_path)
    tried.write(whole, 1001, 0.5)
    assert best_value(tried.study, asked, base, tmp_path).value == 0.5
