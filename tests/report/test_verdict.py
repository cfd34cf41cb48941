"""Words for evidence."""

import math

import pytest

from lightning_tfm.report.verdict import (
    BETTER,
    CLAIMS,
    CONTRADICTED,
    DIFFERENT,
    EQUIVALENT,
    MIXED,
    NOTHING,
    OPEN,
    PARTLY,
    REFUTED,
    REPRODUCED,
    SAME,
    SUPPORTED,
    UNTESTABLE,
    WORSE,
    Claim,
    Evidence,
    judge,
    margin,
    weigh,
)
from lightning_tfm.study.rows import all_rows


def evidence(estimate=1.0, p=0.01, half=0.5, n=3):
    return Evidence(n, estimate, estimate - half, estimate + half, p, 0.8)


@pytest.mark.parametrize(
    "found, paper, word",
    [
        (evidence(+1.0), +0.4, REPRODUCED),
        (evidence(-1.0), -0.4, REPRODUCED),
        (evidence(+1.0), -0.4, CONTRADICTED),
        (evidence(+1.0, p=0.05), +0.4, NOTHING),
        (evidence(+1.0, p=0.2, half=0.1), +0.4, NOTHING),  # the interval alone decides nothing
        (evidence(+0.1, p=0.9, half=0.1), 0.0, EQUIVALENT),
        (evidence(+0.1, p=0.9, half=0.3), 0.0, UNTESTABLE),
        (evidence(+1.0), None, DIFFERENT),
        (evidence(+1.0, p=0.5), None, NOTHING),
        (evidence(n=1), +0.4, UNTESTABLE),
        (evidence(p=math.nan), +0.4, UNTESTABLE),
        (None, +0.4, UNTESTABLE),
    ],
)
def test_verdict(found, paper, word):
    assert judge(found, paper, 0.3).word == word


def test_margins():
    assert margin("ppl") == pytest.approx(math.log(1.01))
    assert margin("bleu") == 0.3


MARGINS = {"ppl": 0.01, "bleu": 0.3}


def weighed(says, **found):
    table = {(row, metric): e for row, by in found.items() for metric, e in by.items()}
    return weigh(Claim("a claim", says), table, MARGINS).word


def test_claims_by_rows():
    worse = {"ppl": evidence(+1.0), "bleu": evidence(-1.0)}
    better = {"ppl": evidence(-1.0), "bleu": evidence(+1.0)}
    nothing = {"ppl": evidence(p=0.5), "bleu": evidence(p=0.5)}
    both = {"a": WORSE, "b": WORSE}
    assert weighed(both, a=worse, b=worse) == SUPPORTED
    assert weighed(both, a=worse, b=nothing) == PARTLY
    assert weighed(both, a=worse, b=better) == MIXED
    assert weighed(both, a=better, b=nothing) == REFUTED
    assert weighed(both, a=nothing, b=nothing) == OPEN
    assert weighed(both, a={"ppl": evidence(n=1)}) == UNTESTABLE
    assert weighed({"a": BETTER}, a={"ppl": evidence(-1.0), "bleu": evidence(p=0.5)}) == SUPPORTED
    assert weighed({"a": SAME}, a={"ppl": evidence(0.0, p=1, half=0.005), "bleu": evidence(p=0.5)}) == SUPPORTED
    assert weighed({"a": SAME}, a=worse) == REFUTED


def test_claims_name_rows_of_the_table():
    rows = all_rows()
    assert all(name in rows for claim in CLAIMS for name in claim.says)
