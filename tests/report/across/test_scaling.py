"""Rows at several scales: the rule of prediction where its truth is known, and every format of `ladder`."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.foresight import calibrated, show_scaling
from lightning_tfm.atomic_io import to_json
from lightning_tfm.cli.main import main
from lightning_tfm.config import Miniature
from lightning_tfm.errors import UserError
from lightning_tfm.report.across.comparison import shifts
from lightning_tfm.report.across.scaling import PRIOR, exponent, ladder, predicted
from lightning_tfm.report.build import make
from lightning_tfm.report.render.every_format import render
from lightning_tfm.study.sequential import Course, Look, late, looks_to_json
from tests.helpers.studies import BASE, Generator

LOG_N = np.log([0.12e6, 0.47e6, 1.9e6])
TARGET = math.log(65e6)


def test_an_exact_law_is_found_and_without_rows_the_prior_stays():
    delta = np.array([0.2, -0.4, 0.05]) * np.exp(-0.5 * (LOG_N - LOG_N[-1]))[:, None]
    found = exponent(delta, np.full(delta.shape, 1e-10), LOG_N, PRIOR["rest"])
    assert found["kappa"] == pytest.approx(0.5, abs=1e-4) and found["se"] < 1e-3 and found["tau"] < 1e-3
    for prior in PRIOR.values():
        nobody = exponent(np.zeros((3, 0)), np.zeros((3, 0)), LOG_N, prior)
        assert [nobody[key] for key in ("kappa", "se", "tau")] == pytest.approx([*prior, 0.0])


@pytest.mark.parametrize(("scales", "own"), [(2, 0.02), pytest.param(3, 0.0, marks=pytest.mark.long)])
def test_the_paper_s_size_lies_in_its_interval_as_often_as_it_says(scales, own):
    """Exponents drawn from the prior, 10 rows, each walking away from its class by `own` for a unit of log N."""
    rng, inside, total = np.random.default_rng(31), 0, 0
    log_N, (mean, sd) = LOG_N[:scales], PRIOR["size"]
    for _ in range(40):
        kappa, se = rng.normal(mean, sd), 0.01
        steps = np.diff([*log_N, TARGET])
        walk = np.cumsum([np.zeros(10), *(rng.normal(0, own * math.sqrt(step), 10) for step in steps)], axis=0)
        walk -= walk[-2]  # departures are from the largest scale on, and at its size
        truth = (rng.normal(0, 0.15, 10) + walk) * np.exp(-kappa * (np.array([*log_N, TARGET]) - log_N[-1]))[:, None]
        seen = truth[:-1] + rng.normal(0, se, truth[:-1].shape)
        found = exponent(seen, np.full(seen.shape, se**2), log_N, PRIOR["size"])
        for row in range(10):
            there, error = predicted(seen[-1, row], se**2, TARGET - log_N[-1], found)
            inside += abs(truth[-1, row] - there) <= stats.t.isf(0.05, found["degrees"]) * error
            total += 1
    assert 0.8 <= inside / total <= 0.98


@pytest.mark.parametrize(
    ("first", "last", "half", "p", "word"),
    [
        (0.10, 0.30, 0.05, 0.001, "grows"),
        (-0.10, -0.30, 0.05, 0.001, "grows"),
        (0.30, 0.10, 0.05, 0.001, "shrinks"),
        (-0.10, 0.10, 0.05, 0.001, "changes sign"),
        (-0.02, 0.10, 0.05, 0.001, "grows"),
        (0.30, 0.32, 0.05, 0.7, "holds"),
        (0.05, 0.06, 0.05, 0.7, "cannot tell"),
    ],
)
def test_words(first, last, half, p, word):
    """What has no p is not testable, whatever it shows (test_comparison.py)."""
    change = last - first
    line = {"estimate_1": first, "lower_1": first - half, "upper_1": first + half}
    line |= {"estimate": last, "lower": last - half, "upper": last + half}
    line |= {"low": change - 1.4 * half, "high": change + 1.4 * half, "p_BH": p}
    assert shifts(pd.DataFrame([line]).astype(float)).tolist() == [word]


@pytest.fixture
def scales(tmp_path):
    """Two studies, the second with base twice as wide: C-N2 costs less there, D-Pdrop0.0 is the other way round."""
    rows = ["base", "A-h1", "A-h4", "A-h16", "A-h32", "C-N2", "C-N4", "C-N8", "D-Pdrop0.0", "E-learned"]
    for name, width, effects in (
        ("small", 16, {"C-N2": 0.4, "D-Pdrop0.0": -0.2, "A-h1": 0.3}),
        ("large", 8, {"C-N2": 0.2, "D-Pdrop0.0": 0.2, "A-h1": 0.3}),
    ):
        base = replace(BASE, miniature=replace(BASE.miniature, width=width))
        Generator(tmp_path, rows, [1, 2, 3, 4, 5], name, base=base).write_all(effects, seed_sd=0.01)
    return tmp_path


def test_every_format(scales, capsys):
    def said(kind, *more):
        assert main(["scaling", "large", "small", "--out", str(scales), "--format", kind, "--to", "-", *more]) == 0
        return capsys.readouterr().out

    plain = json.loads(said("json"))
    assert list(plain["studies"]) == ["small", "large"], "by size, however they are named"
    rows = {row["row"]: row for row in plain["rows"]}
    words = {name: rows[name]["word"] for name in ("A-h1", "C-N2", "D-Pdrop0.0")}
    assert words == {"A-h1": "holds", "C-N2": "shrinks", "D-Pdrop0.0": "changes sign"}
    assert rows["C-N2"]["class"] == "size" and rows["A-h1"]["class"] == "rest"
    assert rows["C-N2"]["paper"] == pytest.approx(math.log(6.11 / 4.92))
    assert 0 < rows["C-N2"]["prediction"] < 0.2
    assert rows["C-N2"]["prediction lower"] < rows["C-N2"]["prediction"] < rows["C-N2"]["prediction upper"]
    lines = {line["row"]: line for line in csv.DictReader(io.StringIO(said("csv")))}
    assert float(lines["C-N2"]["prediction"]) == rows["C-N2"]["prediction"]
    near = json.loads(said("json", "--target", "0.001"))["rows"][0]["prediction"]
    assert near != rows["A-h1"]["prediction"]
    for kind in ("text", "markdown", "latex", "html"):
        text = said(kind)
        assert "changes sign" in text and f"{100 * math.expm1(rows['C-N2']['prediction']):+.1f}" in text, kind
    assert max(map(len, said("text").splitlines())) <= 80
    page = said("html")
    headline = "No dropout changes sign; a third of the depth shrinks from "
    assert page.index(headline) < page.index("<h2") < page.index('class="series bad"') < page.index("<table")
    assert page.count("no dropout, changes sign</text>") == 1 and page.count("D-Pdrop0.0</text>") == 1, (
        "on phones codes"
    )
    assert ">one head</bdi> <small><code><bdi>A-h1<" in said("html") and "one head" not in said("text")


def test_scales_must_differ_and_base_must_be_there(scales):
    report = make("small", scales)
    with pytest.raises(UserError, match="needs studies of several scales"):
        ladder([report, report], 65e6)
    Generator(scales, ["base", "A-h1"], [11, 12], "empty", base=BASE).write_all(skip=[("base", 11), ("base", 12)])
    with pytest.raises(UserError, match="no row has an interval in all of"):
        ladder([report, make("empty", scales)], 65e6)


def test_it_says_what_else_than_the_scale_is_not_the_same(scales):
    """Of another text, or other pieces in a step, a change is not one of scale."""
    assert ladder([make("small", scales), make("large", scales)], 65e6).found["apart"] == []
    other = replace(BASE, training=replace(BASE.training, tokens=400), miniature=Miniature(width=4, depth=2, steps=500))
    made = Generator(scales, ["base", "A-h1"], [21, 22], "other", base=other)
    made.write_all({"A-h1": 0.1})
    found = ladder([make("small", scales), make("other", scales)], 65e6)
    assert found.found["apart"] == ["other: training.tokens is 400, small has 800"]
    assert "not of scale alone" in " ".join(render(found, "text").split())
    seen = {row.name: made.study.seeds for row in made.study.rows}
    file = scales / "studies/other/looks.json"
    file.write_bytes(to_json(looks_to_json(Course(late(2, 3), [Look(seen)], None))))
    (said,) = ladder([make("small", scales), make("other", scales)], 65e6).found["apart"]
    assert said.endswith("; its seeds were added after looking, which p is not corrected for here")


def test_a_row_is_foreseen_by_the_others_alone():
    x, paper = np.array([0.3, -0.1, 0.2, 0.05]), np.array([0.1, -0.02, 0.09, 0.0])
    found = calibrated(x, paper)
    left = [paper[r] - x[r] * (np.delete(x * paper, r).sum() / np.delete(x * x, r).sum()) for r in range(4)]
    assert found.errors == pytest.approx([100 * e for e in left])
    assert found.rms == pytest.approx(100 * math.sqrt(np.mean(np.square(left))))
    assert found.factor == pytest.approx((x * paper).sum() / (x * x).sum())
    zero = calibrated(np.zeros(4), paper)
    assert zero.factor == 0 and zero.rms == pytest.approx(100 * math.sqrt((paper**2).mean()))
    moved = calibrated(x, paper + np.array([9.0, 0, 0, 0]))
    assert moved.errors[0] == pytest.approx(found.errors[0] + 900), "its own value does not foresee it"


def test_the_program_prints_what_the_preregistration_names(scales, capsys):
    """Leave-one-row-out error of the rule, beside zero, the parameter count and each scale."""
    show_scaling([make("small", scales), make("large", scales)], 65e6)
    lines = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()[3:]]
    assert [line[0] for line in lines] == ["this rule", "zero", "the parameter count", "small", "large"]
    assert all(float(line[2]) > 0 and 0 <= int(line[3]) <= 9 for line in lines)
    assert 0 < float(lines[0][-1]) <= 1 and lines[1][-1] == ""


def test_three_scales_fit_a_terminal_each_verdict_on_one_line(scales, capsys):
    base = replace(BASE, miniature=replace(BASE.miniature, width=4))
    Generator(scales, ["base", "A-h1", "A-h4", "C-N2"], [1, 2, 3, 4, 5], "larger", base=base).write_all({"C-N2": 0.1})
    assert main(["scaling", "small", "large", "larger", "--out", str(scales)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.startswith(("A-h", "C-N")) and "no interval" not in line]
    assert len(rows) == 3 and all(any(word in row for word in ("cannot tell", "shrinks", "grows")) for row in rows)
