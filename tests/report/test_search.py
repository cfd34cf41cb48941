"""A search's report: every finished trial in every picture, harmless, the same bytes."""

import csv
import io
import json
import re
from itertools import pairwise

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.report import search_figures as figures
from lightning_tfm.report.search import best, make
from tests.report.synthetic import SPACE, write_search
from tests.report.test_page import HOSTILE, Parser


@pytest.fixture
def root(tmp_path):
    write_search(tmp_path, 40, HOSTILE)
    return tmp_path


def test_page_is_whole_harmless_and_the_same_bytes(root):
    page = make("found", root).render("html")
    assert page == make("found", root).render("html")
    parsed = Parser(page)
    assert parsed.open == [] and parsed.scripts == 1 and len(set(parsed.ids)) == len(parsed.ids)
    assert all(link.startswith(("#", "data:")) for link in parsed.links)
    assert HOSTILE not in page and "<script>alert" not in page


def test_every_finished_trial_is_in_every_picture_and_no_other(root):
    report = make("found", root).summary
    done = [t.trial for t in report.trials if t.state == "finished"]
    assert 20 < len(done) < 40
    lines = figures.parallel(report, "dev/ppl")
    assert sorted(re.findall(r'data-row="(t\d+)"', lines)) == done
    pictures = [figures.slices(report, p, "dev/ppl") for p in report.space]
    pictures += [figures.course(report, "dev/ppl"), figures.against(report, "dev/ppl", "parameters")]
    assert len(pictures) == len(SPACE) + 2
    for picture in pictures:
        assert re.findall(r"<title>(t\d+):", picture) == done


def test_trials_that_were_stopped_are_crosses_in_every_picture(root):
    report = make("found", root).summary
    early = [t.trial for t in report.trials if t.state == "stopped early"]
    assert len(early) == 6
    pictures = [figures.slices(report, p, "dev/ppl") for p in report.space]
    for picture in [*pictures, figures.course(report, "dev/ppl"), figures.parallel(report, "dev/ppl")]:
        assert re.findall(r"<title>(t\d+) stopped early at step 100", picture) == early


def test_two_listed_parameters_have_a_heat_map_of_means(root):
    report = make("found", root).summary
    page = make("found", root).render("html")
    assert "dev/ppl by model.N (down) and model.positions (across)" in page
    assert "training.lr_factor (down)" not in page and "training.lr_factor (across)" not in page
    own = [t for t in report.trials if t.change["model.N"] == 4 and t.change["model.positions"] == "learned"]
    values = [t.values["dev/ppl"] for t in own if t.values["dev/ppl"] is not None]
    assert f">{sum(values) / len(values):.4g}</td>" in page


def test_marks_lie_where_their_values_are(root):
    report = make("found", root).summary
    picture = figures.slices(report, report.space[0], "dev/ppl")
    marks = re.findall(r'<title>(t\d+):.*?cx="([\d.]+)" cy="([\d.]+)"', picture)
    trials = {t.trial: t for t in report.trials}
    across = sorted(marks, key=lambda m: float(m[1]))
    down = sorted(marks, key=lambda m: -float(m[2]))
    rates = [trials[name].change["training.lr_factor"] for name, *_ in across]
    values = [trials[name].values["dev/ppl"] for name, *_ in down]
    assert all(b > 0.98 * a for a, b in pairwise(rates)), "to a tenth of a pixel"
    assert all(b > 0.98 * a for a, b in pairwise(values))
    axis = figures.Axis(report.space[2], 0.0, 300.0)
    assert [axis(v) for v in (2, 4, 6)] == [50, 150, 250]


def test_importance_says_on_how_many_trials_it_stands_or_why_it_says_nothing(root):
    page = make("found", root).render("html")
    assert "on 40 finished trials" in page and "Without 6 that were stopped early" in page
    path = root / "studies/found/importance.json"
    path.write_text(json.dumps([{"objective": "dev/ppl", "trials": 3, "stopped": 0, "why not": "3 are too few"}]))
    assert "3 are too few" in make("found", root).render("html")
    assert "PED-ANOVA on" not in make("found", root).render("html")


def test_best_keeps_the_limits_and_is_beaten_by_no_other(root):
    report = make("found", root).summary
    assert report.best and "t0002" not in report.best
    lines = report.trials
    one = best(lines, {"dev/ppl": "minimize"})
    worst = best(lines, {"dev/ppl": "maximize"})
    values = {t.trial: t.values["dev/ppl"] for t in lines if t.values["dev/ppl"] and t.feasible}
    assert one == [min(values, key=values.get)] and worst == [max(values, key=values.get)]


def test_values_that_are_no_numbers_are_left_out(root):
    path = root / "studies/found/trials.json"
    trials = json.loads(path.read_text())
    trials[0]["dev/ppl"], trials[1]["dev/ppl"] = float("nan"), float("inf")
    path.write_text(json.dumps(trials))
    report = make("found", root)
    assert [t.values["dev/ppl"] for t in report.summary.trials[:2]] == [None, None]
    json.loads(report.render("json"), parse_constant=pytest.fail)
    drawn = re.findall(r"<svg.*?</svg>", report.render("html"), re.DOTALL)
    assert len(drawn) > 8 and not any(re.search(r"\b(nan|inf)\b", picture) for picture in drawn)


def test_no_finished_trial_and_no_trial_at_all(tmp_path):
    write_search(tmp_path, 0)
    assert "none yet" in make("found", tmp_path).render("html")
    assert "no value" not in make("found", tmp_path).render("md")


def test_verb_renders_a_search(root, capsys):
    out = ["--out", str(root)]
    assert main(["report", "found", *out]) == 0
    assert "from trials.json" in capsys.readouterr().err
    assert (root / "studies/found/report.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["report", "found", *out, "--format", "csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(lines) == 40 and {line["state"] for line in lines} == {"finished", "stopped early", "failed"}
    assert main(["report", "found", *out, "--format", "md"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1 and len(rows) == 42
    assert main(["report", "found", *out, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "search"
    assert main(["report", "found", *out, "--format", "tex"]) == 2
    assert "no table in the paper's layout" in capsys.readouterr().err


def test_broken_and_missing_records_are_named(root):
    path = root / "studies/found/trials.json"
    for content in ("{}", "[1]", '[{"trial": "t0"}]', "[" * 100_000):
        path.write_text(content)
        with pytest.raises(UserError, match=r"trials\.json"):
            make("found", root)
    path.unlink()
    with pytest.raises(UserError, match="has not got that far"):
        make("found", root)
