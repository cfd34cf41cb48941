"""Words for a row."""

import math
from dataclasses import replace

import pytest

from lightning_tfm.report.marks import SHAPES, VERDICT_CLASS
from lightning_tfm.report.summary import Difference, Interval
from lightning_tfm.report.verdict import (
    BETTER,
    CLEAR,
    CONTRADICTED,
    NEITHER,
    REPRODUCED,
    SMALLER,
    UNCLEAR,
    UNDECIDED,
    UNTESTABLE,
    WORDS,
    WORSE,
    Evidence,
    counted,
    judge,
    phrase,
)
from lightning_tfm.study.rows import all_rows
from tests.records import summary_row

CLEARLY, BARELY = 0.05, 0.01
"""differences in log PPL that the paper could print"""


def evidence(estimate=1.0, p=0.01, **other):
    numbers = {"se": 0.3, "df": 8.0, "n": 3, "n_base": 3, "equivalent": 0.9, "half": 0.9, "needed": 9.0}
    return Evidence(estimate=estimate, p=p, **numbers | other)


@pytest.mark.parametrize(
    "found, paper, word",
    [
        (evidence(+1.0), +CLEARLY, REPRODUCED),
        (evidence(-1.0), -CLEARLY, REPRODUCED),
        (evidence(+1.0), -CLEARLY, CONTRADICTED),
        (evidence(-1.0), +CLEARLY, CONTRADICTED),
        (evidence(+1.0, p=0.05), +CLEARLY, UNDECIDED),
        (evidence(+1.0, p=0.05), -CLEARLY, UNDECIDED),
        (evidence(+1.0), +BARELY, UNCLEAR),
        (evidence(+1.0), -BARELY, UNCLEAR),
        (evidence(+1.0), 0.0, UNCLEAR),  # found, whatever the paper prints
        (evidence(+1.0, equivalent=0.001), 0.0, UNCLEAR),
        (evidence(+0.1, p=0.9, equivalent=0.04), 0.0, NEITHER),
        (evidence(+0.1, p=0.9, equivalent=0.04), -BARELY, NEITHER),
        (evidence(+0.1, p=0.9, equivalent=0.06), 0.0, UNDECIDED),
        (evidence(+0.1, p=0.9, equivalent=0.04), +CLEARLY, UNDECIDED),  # that is for unclear rows alone
        (evidence(+1.0), None, WORSE),
        (evidence(-1.0), None, BETTER),
        (evidence(-1.0, p=0.5, equivalent=0.01), None, UNDECIDED),
        (evidence(n=1, p=math.nan, untested="a single seed"), +CLEARLY, UNTESTABLE),
        (evidence(n_base=1, p=math.nan, untested="a single seed of base"), None, UNTESTABLE),
        (evidence(p=math.nan, untested="all seeds gave the same number"), +CLEARLY, UNDECIDED),
        (None, +CLEARLY, UNTESTABLE),
    ],
)
def test_word(found, paper, word):
    assert judge(found, paper, "ppl", False).word == word


def test_smaller_than_printed_is_said_at_full_size_alone():
    found = evidence(+0.001, p=0.6, half=0.009)
    assert judge(found, CLEARLY, "ppl", True).word == SMALLER
    assert judge(found, CLEARLY, "ppl", False).word == UNDECIDED
    assert judge(replace(found, half=0.011), CLEARLY, "ppl", True).word == UNDECIDED
    assert judge(replace(found, p=0.01), CLEARLY, "ppl", True).word == REPRODUCED
    assert judge(found, BARELY, "ppl", True).word == UNDECIDED


def test_better_is_lower_in_perplexity_and_higher_in_bleu():
    assert judge(evidence(+1.0), None, "bleu", False).word == BETTER
    assert judge(evidence(-1.0), None, "bleu", False).word == WORSE


def test_which_printed_differences_are_clear():
    rows = all_rows()
    base = rows["base"].paper
    others = [row for name, row in rows.items() if name != "base"]
    unclear = {r.name for r in others if abs(math.log(r.paper.ppl / base.ppl)) <= CLEAR["ppl"]}
    assert unclear == {"A-h16", "C-N8", "D-Pdrop0.2", "E-learned"}
    clear = {r.name for r in others if abs(r.paper.bleu - base.bleu) > CLEAR["bleu"]}
    assert clear == {"A-h1", "C-N2", "C-dmodel256", "D-Pdrop0.0"}


def test_the_number_beside_a_word():
    open_ = Difference(UNDECIDED, "", None)
    assert (
        phrase(Difference(REPRODUCED, "", 0.2, factor=Interval(0.512, 0.4, 0.6))) == "reproduced, × 0.51 [0.40, 0.60]"
    )
    assert phrase(replace(open_, p=0.3, needed=14.0)) == "undecided, about 14 seeds"
    assert phrase(replace(open_, p=0.3, needed=None)) == "undecided, > 500 seeds"
    assert phrase(open_) == "undecided"
    assert "about 9 seeds" in judge(evidence(p=0.5), CLEARLY, "ppl", False).why
    assert "more than 500" in judge(evidence(p=0.5, needed=math.inf), CLEARLY, "ppl", False).why


def test_words_are_counted_in_their_order():
    rows = [summary_row("base", base=True), *(summary_row("a", word) for word in (UNDECIDED, REPRODUCED, UNDECIDED))]
    assert list(counted(rows, "ppl").items()) == [(REPRODUCED, 1), (UNDECIDED, 2)]


def test_every_word_has_a_colour_and_an_unclear_one_takes_no_side():
    assert set(VERDICT_CLASS) == set(SHAPES) == {*WORDS, "supported"}
    assert len({SHAPES[word] for word in WORDS}) == len(WORDS)
    for word in (UNCLEAR, BETTER, WORSE, UNDECIDED, UNTESTABLE, SMALLER):
        assert VERDICT_CLASS[word] not in ("good", "bad")
