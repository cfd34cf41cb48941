"""Rows over scales and over corpora: the rules where their truth is known, and every format."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.foresight import calibration, held_out, show_scaling
from lightning_tfm.atomic_io import to_json
from lightning_tfm.cli.main import main
from lightning_tfm.config import Miniature
from lightning_tfm.errors import UserError
from lightning_tfm.report.across.comparison import compare, shift_verdicts
from lightning_tfm.report.across.meta_analysis import meta_analysis, random_effects
from lightning_tfm.report.across.scaling import PRIOR, exponent, prediction, scaling_study
from lightning_tfm.report.charts.forest_picture import wide
from lightning_tfm.report.render.every_format import render
from lightning_tfm.report.study_report import make
from lightning_tfm.study.sequential import Course, Look, late, looks_to_json
from lightning_tfm.study.study_file import save
from tests.golden.synthetic import diverging
from tests.helpers.studies import BASE, Generator, write_lines

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
    for _ in range(20 if own else 40):
        kappa, se = rng.normal(mean, sd), 0.01
        steps = np.diff([*log_N, TARGET])
        walk = np.cumsum([np.zeros(10), *(rng.normal(0, own * math.sqrt(step), 10) for step in steps)], axis=0)
        walk -= walk[-2]  # departures are from the largest scale on, and at its size
        truth = (rng.normal(0, 0.15, 10) + walk) * np.exp(-kappa * (np.array([*log_N, TARGET]) - log_N[-1]))[:, None]
        seen = truth[:-1] + rng.normal(0, se, truth[:-1].shape)
        found = exponent(seen, np.full(seen.shape, se**2), log_N, PRIOR["size"])
        for row in range(10):
            there, error = prediction(seen[-1, row], se**2, TARGET - log_N[-1], found)
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
    assert shift_verdicts(pd.DataFrame([line]).astype(float)).tolist() == [word]


@pytest.fixture(scope="module")
def scales(tmp_path_factory):
    """Two studies, the second with base twice as wide: C-N2 costs less there, D-Pdrop0.0 is the other way round."""
    rows = ["base", "A-h1", "A-h4", "A-h16", "A-h32", "C-N2", "C-N4", "C-N8", "D-Pdrop0.0", "E-learned"]
    folder = tmp_path_factory.mktemp("scales")
    for name, width, effects in (
        ("small", 16, {"C-N2": 0.4, "D-Pdrop0.0": -0.2, "A-h1": 0.3}),
        ("large", 8, {"C-N2": 0.2, "D-Pdrop0.0": 0.2, "A-h1": 0.3}),
    ):
        base = replace(BASE, miniature=replace(BASE.miniature, width=width))
        Generator(folder, rows, [1, 2, 3, 4, 5], name, base=base).write_all(effects, seed_sd=0.01)
    return folder


def test_a_ladder_by_the_command(scales, capsys):
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
    near = json.loads(said("json", "--target", "0.001"))["rows"][0]["prediction"]
    assert near != rows["A-h1"]["prediction"]
    page = said("html")  # other formats: tests/golden/made/across
    headline = "No dropout changes sign; a third of the depth shrinks from "
    assert page.index(headline) < page.index("<h2") < page.index('class="series marked bad"') < page.index("<table")
    assert page.count("no dropout, changes sign</text>") == 1, "on screens"
    assert len(re.findall(r"[\d.]+ % no dropout,</text>.*?>changes sign</text>", page)) == 1, "on phones in two lines"


def test_scales_must_differ_and_base_must_be_there(scales):
    report = make("small", scales)
    with pytest.raises(UserError, match="needs studies of several scales"):
        scaling_study([report, report], 65e6)
    Generator(scales, ["base", "A-h1"], [11, 12], "empty", base=BASE).write_all(skip=[("base", 11), ("base", 12)])
    with pytest.raises(UserError, match="no row has an interval in all of"):
        scaling_study([report, make("empty", scales)], 65e6)


def test_it_says_what_else_than_the_scale_is_not_the_same(scales):
    """Of another text, or other pieces in a step, a change is not one of scale."""
    assert scaling_study([make("small", scales), make("large", scales)], 65e6).found["apart"] == []
    other = replace(BASE, training=replace(BASE.training, tokens=400), miniature=Miniature(width=4, depth=2, steps=500))
    made = Generator(scales, ["base", "A-h1"], [21, 22], "other", base=other)
    made.write_all({"A-h1": 0.1})
    found = scaling_study([make("small", scales), make("other", scales)], 65e6)
    assert found.found["apart"] == ["other: training.tokens is 400, small has 800"]
    assert "not of scale alone" in " ".join(render(found, "text").split())
    seen = {row.name: made.study.seeds for row in made.study.rows}
    file = scales / "studies/other/looks.json"
    file.write_bytes(to_json(looks_to_json(Course(late(2, 3), [Look(seen)], None))))
    (said,) = scaling_study([make("small", scales), make("other", scales)], 65e6).found["apart"]
    assert said.endswith("; its seeds were added after looking, which p is not corrected for here")


def test_a_row_is_foreseen_by_the_others_alone():
    x, paper = np.array([0.3, -0.1, 0.2, 0.05]), np.array([0.1, -0.02, 0.09, 0.0])
    found = calibration(x, paper)
    left = [paper[r] - x[r] * (np.delete(x * paper, r).sum() / np.delete(x * x, r).sum()) for r in range(4)]
    assert found.errors == pytest.approx([100 * e for e in left])
    assert found.rms == pytest.approx(100 * math.sqrt(np.mean(np.square(left))))
    assert found.factor == pytest.approx((x * paper).sum() / (x * x).sum())
    zero = calibration(np.zeros(4), paper)
    assert zero.factor == 0 and zero.rms == pytest.approx(100 * math.sqrt((paper**2).mean()))
    moved = calibration(x, paper + np.array([9.0, 0, 0, 0]))
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
    rows = [
        line
        for line in lines
        if line.startswith(("one head", "four heads", "a third of")) and "no interval" not in line
    ]
    assert len(rows) == 3 and all(any(word in row for word in ("cannot tell", "shrinks", "grows")) for row in rows)


# --- rows over corpora: the random effects against a published example and brute force, and every format of `pool` ---


BCG = np.array([
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
    (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232), (17, 1699, 65, 1600),
    (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
])  # fmt: skip
"""13 trials of a vaccine (Colditz et al. 1994): ill and well, vaccinated and not; the example of R's metafor"""


def bcg():
    """Logarithms of the relative risks, and their variances."""
    a, b, c, d = BCG.astype(float).T
    return np.log(a / (a + b)) - np.log(c / (c + d)), 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)


def test_the_published_example():
    """metafor (Viechtbauer 2010) has tau^2 0.3181 by Paule and Mandel, and Q 152.233 on 12 degrees of freedom."""
    found = random_effects(*bcg())
    assert found["tau"] ** 2 == pytest.approx(0.3181, abs=5e-5)
    assert found["I2"] == pytest.approx((152.233 - 12) / 152.233, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_every_number_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(3, 9))
    v = rng.uniform(0.01, 0.3, K) ** 2
    y = rng.normal(0.1, rng.choice([0.0, 0.3]), K) + rng.normal(0, np.sqrt(v))
    found = random_effects(y, v)
    grid = np.linspace(0, 1, 400_001)
    w = 1 / (v + grid[:, None])
    mu = (w * y).sum(1) / w.sum(1)
    Q = (w * (y - mu[:, None]) ** 2).sum(1)
    i = 0 if Q[0] <= K - 1 else int(np.argmin(np.abs(Q - (K - 1))))
    assert found["tau"] ** 2 == pytest.approx(grid[i], abs=3e-6)
    fitted = np.polynomial.Polynomial.fit(np.arange(K), y, 0, w=np.sqrt(w[i]), domain=[0, K])  # weighted least squares
    assert found["estimate"] == pytest.approx(fitted.convert().coef[0], abs=1e-5)
    se = math.sqrt(max(1.0, Q[i] / (K - 1)) / w[i].sum())
    assert found["se"] == pytest.approx(se, rel=1e-4)
    K_e = w[i].sum() ** 2 / (w[i] ** 2).sum()
    assert found["effective"] == pytest.approx(K_e, rel=1e-3) and 1 < K_e <= K
    assert (found["lower"], found["upper"]) == pytest.approx(
        stats.t.interval(0.95, K_e - 1, mu[i], se), rel=3e-3, abs=1e-5
    )
    error = math.sqrt(grid[i] + se**2)
    assert (found["unseen lower"], found["unseen upper"]) == pytest.approx(
        stats.t.interval(0.95, max(K_e - 2, 0.1), mu[i], error), rel=1e-2, abs=1e-5
    )
    assert found["p"] == pytest.approx(2 * stats.t.sf(abs(mu[i]) / se, K_e - 1), rel=1e-3)


def test_alike_studies_have_no_spread_and_never_less_error_than_their_own():
    found = random_effects([0.1, 0.1, 0.1], [0.01, 0.01, 0.01])
    assert (found["tau"], found["I2"], found["effective"]) == (0.0, 0.0, pytest.approx(3))
    assert found["se"] == pytest.approx(math.sqrt(0.01 / 3)), "q is 0 here: without its floor nothing would be left"


def test_a_study_that_outweighs_all_others_decides_nothing():
    """Beside one that is known exactly two noisy ones were p = 1e-6, with the degrees of freedom of three."""
    found = random_effects([0.1, 0.11, 0.12], [1e-8, 1.0, 1.0])
    assert found["effective"] == pytest.approx(1, abs=1e-6) and found["p"] > 0.05
    assert found["upper"] > 1e6 and math.isfinite(found["upper"])


def test_a_metric_s_unit_changes_no_verdict():
    """Differences of a billionth, as of perplexities near 1, had p 0.32 instead of 0.017."""
    size, y, se = 1e-9, np.array([0.2, 0.5, 0.3, 0.45]), np.array([0.01, 0.02, 0.05, 0.1])
    one, other = random_effects(y, se**2), random_effects(size * y, (size * se) ** 2)
    scaled = {"estimate", "se", "lower", "upper", "unseen lower", "unseen upper", "tau"}
    assert other == pytest.approx({key: x * size if key in scaled else x for key, x in one.items()}, rel=1e-9)


def test_an_unseen_corpus_lies_in_its_interval_as_often_as_it_says():
    rng, inside = np.random.default_rng(5), 0
    for _ in range(600):
        theta, v = rng.normal(0.1, 0.2, 7), rng.uniform(0.02, 0.08, 7) ** 2
        y = theta + rng.normal(0, np.sqrt(v))
        found = random_effects(y[:6], v[:6])
        inside += found["unseen lower"] <= theta[6] <= found["unseen upper"]
    assert 0.93 <= inside / 600 <= 0.97


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Four studies without a run in common: A-h1 is worse in all of them alike, A-h4 sometimes better."""
    folder = tmp_path_factory.mktemp("texts")
    for k, a_h4 in enumerate((0.3, -0.3, 0.25, -0.2)):
        base = replace(BASE, training=replace(BASE.training, steps=100_000 * (k + 1)))
        made = Generator(folder, ["base", "A-h1", "A-h4", *["C-N2"] * (k < 2)], [1, 2, 3], f"s{k}", base=base)
        made.write_all({"A-h1": 0.4, "A-h4": a_h4})
    return folder


OTHERS = ["deep", "bare", "few", "one", "gone", "same", "small", "loud", "louder"]


def more_text(root, name, rows=("base", "A-h1", "A-h4"), base=BASE, **how):
    """One more study like those of `texts`, without a run in common."""
    base = replace(base, training=replace(base.training, steps=1_000_000 + 1000 * OTHERS.index(name)))
    made = Generator(root, rows, [1, 2, 3], name, base=base)
    made.write_all({"A-h1": 0.4}, **how)
    return made


def test_the_order_of_the_studies_changes_nothing(texts):
    """C-N2, which the first one lacks, was in no mean."""
    more_text(texts, "deep", ["base", "A-h1", "C-N2"])
    names = ["s0", "s1", "s2", "deep"]
    ways = [meta_analysis([make(name, texts) for name in order]) for order in (names, names[::-1], sorted(names))]
    made = [sorted(map(json.dumps, found.data)) for found in ways]
    assert made[0] == made[1] == made[2] and '"C-N2"' in str(made[0])


def test_studies_that_share_runs_are_refused(texts):
    """Three copies of one study of three seeds gave eight verdicts "over 3 corpora"."""
    save(replace(make("s0", texts).cells.study, name="again"), texts)
    with pytest.raises(UserError, match="s0 and again have 12 runs in common, which would count twice"):
        meta_analysis([make(name, texts) for name in ("s0", "s1", "again")])


def test_it_says_why_a_study_has_no_interval_of_a_row(texts):
    more_text(texts, "bare", ["A-h1", "A-h4"])
    more_text(texts, "few", skip=[("A-h1", 1), ("A-h1", 2)])
    more_text(texts, "one", skip=[("base", 1), ("base", 2)])
    more_text(texts, "gone", skip=[("A-h1", seed) for seed in (1, 2, 3)])
    same = more_text(texts, "same")
    for row, seed in ((row, seed) for row in same.study.rows for seed in same.study.seeds):
        same.rng = np.random.default_rng(len(row.name))
        same.write(row, seed, 0.0)
    names = ["s0", "s1", "s2", "bare", "few", "one", "gone", "same"]
    found = meta_analysis([make(name, texts) for name in names])
    lacks = "bare (no scores of base), few (1 seed), one (1 seed of base), gone (no scores), "
    lacks += "same (all seeds gave the same number)"
    assert f"A-h1: without {lacks}" in found.found["left out"]
    assert [line["studies"] for line in found.data if line["row"] == "A-h1"] == [3, 3]
    lines = compare([make(n, texts) for n in ("s0", "bare", "few", "same")]).data
    verdicts = {line["study"]: line["verdict"] for line in lines if line["row"] == "A-h1"}
    assert list(verdicts.values())[1:] == ["no scores of base", "1 seed", "all seeds gave the same number"]


def test_studies_of_several_scales_are_not_called_one(texts):
    more_text(texts, "small", base=replace(BASE, miniature=replace(BASE.miniature, width=16)))
    found = meta_analysis([make(name, texts) for name in ("s0", "s1", "small")])
    assert "Several scales; s0, s1, small are taken for a sample of corpora" in found.scope
    assert "verdicts are over corpora and scales" in render(found, "text")


def test_a_median_width_that_says_nothing_is_no_number(texts):
    """It was 15179739290.00 of log PPL where one quiet study outweighs two."""
    loud = [more_text(texts, name, seed_sd=0.5).study.name for name in ("loud", "louder")]
    found = meta_analysis([make(name, texts) for name in ("s0", *loud)])
    assert "an unseen corpus: no information in PPL" in " ".join(render(found, "text").split())


def pooled(root, kinds=None):
    return meta_analysis([make(f"s{k}", root) for k in range(4)], kinds)


def test_words_are_over_corpora(texts):
    """In every format: tests/golden/made/across."""
    found = pooled(texts)
    rows = {line["row"]: line for line in found.data if line["metric"] == "ppl"}
    assert list(rows) == ["A-h1", "A-h4"]
    assert found.found["left out"] == [
        "C-N2: an interval in fewer than 3 studies, without s2 (no such row), s3 (no such row)"
    ]
    same, mixed = rows["A-h1"], rows["A-h4"]
    assert (same["word"], mixed["word"], same["studies"]) == ("worse", "undecided", 4)
    assert same["unseen lower"] > 0.2 and same["estimate"] == pytest.approx(0.4, abs=0.05)
    assert mixed["unseen lower"] < -0.3 and mixed["unseen upper"] > 0.3 and mixed["I2"] > 0.9
    assert all(line["word"] in ("better", "worse", "undecided") for line in found.data)
    assert found.headline == ["On average over corpora one head is worse."]
    assert found.scope.startswith("Of 2 changes 1 is worse; 1 is undecided. One scale; s0, s1, s2, s3")


def test_a_study_in_which_a_row_diverged_is_named_as_it_is_in_no_mean(texts):
    base = replace(BASE, training=replace(BASE.training, steps=900_000))
    made = Generator(texts, ["base", "A-h1", "A-h4"], [1, 2, 3], "s4", base=base)
    made.write_all({"A-h4": 0.1})
    write_lines(made.write(made.study.rows[1], 2, 100.0).metrics, diverging(4.9))
    found = meta_analysis([make(f"s{k}", texts) for k in range(5)])
    assert "A-h1: without s4 (1 of 3 seeds diverged)" in found.found["left out"]
    assert [line["studies"] for line in found.data if line["metric"] == "ppl"] == [4, 5]


def test_the_picture_has_each_corpus_and_where_an_unseen_one_would_lie(texts):
    forest = pooled(texts).sections[0].blocks[0].picture
    one, four = ({line.code: line for line in forest.lines}[row].entries[0] for row in ("A-h1", "A-h4"))
    assert [name for name, _ in one.dots] == ["s0", "s1", "s2", "s3"] and one.outer[0] > 20
    assert four.outer[0] < four.lower < four.upper < four.outer[1]
    assert wide(forest).count('class="corpus"') == 2 * 4 + 1, "and one in the legend"


def test_studies_of_one_family_are_said(texts):
    found = pooled(texts, {"s0": "a", "s1": "a", "s2": "b", "s3": "b"})
    assert found.found["families"] == {"s0": ["s0", "s1"], "s2": ["s2", "s3"]}
    assert "s0, s1 are of one family" in render(found, "text")


def test_a_family_is_held_out_together(texts):
    reports = [make(f"s{k}", texts) for k in range(4)]
    families, inside, widths = held_out(reports, "ppl", {f"s{k}": f"f{k}" for k in range(4)})
    assert (len(families), len(inside), len(widths)) == (4, 8, 8) and sum(inside) >= 7
    families, inside, _ = held_out(reports, "ppl", {"s0": "a", "s1": "b", "s2": "c", "s3": "a"})
    assert (families, len(inside)) == (["b", "c"], 4), "without both of a family, two studies are left"
    assert held_out(reports, "ppl", {"s0": "a", "s1": "a", "s2": "b", "s3": "b"}) == ([], [], [])


def test_fewer_than_three_studies_say_nothing_of_an_unseen_one(texts):
    with pytest.raises(UserError, match="takes 3 studies, 2 given"):
        meta_analysis([make(f"s{k}", texts) for k in range(2)])
