"""Rows over corpora: the random effects against a published example and brute force, and every format of `pool`."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks.foresight import held_out
from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.report.across.meta_analysis import pool, random_effects
from lightning_tfm.report.build import make
from lightning_tfm.report.charts.forest_picture import wide
from lightning_tfm.report.render.every_format import render
from lightning_tfm.study.study_file import save
from tests.helpers.studies import BASE, Generator

BCG = np.array(
    [
        (4, 119, 11, 128),
        (6, 300, 29, 274),
        (3, 228, 11, 209),
        (62, 13536, 248, 12619),
        (33, 5036, 47, 5761),
        (180, 1361, 372, 1079),
        (8, 2537, 10, 619),
        (505, 87886, 499, 87892),
        (29, 7470, 45, 7232),
        (17, 1699, 65, 1600),
        (186, 50448, 141, 27197),
        (5, 2493, 3, 2338),
        (27, 16886, 29, 17825),
    ]
)
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
    assert (found["lower"], found["upper"]) == pytest.approx(
        stats.t.interval(0.95, K - 1, mu[i], se), rel=1e-3, abs=1e-5
    )
    error = math.sqrt(grid[i] + se**2)
    assert (found["unseen lower"], found["unseen upper"]) == pytest.approx(
        stats.t.interval(0.95, K - 2, mu[i], error), rel=1e-3, abs=1e-5
    )
    assert found["p"] == pytest.approx(2 * stats.t.sf(abs(mu[i]) / se, K - 1), rel=1e-3)


def test_alike_studies_have_no_spread_and_never_less_error_than_their_own():
    found = random_effects([0.1, 0.1, 0.1], [0.01, 0.01, 0.01])
    assert (found["tau"], found["I2"]) == (0.0, 0.0)
    assert found["se"] == pytest.approx(math.sqrt(0.01 / 3)), "q is 0 here: without its floor nothing would be left"


def test_an_unseen_corpus_lies_in_its_interval_as_often_as_it_says():
    rng, inside = np.random.default_rng(5), 0
    for _ in range(600):
        theta, v = rng.normal(0.1, 0.2, 7), rng.uniform(0.02, 0.08, 7) ** 2
        y = theta + rng.normal(0, np.sqrt(v))
        found = random_effects(y[:6], v[:6])
        inside += found["unseen lower"] <= theta[6] <= found["unseen upper"]
    assert 0.93 <= inside / 600 <= 0.97


@pytest.fixture
def texts(tmp_path):
    """Four studies without a run in common: A-h1 is worse in all of them alike, A-h4 sometimes better."""
    for k, a_h4 in enumerate((0.3, -0.3, 0.25, -0.2)):
        made = Generator(tmp_path, ["base", "A-h1", "A-h4", *["C-N2"] * (k < 2)], [1, 2, 3], f"s{k}")
        (tmp_path / f"studies/s{k}/study.json").unlink()
        base = replace(BASE, training=replace(BASE.training, steps=100_000 * (k + 1)))
        made.base, made.study = base, replace(made.study, base=base)
        save(made.study, tmp_path)
        made.write_all({"A-h1": 0.4, "A-h4": a_h4})
    return tmp_path


def pooled(root, kinds=None):
    return pool([make(f"s{k}", root) for k in range(4)], kinds)


def test_words_are_over_corpora(texts):
    found = pooled(texts)
    rows = {line["row"]: line for line in found.data if line["metric"] == "ppl"}
    assert list(rows) == ["A-h1", "A-h4"]
    assert found.found["left out"] == ["C-N2: an interval in fewer than 3 studies"]
    same, mixed = rows["A-h1"], rows["A-h4"]
    assert (same["word"], mixed["word"], same["studies"]) == ("worse", "undecided", 4)
    assert same["unseen lower"] > 0.2 and same["estimate"] == pytest.approx(0.4, abs=0.05)
    assert mixed["unseen lower"] < -0.3 and mixed["unseen upper"] > 0.3 and mixed["I2"] > 0.9
    assert all(line["word"] in ("better", "worse", "undecided") for line in found.data)
    assert found.headline == ["On average over 4 corpora one head is worse."]
    assert found.scope.startswith("Of 2 changes 1 is worse; 1 is undecided. One scale; s0, s1, s2, s3")


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


def test_every_format(texts, capsys):
    studies = [f"s{k}" for k in range(4)]

    def said(kind):
        assert main(["meta-analysis", *studies, "--out", str(texts), "--format", kind, "--to", "-"]) == 0
        return capsys.readouterr().out

    plain = json.loads(said("json"))
    first = plain["rows"][0]
    assert first["row"] == "A-h1" and plain["families"] == {"s0": studies}, "all of one corpus and folder"
    lines = list(csv.DictReader(io.StringIO(said("csv"))))
    assert len(lines) == 4 and float(lines[0]["estimate"]) == first["estimate"]
    shown = f"{100 * math.expm1(first['estimate']):+.1f}"
    for kind in ("text", "markdown", "latex", "html"):
        text = said(kind)
        assert shown in text and "over corpora" in text and "worse" in text, kind
    assert max(map(len, said("text").splitlines())) <= 80


def test_fewer_than_three_studies_say_nothing_of_an_unseen_one(texts):
    with pytest.raises(UserError, match="takes 3 studies, 2 given"):
        pool([make(f"s{k}", texts) for k in range(2)])
