"""Main effects and interactions of a study whose rows are all combinations of some fields."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightning_tfm.report.analyses import factors
from lightning_tfm.report.analyses.factors import Effect
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.study_report import make
from lightning_tfm.study.sequential import Course, Look, late
from tests.golden.synthetic import GRID, combination, grid, write_looks
from tests.helpers.studies import BASE, Generator, ablation, own_row


def test_what_is_a_factorial_study():
    study = ablation(GRID, base=BASE)
    base, first_row, *_ = study.rows
    found = factors.factorial(study)
    assert found.levels == {"model.norm": ["post", "pre"], "training.warmup": [400, 800]}, "base's level comes first"
    first = factors.factorial(study, study.rows[2].name)
    assert {key: levels[0] for key, levels in first.levels.items()} == study.rows[2].change, "or that of a reference"
    assert found.rows["post", 400] == "norm=post, warmup=400"
    assert factors.factorial(replace(study, rows=study.rows[:-1])) is None, "a combination is missing"
    assert factors.factorial(replace(study, rows=[base, first_row])) is None
    corner = [base, first_row, combination("post", 800), combination("pre", 800)]
    assert factors.factorial(replace(study, rows=corner)).rows["post", 400] == "base"
    one_field = [base, *(own_row(f"h={h}", {"model.h": h}) for h in (1, 2))]
    assert factors.factorial(replace(study, rows=one_field)) is None


def test_contrasts_of_two_by_three_by_two_fields():
    levels = {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}
    rows = {(a, b, c): f"{a}{b}{c}" for a in (0, 1) for b in (0, 1, 2) for c in (0, 1)}
    listed = factors.contrasts(factors.Factorial(levels, rows))
    assert [kind for kind, _, _ in listed].count("main") == 4
    assert [kind for kind, _, _ in listed].count("interaction") == 1 * 2 + 1 * 1 + 2 * 1
    worth = {"a": {0: 0.0, 1: 5.0}, "b": {0: 0.0, 1: 2.0, 2: -3.0}, "c": {0: 1.0, 1: 4.0}}
    value = {(a, b, c): worth["a"][a] + worth["b"][b] + worth["c"][c] + 7.0 * (a == 1 and b == 2) for a, b, c in rows}
    found = {tuple(words): sum(c * value[k] for k, c in coefficients.items()) for _, words, coefficients in listed}
    assert found["b: 1 against 0",] == pytest.approx(2.0)
    assert found["a: 1 against 0",] == pytest.approx(5.0 + 7.0 / 3)
    assert found["a: 1 against 0", "b: 2 against 0"] == pytest.approx(7.0)
    assert found["a: 1 against 0", "c: 1 against 0"] == pytest.approx(0.0)
    assert all(sum(coefficients.values()) == pytest.approx(0) for _, _, coefficients in listed)


def test_effects_of_too_few_seeds_have_intervals_and_no_p(tmp_path, monkeypatch):
    monkeypatch.setattr("lightning_tfm.report.stats.statistics.LEAST", 5)
    grid(tmp_path, [1, 2, 3])
    report = make("made", tmp_path)
    effects = report.summary.analyses["factors"].effects
    assert {e.p for e in effects} == {None} and all(e.lower < e.estimate < e.upper for e in effects)
    assert effects[0].depends_on == ["training.warmup"]  # the caution stays: by the interaction's interval
    lines = [line for line in report.render("markdown").splitlines() if " against 400" in line or " against po" in line]
    assert len(lines) == 6 and all(", not testable" in line and ", p " not in line for line in lines)


def test_effects_of_seeds_that_were_added_after_looking_have_no_p(tmp_path):
    """They were added by verdicts against base: no share of the level is kept for effects."""
    made = grid(tmp_path)
    assert all(effect.p is not None for effect in make("made", tmp_path).summary.analyses["factors"].effects)
    seen = {row.name: made.study.seeds for row in made.study.rows}
    write_looks(made, Course(late(5, 8), [Look(seen)], seen))
    effects = make("made", tmp_path).summary.analyses["factors"].effects
    assert effects and all(effect.p is None and effect.lower is not None for effect in effects)


def test_effects_that_are_there_are_found(tmp_path):
    """How they are shown: tests/golden/made/grid."""
    grid(tmp_path, [1, 2, 3])
    report = make("made", tmp_path)
    found = {(e.metric, tuple(e.words)): e for e in report.summary.analyses["factors"].effects}
    pre, late = "model.norm: pre against post", "training.warmup: 800 against 400"
    main, cross = found["ppl", (pre,)], found["ppl", (pre, late)]
    assert main.lower < 0.6 < main.upper and main.p < 0.001
    assert cross.lower < 0.6 < cross.upper and cross.p < 0.001
    assert main.depends_on == ["training.warmup"] and cross.depends_on == []
    drawn = factors._forest(report.summary.analyses["factors"], ["ppl", "bleu"]).lines[0].entries
    assert [e.estimate > 0 for e in drawn] == [True, False] and {e.verdict for e in drawn} == {"worse"}
    page = report.render("html")
    assert "norm pre × warm-up 800" in page and page.index("section-factors") < page.index("section-table")
    assert 'aria-label="Dev perplexity by norm and warm-up"' in page and "norm post, warm-up 800: " in page
    assert report.summary.analyses["factors"].maps[0]["values"][0][0] == pytest.approx(5, rel=0.1)


def test_a_main_effect_names_only_fields_with_which_it_interacts_beyond_chance():
    def effect(kind, p, *keys):
        return Effect(kind, "ppl", [f"{key}: 1 against 0" for key in keys], 0.1, 0.0, 0.2, p)

    pairs = [effect("interaction", 0.001, "a", "b"), effect("interaction", 0.5, "a", "c")]
    found = factors._with_p_corrected([effect("main", 0.001, key) for key in "abc"] + pairs)
    assert [e.depends_on for e in found] == [["b"], ["a"], [], [], []]


@pytest.mark.parametrize("shared", [0.0, 1e-4, 0.01])
def test_a_difference_of_two_combinations_is_tested_as_that_of_a_row_to_base_is(shared):
    mean_R, variance_R, n_R = np.array([0.0, 0.1]), np.array([0.0004, 0.0001]), np.array([3, 3])
    noise = statistics.SentenceNoise(np.array([0.0, shared]), np.array([0.0009, 0.0003]))
    theirs = statistics.compare(mean_R, variance_R, n_R, noise, 50)
    v_R, df_R = statistics.moderated(variance_R, n_R - 1, statistics.prior_df(variance_R[None], n_R - 1))
    parts = np.array([-1.0, 1.0]), v_R / n_R, df_R, n_R, (shared, 0.0012 / 3), 50
    ours = factors._test_effects(Effect("main", "ppl", ["a"], 0.1), *parts)
    low, high = (float(x[1]) for x in theirs.interval())
    assert (ours.lower, ours.upper, ours.p) == pytest.approx((low, high, float(theirs.p[1])))


def test_a_combination_with_one_seed_leaves_its_effects_untested(tmp_path):
    made = Generator(tmp_path, GRID, [1, 2, 3])
    made.write_all({"norm=pre, warmup=400": 0.5}, skip=[("norm=pre, warmup=400", seed) for seed in (2, 3)])
    effects = make("made", tmp_path).summary.analyses["factors"].effects
    assert len(effects) == 6 and {(e.lower, e.p) for e in effects} == {(None, None)}
    assert effects[0].estimate == pytest.approx(0.25, abs=0.1)


def test_while_a_combination_has_no_run_yet_every_view_is_there_without_effects(tmp_path):
    made = Generator(tmp_path, GRID, [1, 2, 3])
    made.write_all(skip=[("norm=pre, warmup=400", seed) for seed in (1, 2, 3)])
    report = make("made", tmp_path)
    assert report.summary.analyses["factors"].effects == []
    for kind in ("text", "html", "markdown", "latex", "csv", "json"):
        assert "warmup" in report.render(kind) and "section-factors" not in report.render(kind), kind


def test_seeds_that_all_gave_the_same_number_allow_no_test_of_an_effect():
    n_R = np.array([3, 3])
    same = factors._test_effects(
        Effect("main", "ppl", ["a"], 0.1), np.array([-1.0, 1.0]), 0.0 * n_R, n_R - 1, n_R, (0.01, 0)
    )
    assert (same.lower, same.p) == (None, None)


def test_a_study_of_listed_rows_has_no_factors(tmp_path):
    made = Generator(tmp_path, ["base", "A-h1", "A-h4"], [1, 2])
    made.write_all()
    assert "factors" not in make("made", tmp_path).summary.analyses


def test_the_pages_say_how_often_effects_and_comparisons_are_false():
    root = Path(factors.__file__).parents[3]
    rows = (root / "benchmarks/results/effects.txt").read_text().splitlines()[6:]
    rates = [[float(x) for x in re.findall(r" (\d+\.\d)(?= |$)", row[13:])] for row in rows]
    assert {len(found) for found in rates} == {10}
    effects, comparisons = (max(max(found[part]) for found in rates) for part in (slice(8), slice(8, 10)))
    assert f"at most {effects} % of such families" in factors.ABOUT
    assert f"at most {comparisons} % of metrics" in (root / "lightning_tfm/report/across/comparison.py").read_text()
