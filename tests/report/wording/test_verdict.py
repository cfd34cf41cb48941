"""Words for a row, and for the claims of section 6.2: one family, every row of a claim, both directions."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import lightning_tfm
from lightning_tfm.metrics import BLEU, PPL
from lightning_tfm.plural_words import p_value
from lightning_tfm.report.stats.evidence import Evidence, may_be_equal
from lightning_tfm.report.stats.statistics import Estimate
from lightning_tfm.report.study_report import make
from lightning_tfm.report.wording.claims import (
    BETTER,
    CLAIMS,
    SAME,
    TAU,
    WORSE,
    Claim,
    both_sides,
    claim_verdicts,
    claims_of,
)
from lightning_tfm.report.wording.verdict import FALSE, agrees, judge, verdict_counts
from lightning_tfm.report.wording.verdict_words import Verdict, brief_phrase, phrase
from lightning_tfm.study.rows import all_rows
from tests.helpers.studies import summary_row
from tests.helpers.tables import read_tables

CLEARLY, BARELY = 0.05, 0.01
"""differences in log PPL that the paper could print"""


def evidence(estimate=1.0, p=0.01, **other):
    numbers = {
        "se": 0.3,
        "df": 8.0,
        "lower": estimate - 0.7,
        "upper": estimate + 0.7,
        "n": 3,
        "n_base": 3,
        "equivalent": 0.9,
        "half": 0.9,
        "needed": 9.0,
    }
    return Evidence(estimate=estimate, p=p, **numbers | other)


def close(estimate, p=0.01, **other):
    """Known to within some 0.006, less than the paper's single runs are."""
    return evidence(estimate, p, se=0.0025, lower=estimate - 0.006, upper=estimate + 0.006, **other)


def case(known: str, estimate: str, otherwise: str, paper: str, word: str):
    """Evidence, the published difference and the verdict of a line of verdicts.txt."""
    other = dict(part.split("=") for part in otherwise.split(", ") if part != "-")
    found = {"evidence": evidence, "close": close}[known](float(estimate), **{k: float(v) for k, v in other.items()})
    return found, None if paper == "None" else float(paper), Verdict(word)


CASES = [case(*cells) for cells in read_tables(Path(__file__).with_name("verdicts.txt"))["verdicts"]]
UNTESTED = [
    (evidence(n=1, p=math.nan, untested="a single seed"), +CLEARLY, Verdict.UNTESTABLE),
    (evidence(n_base=1, p=math.nan, untested="a single seed of base"), None, Verdict.UNTESTABLE),
    (evidence(p=math.nan, untested="all seeds gave the same number"), +CLEARLY, Verdict.UNDECIDED),
    (None, +CLEARLY, Verdict.UNTESTABLE),
]


@pytest.mark.parametrize(("found", "paper", "word"), CASES + UNTESTED)
def test_word(found, paper, word):
    assert judge(found, paper, "ppl", False).word == word


def test_smaller_than_printed_is_said_at_full_size_alone():
    found = evidence(+0.001, p=0.6, half=0.009)
    assert judge(found, CLEARLY, "ppl", True).word == Verdict.SMALLER
    assert judge(found, CLEARLY, "ppl", False).word == Verdict.UNDECIDED
    assert judge(replace(found, half=0.011), CLEARLY, "ppl", True).word == Verdict.UNDECIDED
    assert judge(replace(found, p=0.01), CLEARLY, "ppl", True).word == Verdict.SAME_DIRECTION
    assert judge(found, BARELY, "ppl", True).word == Verdict.UNDECIDED


def test_better_is_lower_in_perplexity_and_higher_in_bleu():
    assert judge(evidence(+1.0), None, "bleu", False).word == Verdict.BETTER
    assert judge(evidence(-1.0), None, "bleu", False).word == Verdict.WORSE


def test_which_printed_differences_are_clear():
    rows = all_rows()
    base = rows["base"].paper
    others = [row for name, row in rows.items() if name != "base"]
    unclear = {r.name for r in others if abs(math.log(r.paper.ppl / base.ppl)) <= PPL.clear}
    assert unclear == {"A-h16", "C-N8", "D-Pdrop0.2", "E-learned"}
    clear = {r.name for r in others if abs(r.paper.bleu - base.bleu) > BLEU.clear}
    assert clear == {"A-h1", "C-N2", "C-dmodel256", "D-Pdrop0.0"}


def test_what_stands_beside_a_word():
    same = judge(close(0.36), CLEARLY, "ppl", False)
    assert same.beside == "× 7.20 [7.08, 7.32]" and same.factor is not None
    assert judge(evidence(+0.6), CLEARLY, "ppl", False).beside == "size unclear"
    assert judge(close(0.05), CLEARLY, "ppl", False).beside == "× 1.00 [0.88, 1.12]"
    assert judge(evidence(p=0.5, needed=14.0), CLEARLY, "ppl", False).beside == "about 14 seeds"
    assert judge(evidence(p=0.5, equivalent=0.01), None, "ppl", False).beside == "± 1.4 % PPL"
    open_ = judge(evidence(p=0.5, needed=math.inf), CLEARLY, "ppl", False)
    assert open_.beside == "> 500 seeds" and "more than 500" in open_.why
    assert phrase(Verdict.UNDECIDED, "about 14 seeds") == "undecided, about 14 seeds"
    assert phrase(Verdict.UNDECIDED, "") == "undecided"
    assert phrase(Verdict.DIVERGED, "2 of 4") == brief_phrase(Verdict.DIVERGED, "2 of 4") == "diverged (2 of 4)"
    assert brief_phrase(Verdict.UNDECIDED, "about 14 seeds") == "undecided, ~14 seeds"
    assert brief_phrase(Verdict.SAME_DIRECTION, "× 7.27 [5.82, 8.73]") == "same direction"


def test_the_error_of_a_size_is_that_of_both_runs_of_the_paper_and_ours():
    """m = t_nu sqrt(se^2 + 2 sigma^2), nu = (se^2 + 2 sigma^2)^2 / (se^4 / df); by hand."""
    e = replace(close(0.05), se=0.01, df=4.0)
    nu = (1e-4 + 5e-5) ** 2 / (1e-8 / 4)
    m = float(stats.t.isf(0.025, nu)) * math.sqrt(1.5e-4)
    assert nu == pytest.approx(9.0) and m == pytest.approx(0.0277, abs=1e-4)
    assert agrees(e, 2 * m + 1e-6, 0.005)[1] is True
    assert agrees(e, 2 * m - 1e-6, 0.005)[1] is False
    assert agrees(replace(e, estimate=0.1 + m - 1e-6), 0.1, 0.005)[0]
    assert not agrees(replace(e, estimate=0.1 + m + 1e-6), 0.1, 0.005)[0]


def test_a_miniatures_bleu_has_no_unit_in_common_with_the_papers():
    """No factor, nothing reproduced in size, no absence; at full size it has all of them."""
    found = evidence(-1.4, se=0.1, lower=-1.6, upper=-1.2)
    small, full = (judge(found, -1.5, "bleu", size) for size in (False, True))
    assert (small.word, small.beside, small.factor) == (Verdict.SAME_DIRECTION, "", None)
    assert full.word == Verdict.SAME_DIRECTION and full.beside == "size unclear" and full.factor is not None
    assert judge(replace(found, estimate=-3.0), -3.0, "bleu", True).word == Verdict.REPRODUCED
    assert judge(replace(found, estimate=-3.0), -3.0, "bleu", False).word == Verdict.SAME_DIRECTION
    assert judge(replace(found, estimate=1.4), -1.5, "bleu", False).word == Verdict.CONTRADICTED
    assert judge(replace(found, p=0.5, equivalent=0.01), 0.1, "bleu", False).word == Verdict.UNDECIDED
    assert judge(replace(found, p=0.5, equivalent=0.01), 0.1, "bleu", True).word == Verdict.NEITHER
    assert judge(found, 0.1, "bleu", False).word == Verdict.DIFFERS


def test_words_are_counted_in_their_order():
    rows = [
        summary_row("base", base=True),
        *(summary_row("a", word) for word in (Verdict.UNDECIDED, Verdict.REPRODUCED, Verdict.UNDECIDED)),
    ]
    assert list(verdict_counts(rows, "ppl").items()) == [(Verdict.REPRODUCED, 1), (Verdict.UNDECIDED, 2)]


def test_every_word_is_one_value_with_all_that_prints_it_and_an_unclear_one_takes_no_side():
    assert len({word.mark for word in Verdict}) == len({word.latex for word in Verdict}) == len(Verdict)
    assert all(word.clause[0] and word.clause[1] and word.means and word.style for word in Verdict)
    for word in (
        Verdict.UNCLEAR,
        Verdict.BETTER,
        Verdict.WORSE,
        Verdict.EQUAL,
        Verdict.UNDECIDED,
        Verdict.UNTESTABLE,
        Verdict.SMALLER,
        Verdict.SAME_DIRECTION,
        Verdict.DIVERGED,
    ):
        assert word.style not in ("good", "bad")


def test_seeds_are_promised_for_an_absence_only_where_a_word_can_say_it():
    printed = np.array([np.nan, 0.1, 0.0, 2.0])
    assert may_be_equal(printed, BLEU.clear, True).tolist() == [True, True, True, False]
    assert may_be_equal(printed, BLEU.clear, False).tolist() == [True, False, False, False]


@pytest.mark.parametrize(("n", "n_base"), [(4, 8), (8, 4), (3, 3)])
def test_fewer_than_five_seeds_have_an_interval_and_no_word(generator, monkeypatch, n, n_base):
    """Seeds on plateaus make a false word in up to 22 % of studies of 3 seeds (benchmarks/results/plateaus.txt)."""
    monkeypatch.setattr("lightning_tfm.report.stats.statistics.LEAST", 5)
    made = generator(["base", "A-h1", "A-h32", "C-N2"], list(range(1, max(n, n_base) + 1)))
    skip = [("base", s) for s in range(n_base + 1, n + 1)] + [("A-h1", s) for s in range(n + 1, n_base + 1)]
    made.write_all({"A-h1": 0.5, "C-N2": 0.5}, skip=skip)
    report = make("made", made.root)
    found = {row.name: row.ppl.difference for row in report.summary.rows if not row.base}
    h1 = found["A-h1"]
    assert h1.verdict == Verdict.UNTESTABLE and "a verdict needs 5" in h1.why
    assert h1.p is None and h1.holm is None and h1.lower < h1.estimate < h1.upper
    assert (found["C-N2"].verdict == Verdict.UNTESTABLE) == (min(n_base, max(n, n_base)) < 5)
    assert "a verdict needs 5" in report.render("html")


def test_five_seeds_have_a_word(generator, monkeypatch):
    monkeypatch.setattr("lightning_tfm.report.stats.statistics.LEAST", 5)
    made = generator(["base", "A-h1", "A-h32"], [1, 2, 3, 4, 5])
    made.write_all({"A-h1": 0.5})
    rows = {row.name: row for row in make("made", made.root).summary.rows}
    assert rows["A-h1"].ppl.difference.p < 0.05 and rows["A-h1"].ppl.difference.verdict != Verdict.UNTESTABLE


def test_the_error_rates_of_the_words_are_those_of_the_simulation(generator):
    text = (Path(lightning_tfm.__file__).parents[1] / "benchmarks/results/words.txt").read_text()
    found: dict[Verdict, list[float]] = {}
    for study in text.split("\n\n"):
        head = re.search(r", (\d) seeds.*; (\d+) studies\)", study)
        if head is None or int(head[1]) < 5:
            continue
        for word in Verdict:
            line = re.search(rf"^  {word} +PPL +(\S+) a study, +(\S+).*BLEU +(\S+) a study, +(\S+)", study, re.M)
            for i in (0, 1) if line else ():
                said, false = line[2 * i + 1], line[2 * i + 2]
                if float(said) * int(head[2]) >= 20:
                    worst = found.setdefault(word, [0.0, 0.0])
                    worst[i] = max(worst[i], float(false))
    assert found.pop(Verdict.UNDECIDED) == [0.0, 0.0]
    assert {word: pytest.approx(list(rates), abs=0.06) for word, rates in FALSE.items()} == found

    made = generator(["base", "A-h32", "C-N2"], [1, 2, 3, 4, 5])
    made.write_all({"C-N2": 0.2})
    page = " ".join(make("made", made.root).render("html").split())
    ppl, bleu = FALSE[Verdict.REPRODUCED]
    assert f"false in at most {ppl} % (BLEU: {bleu} %) of its uses in simulated studies" in page


# --- the claims of section 6.2: one family, every row of a claim, both directions ---


def at(z, se=0.001, centre=0.0):
    """A difference `z` standard errors above `centre`, its error known well."""
    return Estimate(centre + z * se, se, 1000.0)


def word(says, **rows):
    (found,) = claim_verdicts([Claim("a claim", says)], [(rows, 1.0)])
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
    (found,) = claim_verdicts([claim], [(rows, 1.0)])
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
    found = claim_verdicts(family, [(rows, 1.0)])
    assert [f.p for f in found] == pytest.approx([3 * p["a"], 2 * p["b"], p["c"]])
    assert [f.verdict for f in found] == [Verdict.SUPPORTED, Verdict.UNDECIDED, Verdict.UNDECIDED]
    halved = claim_verdicts(family, [(rows, 0.5)])
    assert halved[0].p == pytest.approx(6 * p["a"])
    later = claim_verdicts(family, [(rows, 0.5), ({"a": at(0), "b": at(-5), "c": at(0)}, 0.5)])
    assert later[0].p == halved[0].p and later[0].verdict == Verdict.SUPPORTED  # a word once said stays
    assert later[1].verdict == Verdict.CONTRADICTED
    missing = claim_verdicts(family, [({"a": at(3)}, 1.0)])
    assert missing[0].p == found[0].p  # what could not be tested still counts in the family
    assert [f.verdict for f in missing[1:]] == [Verdict.UNTESTABLE] * 2 and missing[1].findings[0].p != missing[
        1
    ].findings[0].p


def test_the_family_is_of_claims_whose_rows_the_study_has():
    assert claims_of(list(all_rows())) == list(CLAIMS) and len(CLAIMS) == 6
    assert claims_of(["base", "A-h1", "B-dk16"]) == [CLAIMS[0]]
    assert claims_of(["base", "A-h1", "A-h32"], heads=4) == [CLAIMS[1]]  # "worse than eight" says nothing about four
    assert (
        claim_verdicts([], [({}, 1.0)]) == []
        and claim_verdicts(claims_of(["A-h1"]), [])[0].verdict == Verdict.UNTESTABLE
    )
    assert "C-N8" not in {name for claim in CLAIMS for name in claim.says}


@pytest.mark.parametrize(
    ("p", "shown"),
    [(0.0468, "0.0468"), (0.0512, "0.0512"), (0.0449, "0.04"), (0.0551, "0.06"), (0.0049, "0.0049"), (0.01, "0.01")],
)
def test_a_p_value_shows_on_which_side_of_a_twentieth_it_lies(p: float, shown: str) -> None:
    assert p_value(p) == shown
