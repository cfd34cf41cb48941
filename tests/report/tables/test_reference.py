"""Any row as the reference, rows that are another, and what others publish beside them: the same numbers as without."""

import html
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lightning_tfm.cli.main import main
from lightning_tfm.cli.train.plan import forecast
from lightning_tfm.errors import UserError
from lightning_tfm.report.build_summary import summarise
from lightning_tfm.report.charts.curves import curves
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.records import read_cells
from lightning_tfm.report.sequential import next_course
from lightning_tfm.report.study_report import make, reference_row, render_table, write_table
from lightning_tfm.study.rows import all_rows
from lightning_tfm.study.sequential import Course, Look, late
from lightning_tfm.study.study_file import save
from tests.helpers.studies import Generator, own_row

NAMES = ("base", "A-h1", "C-N2", "E-learned")
MINE, TWIN = own_row("mine", {"model.h": 2}), own_row("also-N2", {"model.N": 2})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Generator(tmp_path_factory.mktemp("reference"), [*NAMES, MINE, TWIN], [1, 2, 3])
    found.write_all({"A-h1": 0.2, "C-N2": 0.3}, skip=[("also-N2", seed) for seed in (1, 2, 3)])
    return found


@pytest.fixture(scope="module")
def against(made):
    """The report with a row as the reference, made once."""
    kept = {row: make(made.study.name, made.root, row) for row in (None, "C-N2", "mine")}
    return kept.__getitem__


def rows_by_name(summary):
    return {row.name: row for row in summary.rows}


def test_differences_are_to_the_row_with_the_papers_to_its_own_number_there(against):
    summary, rows, cells = against("C-N2").summary, rows_by_name(against("C-N2").summary), against(None).cells
    assert summary.reference == summary.to == summary.against.name == "C-N2"
    assert rows["C-N2"].ppl.difference is None and rows["base"].base
    for name in ("base", "A-h1", "E-learned", "mine"):
        for metric, score in (("ppl", lambda x: math.log(x.ppl)), ("bleu", lambda x: x.dev.bleu)):
            ours, theirs = (np.mean([score(cell) for cell in cells.of(row)]) for row in (name, "C-N2"))
            assert rows[name].metric(metric).difference.estimate == pytest.approx(ours - theirs)
    assert rows["A-h1"].ppl.difference.paper == pytest.approx(math.log(5.29 / 6.11))
    assert rows["base"].ppl.difference.paper == pytest.approx(math.log(4.92 / 6.11))
    assert rows["base"].ppl.difference.verdict == "same direction" and rows["mine"].ppl.difference.verdict == "better"
    assert "differs from C-N2" in rows["mine"].ppl.difference.why
    assert rows["mine"].ppl.difference.paper is None and summary.claims == [] and "agreement" not in summary.analyses


def test_pictures_say_which_row_is_base_and_which_is_the_reference(against):
    report = against("C-N2")
    drawn = curves(report.summary, report.cells, forest_of(report.summary)).difference
    assert 'class="tick">base<' not in drawn and 'class="tick">0 %<' in drawn
    assert "<bdi>base</bdi> is dashed" in report.render("html")


def test_the_family_is_all_rows_but_the_reference(against):
    """As against base, were that row the base: base and it change places."""
    rows, to_base = rows_by_name(against("C-N2").summary), rows_by_name(against(None).summary)
    assert [name for name, row in rows.items() if row.ppl.difference is None] == ["C-N2", "also-N2"]
    assert rows["base"].ppl.difference.estimate == pytest.approx(-to_base["C-N2"].ppl.difference.estimate)
    assert rows["base"].ppl.difference.se == pytest.approx(to_base["C-N2"].ppl.difference.se)
    family = [d for row in rows.values() if (d := row.ppl.difference)]
    raw = sorted(2 * stats.t.sf(abs(d.estimate) / d.se, d.df) for d in family)
    assert len(raw) == 4 and min(d.holm for d in family) == pytest.approx(4 * raw[0], rel=1e-6)


def test_base_and_a_row_that_is_another(made):
    assert reference_row(made.study, "base") is None and reference_row(made.study, None) is None
    assert reference_row(made.study, "also-N2") == "C-N2"
    with pytest.raises(UserError, match=r"--reference=C-N3: no such row; the rows are base, A-h1, C-N2"):
        make(made.study.name, made.root, "C-N3")


def test_no_name_of_a_row_hides_another_line_of_an_example(tmp_path):
    names = {"line": 1, "source": 2, "reference": 4, "row base (base)": 16}
    named = Generator(tmp_path, ["base", *(own_row(name, {"model.h": h}) for name, h in names.items())], [1])
    named.write_all(dict.fromkeys(names, 0.3))
    html = make("made", tmp_path).render("html")
    some = html[html.index("Where the translations differ most") :]
    shown = re.findall(r"<dt><bdi>(.*?)</bdi></dt><dd><bdi>(.*?)</bdi></dd>", some)[:5]
    assert [words for words, _ in shown] == ["line", "source", "reference", "row line", "row base (base)"]
    assert shown[2][1] == named.references[int(shown[0][1]) - 1]


def test_seeds_that_were_added_by_verdicts_against_base_allow_no_test_against_another_row(made, against):
    seen = {row.name: [1, 2, 3] for row in made.study.rows}
    course = Course(late(5, 8), [Look(seen)], None)
    several = replace(course, looks=[Look(seen), Look(seen)])
    tested = summarise(replace(against("C-N2").cells, course=several))
    assert [row.name for row in tested.rows] == [row.name for row in made.study.rows]
    found = summarise(replace(against("C-N2").cells, course=course))
    d = {row.name: row.ppl.difference for row in found.rows}["mine"]
    assert d.estimate < -0.2 and d.p is None and d.verdict == "undecided" and "added by verdicts against base" in d.why


def test_the_commands(made, capsys):
    out = ["--out", str(made.root)]
    assert main(["table", "made", "--reference", "A-h1", *out]) == 0
    assert "\n\ndifferences to A-h1, not to base\n" in capsys.readouterr().out
    assert main(["report", "made", "--reference", "A-h1", *out]) == 0
    assert (made.root / "studies" / "made" / "report-to-A-h1.html").is_file()
    capsys.readouterr()
    for verb in ("table", "report"):
        assert main([verb, "made", "--reference", "nix", *out]) == 2
        assert "the rows are base, A-h1" in capsys.readouterr().err
    assert main(["sweep", "sweeps/table3.yaml", "--reference", "nix", *out]) == 2
    assert "--reference=nix" in capsys.readouterr().err


# --- rows that are base or another row, and what others publish ---


TWINS = [
    own_row("also-base", {"model.h": 8}),
    own_row("also-h4", {"model.d_v": 128, "model.d_k": 128, "model.h": 4}),
    own_row("empty"),
]
BESIDE = ("A-h4", "A-h1", "C-N2", "base", "D-Pdrop0.0", "D-Pdrop0.2", "E-learned")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """One study without twins, one with, of the same runs."""
    found, root = [], tmp_path_factory.mktemp("twins")
    for name, chosen in (("without", BESIDE), ("with", [TWINS[0], *BESIDE[:2], *TWINS[1:], *BESIDE[2:]])):
        made = Generator(root, chosen, [1, 2, 3], name)
        made.write_all(
            {"A-h1": 0.2, "C-N2": 0.3, "A-h4": 0.03}, skip=[(row.name, s) for row in TWINS for s in (1, 2, 3)]
        )
        found.append(made)
    return found


def test_nothing_is_corrected_for_twins(pair):
    without, with_twins = (make(made.study.name, made.root).summary for made in pair)
    found = rows_by_name(with_twins)
    for row in without.rows:
        assert row == found[row.name]
    for row in TWINS:
        twin = found[row.name]
        assert twin.n == 3 and not twin.base and twin.ppl.difference is None and twin.metric("bleu").difference is None
    assert [found[row.name].same_as for row in TWINS] == ["base", "A-h4", "base"]
    assert found["also-h4"].ppl.by_seed == found["A-h4"].ppl.by_seed
    assert (with_twins.finished, with_twins.cells) == (without.finished, without.cells) == (21, 21)
    assert with_twins.claims == without.claims and with_twins.analyses["agreement"] == without.analyses["agreement"]
    assert with_twins.analyses["agreement"] is not None


def test_nor_by_looks_and_no_look_asks_for_them(pair):
    both = []
    for made in pair:
        cells = make(made.study.name, made.root).cells
        seen = {row.name: [1, 2, 3] for row in made.study.rows}
        course = Course(late(5, 8), [Look(seen)], None)
        summary = summarise(replace(cells, course=course))
        both.append((summary, next_course(course, summary, seen, list(range(1, 9)))))
    (without, next_without), (with_twins, next_with) = both
    for row in without.rows:
        assert row == rows_by_name(with_twins)[row.name]
    for row in TWINS:
        assert next_with.asked is not None and next_with.asked[row.name] == [1, 2, 3]
    assert {k: v for k, v in next_with.asked.items() if k not in [row.name for row in TWINS]} == next_without.asked


def test_a_plan_counts_their_runs_once(pair):
    study = pair[1].study
    told = forecast(study.cells(), pair[1].root, 1, None)
    assert "21 runs: 21 finished, 0 to run" in told
    assert any(line.startswith("also-h4") and line.endswith("the run of A-h4") for line in told.splitlines()) or any(
        line.startswith("A-h4") and line.endswith("the run of also-h4") for line in told.splitlines()
    )


def test_what_others_print_stands_beside_the_table_and_is_compared_with_nothing(tmp_path):
    said = "25.9 BLEU, <base> 25.8 (Shaw et al. 2018, table 2)"
    made = Generator(tmp_path, ["base", "E-learned", replace(all_rows()["A-h1"], name="one"), "C-N2"], [1, 2], "plain")
    made.write_all({"one": 0.2})
    before = make("plain", tmp_path)
    told = [replace(row, elsewhere=said) if row.name in ("one", "C-N2") else row for row in made.study.rows]
    study = save(replace(made.study, rows=told), tmp_path)  # as the same command does, after the file has changed
    after = make("plain", tmp_path)
    line = f"one head, a third of the depth, elsewhere: {said}"
    assert [line in html.unescape(one.render("markdown")).replace("\\", "") for one in (before, after)] == [False, True]
    for text in (after.render("json"), render_table(write_table(read_cells(study, tmp_path)), "json")):
        assert json.loads(text)["rows"][2]["elsewhere"] == said
    silent = replace(after.summary, rows=[replace(row, elsewhere=None) for row in after.summary.rows])
    assert silent == before.summary
