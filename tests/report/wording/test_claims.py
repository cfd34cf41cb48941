"""The claims of section 6.2: one family, every row of a claim, both directions."""

import numpy as np
import pytest
from scipy import stats

from lightning_tfm.metrics import PPL
from lightning_tfm.report.stats.statistics import Estimate
from lightning_tfm.report.wording.claims import (
    BETTER,
    CLAIMS,
    SAME,
    TAU,
    WORSE,
    Claim,
    adjusted,
    both_sides,
    claims_of,
    weigh,
)
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.study.rows import all_rows


def at(z, se=0.001, centre=0.0):
    """A difference `z` standard errors above `centre`, its error known well."""
    return Estimate(centre + z * se, se, 1000.0)


def word(says, **rows):
    (found,) = weigh([Claim("a claim", says)], [(rows, 1.0)])
    return found.verdict


def test_a_claim_about_several_rows_needs_all_of_them():
    both = {"a": WORSE, "b": WORSE}
    assert word(both, a=at(5), b=at(4)) == Verdict.SUPPORTED
    assert word(both, a=at(5), b=at(0)) == Verdict.UNDECIDED
    assert word(both, a=at(5), b=at(-4)) == Verdict.CONTRADICTED
    assert word(both, a=at(0), b=at(0)) == Verdict.UNDECIDED
    assert word(both, a=at(5)) == Verdict.UNTESTABLE
    assert word({"a": WORSE, "b": BETTER}, a=at(5), b=at(-4)) == Verdict.SUPPORTED
    assert word({"a": BETTER}, a=at(5)) == Verdict.CONTRADICTED


def test_p_is_the_largest_for_and_the_smallest_times_the_rows_against():
    claim, rows = Claim("a claim", {"a": WORSE, "b": WORSE}), {"a": at(3), "b": at(2)}
    for_it, against = both_sides(claim, rows)
    assert for_it == pytest.approx(stats.t.sf(2, 1000))
    assert against == pytest.approx(min(2 * stats.t.sf(-2, 1000), 1))
    (found,) = weigh([claim], [(rows, 1.0)])
    assert found.p == pytest.approx(2 * for_it)


def test_as_good_as_base_is_refuted_outside_the_margin_alone():
    same = {"a": SAME}
    assert word(same, a=at(0)) == Verdict.SUPPORTED
    assert word(same, a=at(5)) == Verdict.SUPPORTED  # differs, and lies well inside
    assert word(same, a=at(0, se=0.02)) == Verdict.UNDECIDED
    assert word(same, a=at(4, se=0.005)) == Verdict.UNDECIDED  # differs from zero, and may lie inside
    for side in (1, -1):
        assert word(same, a=at(4 * side, centre=TAU * side)) == Verdict.CONTRADICTED
    assert TAU == PPL.clear


def test_holm_over_the_claims_and_the_looks():
    family = [Claim("a", {"a": WORSE}), Claim("b", {"b": WORSE}), Claim("c", {"c": WORSE})]
    rows = {"a": at(3), "b": at(2.2), "c": at(0.5)}
    p = {name: 2 * stats.t.sf(z, 1000) for name, z in (("a", 3), ("b", 2.2), ("c", 0.5))}
    found = weigh(family, [(rows, 1.0)])
    assert [f.p for f in found] == pytest.approx([3 * p["a"], 2 * p["b"], p["c"]])
    assert [f.verdict for f in found] == [Verdict.SUPPORTED, Verdict.UNDECIDED, Verdict.UNDECIDED]
    halved = weigh(family, [(rows, 0.5)])
    assert halved[0].p == pytest.approx(6 * p["a"])
    later = weigh(family, [(rows, 0.5), ({"a": at(0), "b": at(-5), "c": at(0)}, 0.5)])
    assert later[0].p == halved[0].p and later[0].verdict == Verdict.SUPPORTED  # a word once said stays
    assert later[1].verdict == Verdict.CONTRADICTED
    missing = weigh(family, [({"a": at(3)}, 1.0)])
    assert missing[0].p == found[0].p  # what could not be tested still counts in the family
    assert [f.verdict for f in missing[1:]] == [Verdict.UNTESTABLE] * 2 and missing[1].findings[0].p != missing[
        1
    ].findings[0].p


def test_the_family_is_of_claims_whose_rows_the_study_has():
    assert claims_of(list(all_rows())) == list(CLAIMS) and len(CLAIMS) == 6
    assert claims_of(["base", "A-h1", "B-dk16"]) == [CLAIMS[0]]
    assert claims_of(["base", "A-h1", "A-h32"], heads=4) == [CLAIMS[1]]  # "worse than eight" says nothing about four
    assert weigh([], [({}, 1.0)]) == [] and weigh(claims_of(["A-h1"]), [])[0].verdict == Verdict.UNTESTABLE
    assert "C-N8" not in {name for claim in CLAIMS for name in claim.says}


def test_without_a_difference_any_false_word_comes_in_at_most_five_of_a_hundred():
    rng, N = np.random.default_rng(1), 4000
    base = rng.normal(size=N)
    names = [name for claim in CLAIMS for name in claim.says]
    rows = {name: Estimate((rng.normal(size=N) - base) * 0.1, np.full(N, 0.1 * 2**0.5), 1e9) for name in names}
    p = adjusted([both_sides(claim, rows) for claim in CLAIMS])
    said = (p < 0.05).any(-1).mean()
    assert 0.01 < said <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / N)
