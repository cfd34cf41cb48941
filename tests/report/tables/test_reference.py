"""Any row as the reference: all numbers as against base with that row in its place, and every format says so."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.report.build import make, render_table
from lightning_tfm.report.build_summary import summarise
from lightning_tfm.report.wording import reference
from lightning_tfm.study.rows import Paper, Row, all_rows
from lightning_tfm.study.sequential import Course, Look, late
from tests.helpers.studies import Generator

NAMES = ("base", "A-h1", "C-N2", "E-learned")
MINE = Row("mine", "X", {"model.h": 2}, Paper(None, None, None), "mine.yaml:1")
TWIN = Row("also-N2", "X", {"model.N": 2}, Paper(None, None, None), "mine.yaml:2")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Generator(tmp_path_factory.mktemp("reference"), [*map(all_rows().get, NAMES), MINE, TWIN], [1, 2, 3])
    found.write_all({"A-h1": 0.2, "C-N2": 0.3}, skip=[("also-N2", seed) for seed in (1, 2, 3)])
    return found


@pytest.fixture(scope="module")
def against(made):
    """The report with a row as the reference, made once."""
    kept = {row: make(made.study.name, made.root, row) for row in (None, "C-N2", "mine")}
    return kept.__getitem__


def rows_of(report):
    return {row.name: row for row in report.summary.rows}


def test_differences_are_to_the_row_with_the_papers_to_its_own_number_there(against):
    summary, rows, cells = against("C-N2").summary, rows_of(against("C-N2")), against(None).cells
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


def test_the_family_is_all_rows_but_the_reference(against):
    """As against base, were that row the base: base and it change places."""
    rows, to_base = rows_of(against("C-N2")), rows_of(against(None))
    assert [name for name, row in rows.items() if row.ppl.difference is None] == ["C-N2", "also-N2"]
    assert rows["base"].ppl.difference.estimate == pytest.approx(-to_base["C-N2"].ppl.difference.estimate)
    assert rows["base"].ppl.difference.se == pytest.approx(to_base["C-N2"].ppl.difference.se)
    family = [d for row in rows.values() if (d := row.ppl.difference)]
    raw = sorted(2 * stats.t.sf(abs(d.estimate) / d.se, d.df) for d in family)
    assert len(raw) == 4 and min(d.holm for d in family) == pytest.approx(4 * raw[0], rel=1e-6)


def test_beside_a_row_that_the_paper_does_not_print_nothing_of_the_papers_stands(against):
    report = against("mine")
    words = {d.verdict for row in report.summary.rows if (d := row.ppl.difference)}
    assert words <= {"better", "worse", "undecided"}
    assert all(row.paper == Paper(None, None, None) for row in report.summary.rows)
    assert "paper PPL" not in report.render("markdown") and "against mine" in report.render("markdown")


def test_base_and_a_row_that_is_another(made):
    assert reference.reference_of(made.study, "base") is None and reference.reference_of(made.study, None) is None
    assert reference.reference_of(made.study, "also-N2") == "C-N2"
    with pytest.raises(UserError, match=r"--reference=C-N3: no such row; the rows are base, A-h1, C-N2"):
        make(made.study.name, made.root, "C-N3")


def test_every_format_says_that_the_reference_is_not_base(against):
    report = against("C-N2")
    html = report.render("html")
    assert "NOT to base" in html and html.index("NOT to base") < html.index("<nav")
    assert "<bdi>Δ PPL, % to C-N2</bdi>" in html and "Differences to C-N2" in html and "Differences to base" not in html
    assert "Perplexity against C-N2" in html and "against base" not in html
    assert "<bdi>row C-N2 (compared with)</bdi>" in html and "(base)" not in html
    md = report.render("markdown")
    assert "Δ PPL, % to C-N2" in md and "NOT to base" in md and re.search(r"\| C-N2 \|.*\| reference \|", md)
    heads, first, *_ = report.render("csv").splitlines()
    assert heads.split(",")[2] == "differences to" and first.split(",")[2] == "C-N2"
    tex = report.render("latex")
    assert "difference to C-N2, not to base, up to" in tex
    assert json.loads(report.render("json"))["reference"] == "C-N2"
    text = render_table(report.summary, "text", 80)
    assert text.startswith("differences to C-N2, not to base\n") and max(map(len, text.splitlines())) <= 80
    for kind in ("html", "markdown", "csv", "latex", "json"):
        plain = against(None).render(kind)
        assert "NOT" not in plain and '"reference":' not in plain and "differences to," not in plain


def test_no_name_of_a_row_hides_another_line_of_an_example(tmp_path):
    names = ("line", "source", "reference", "row base (base)")
    rows = [
        Row(name, "X", {"model.h": h}, Paper(None, None, None), "x:1")
        for name, h in zip(names, (1, 2, 4, 16), strict=True)
    ]
    named = Generator(tmp_path, [all_rows()["base"], *rows], [1])
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
    assert [row.name for row in summarise(against("C-N2").cells, several).rows] == [row.name for row in made.study.rows]
    found = summarise(replace(against("C-N2").cells), course)
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
