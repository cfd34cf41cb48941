"""A search's report: every finished trial in every picture, harmless, the same bytes."""

import csv
import html
import io
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.report import search_figures, search_report
from lightning_tfm.report.pages.provenance import beside
from lightning_tfm.report.search_report import make
from lightning_tfm.study.trials import best, gain_lines
from tests.helpers.studies import BASE, write_search
from tests.report.pages.test_page import HOSTILE, Parser


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
    lines = search_figures.parallel(report, "dev/ppl")
    assert sorted(re.findall(r'class="series \w+" data-trial="(t\d+)"', lines)) == done
    number = {t.trial: i for i, t in enumerate(report.trials)}
    for picture in (
        search_figures.search_course(report, "dev/ppl", number),
        search_figures.trade_off(report, "dev/ppl", "parameters"),
    ):
        assert re.findall(r'class="point (?!stopped)\w+" data-trial="(t\d+)"', picture) == done


def test_sizes_of_trials_are_as_typed_with_those_trained_in_brackets(tmp_path):
    base = replace(BASE, model=replace(BASE.model, N=6), miniature=replace(BASE.miniature, depth=2))
    write_search(tmp_path, 12, base=base)
    report = make("found", tmp_path)
    one = next(t for t in report.summary.trials if t.change["model.N"] == 4)
    assert one.in_words("model.N") == "4 (2)" and "--model.N=4 " in one.command
    assert "<bdi>4 (2)</bdi>" in report.render("html") and "| 4 (2) |" in report.render("markdown")
    assert next(line["model.N"] for line in csv.DictReader(io.StringIO(report.render("csv")))) in ("2", "4", "6")


def test_trials_that_were_stopped_are_hollow_at_their_last_value(root):
    report = make("found", root).summary
    early = [t.trial for t in report.trials if t.state == "stopped early"]
    assert len(early) == 6
    number = {t.trial: i for i, t in enumerate(report.trials)}
    for curve, where in ([(60, 6.0)], "inside"), ([(60, 900.0)], "at the edge"):
        ended = [replace(t, curve=curve) if t.trial in early else t for t in report.trials]
        picture = search_figures.search_course(replace(report, trials=ended), "dev/ppl", number)
        marks = re.findall(
            r'class="point stopped" data-trial="(t\d+)"><circle cx="[\d.]+" cy="([\d.]+)"[^>]*hollow', picture
        )
        assert [name for name, _ in marks] == early
        assert all((float(y) > 50) == (where == "inside") for _, y in marks), where
        assert "stopped" not in search_figures.search_course(report, "parameters", number), (
            "it has no last value of that"
        )
    assert re.findall(r'class="stopped" data-trial="(t\d+)"', search_figures.parallel(report, "dev/ppl")) == early


def test_every_curve_that_is_here_is_drawn_from_the_frame_on_and_stopped_ones_end_hollow(root):
    report = make("found", root).summary
    here = {t.trial for t in report.trials if t.trial != "t0010"}
    early = {t.trial for t in report.trials if t.state != "finished"} & here
    high = [replace(t, curve=[(20, 19.5), (40, 10.0)]) if t.curve else t for t in report.trials]
    for of, above in ((report.trials, False), (high, True)):
        wide = search_figures.learning_curves(replace(report, trials=of), "dev/ppl").split("on-phones")[0]
        drawn = re.findall(r'class="series ([\w ]+)" data-trial="(t\d+)"><polyline points="[\d.]+,([\d.]+)', wide)
        assert {name for _, name, _ in drawn} == here
        assert {name for class_, name, _ in drawn if "stopped" in class_} == early
        assert wide.count("hollow") == len(early)
        assert all(y == "26" for *_, y in drawn) == above, "it enters at the top, not in mid-air"
    assert "curve" not in json.loads(make("found", root).render("json"))["trials"][0]


def test_a_page_of_many_trials_is_small_and_shows_the_best_of_too_many(root, monkeypatch):
    report = make("found", root).summary
    many = [replace(t, trial=f"{t.trial}-{i}") for i in range(25) for t in report.trials]
    whole = search_report.page(replace(report, trials=many))
    assert len(whole.encode()) < 2_000_000 and whole.count("<tr data-verdicts") == 1000
    monkeypatch.setattr(search_report, "MOST", 12)
    page = search_report.page(report)
    shown = re.findall(r'<tr data-verdicts="\w+" data-trial="(t\d+)"', page)
    rest = sorted((t.values["dev/ppl"], t.trial) for t in report.trials if t.values["dev/ppl"] is not None)
    rest = [name for _, name in rest if name not in report.best]
    assert set(shown) == {*report.best, *rest[: 12 - len(report.best)]} and len(shown) == 12
    assert "the best 12 of 40 trials" in page and "--format csv" in page
    assert "40 trials of tpe: 32 finished, 6 stopped early, 2 failed" in page


def test_trials_lead_to_their_runs_where_these_lie_beside_the_page(root, tmp_path_factory):
    page = root / "studies/found/report.html"
    found = make("found", root).render("html", link=beside(page, root))
    links = [link for link in Parser(found).links if link.startswith("../")]
    assert len(set(links)) == 39 and all((page.parent / link / "metrics.jsonl").is_file() for link in links)
    elsewhere = beside(tmp_path_factory.mktemp("x") / "report.html", root)
    assert not [link for link in Parser(make("found", root).render("html", link=elsewhere)).links if ".." in link]


def test_the_lead_says_the_best_trial_with_its_values_then_its_gain(root):
    report = make("found", root).summary
    trial = next(t for t in report.trials if t.values["dev/ppl"] is not None)
    gains = [f"{trial.trial}: dev/ppl 0.7 (41.2%) better than base's 1.7", "no trial beats base"]
    shown = search_report.page(replace(report, best=[trial.trial], gains=gains))
    lead = html.unescape(shown.split('class="headline"')[1].split("</div>")[0])
    assert f"Best is {trial.trial}: dev perplexity {trial.values['dev/ppl']:.4g}, " in lead
    assert "Gain: dev/ppl 0.7 (41.2%) better than base's 1.7." in lead and "No trial beats base." in lead


def test_marks_lie_where_their_values_are(root):
    report = make("found", root).summary
    picture = search_figures.trade_off(report, "dev/ppl", "parameters")
    marks = re.findall(r'data-trial="(t\d+)"><circle cx="([\d.]+)" cy="([\d.]+)"', picture)
    trials = {t.trial: t for t in report.trials}
    across = sorted(marks, key=lambda m: float(m[1]))
    down = sorted(marks, key=lambda m: -float(m[2]))
    for aim, names in (("dev/ppl", across), ("parameters", down)):
        values = [trials[name].values[aim] for name, *_ in names]
        assert len(values) > 20 and all(b > 0.98 * a for a, b in pairwise(values)), "to a tenth of a pixel"
    axis = search_figures.Coordinate(report.search.space[2], 0.0, 300.0)
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


def test_base_is_not_its_own_gain_and_is_said_to_be_above_a_limit(root):
    """Two objectives: base may be beaten by none, beside others."""
    report = make("found", root).summary
    one = report.trials[0]
    base = replace(one, trial="base", values={"dev/ppl": 5.0, "parameters": 1e5})
    large = replace(one, values={"dev/ppl": 4.0, "parameters": 2e5})
    assert best([base, large], report.search.objectives) == ["base", one.trial]
    (gain,) = gain_lines(report.search, [base, large], ["base", one.trial])
    assert gain.startswith(f"{one.trial}: dev/ppl 1 (20.0 %) better than base's 5, parameters 1e+05 (100.0 %) worse")
    (gain,) = gain_lines(report.search, [replace(base, feasible=False), large], [one.trial])
    assert "better than base's 5, which is above a limit, parameters" in gain


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
    assert "no value" not in make("found", tmp_path).render("markdown")


def test_verb_renders_a_search(root, capsys):
    out = ["--out", str(root)]
    assert main(["report", "found", *out]) == 0
    assert "from trials.json" in capsys.readouterr().err
    assert (root / "studies/found/report.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["report", "found", *out, "--format", "csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(lines) == 40 and {line["state"] for line in lines} == {"finished", "stopped early", "failed"}
    assert main(["report", "found", *out, "--format", "markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 42
    assert main(["report", "found", *out, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "search"
    assert main(["report", "found", *out, "--format", "latex"]) == 2
    assert "no table in the paper's layout" in capsys.readouterr().err


def test_what_is_collected_for_tables_is_refused_for_a_search(root, capsys):
    assert main(["report", "found", "--out", str(root), "--collect"]) == 2
    assert "--collect: 'found' is a search" in capsys.readouterr().err


def test_broken_and_missing_records_are_named(root):
    path = root / "studies/found/trials.json"
    for content in ("{}", "[1]", '[{"trial": "t0"}]', "[" * 100_000):
        path.write_text(content)
        with pytest.raises(UserError, match=r"trials\.json"):
            make("found", root)
    path.unlink()
    with pytest.raises(UserError, match="has not got that far"):
        make("found", root)
