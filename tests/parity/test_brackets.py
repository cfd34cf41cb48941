"""Labelled brackets against PYEVALB on random trees, and EVALB's rules one by one, from its source."""

import json
from pathlib import Path

import pytest

from lightning_tfm.corpus_metrics import Exact
from lightning_tfm.errors import UserError
from lightning_tfm.parseval import F1, IllFormed, Precision, Recall, parse_tree

PYEVALB = json.loads(Path(__file__).with_name("brackets.json").read_text())


def counted(reference: str, hypothesis: str) -> list[int]:
    (found,) = F1([reference], "").counts([hypothesis])
    return found


def test_random_trees_have_the_brackets_that_pyevalb_counts():
    assert len(PYEVALB) == 60 and sum(found is None for *_, found in PYEVALB) > 1
    for reference, hypothesis, found in PYEVALB:
        matched, gold, made, ill_formed, one = counted(reference, hypothesis)
        assert one == 1 and ill_formed == (found is None)
        assert found is None or [matched, gold, made] == found, (reference, hypothesis)


def test_scores_are_pyevalb_s_where_all_lines_are_comparable():
    known = [row for row in PYEVALB if row[2] is not None]
    references, hypotheses, found = zip(*known, strict=True)
    matched, gold, made = (sum(column) for column in zip(*found, strict=True))
    expected = {Precision: matched / made, Recall: matched / gold, F1: 2 * matched / (gold + made), IllFormed: 0}
    for metric, value in expected.items():
        assert metric(references, "").corpus(hypotheses).value == pytest.approx(100 * value), metric


RULES = [line for line in Path(__file__).with_name("evalb.txt").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_evalb(rule):
    reference, hypothesis, found = rule.split(" | ")
    assert counted(reference, hypothesis) == [*map(int, found.split()), 1]


def test_ill_formed_lines_are_missed_and_counted():
    references, hypotheses = ["S NP XX /NP XX /S"] * 4, ["S NP XX /NP XX /S"] * 3 + ["S NP XX"]
    scores = {
        metric: metric(references, "").corpus(hypotheses).value for metric in (Precision, Recall, IllFormed, Exact)
    }
    assert scores == {Precision: 100, Recall: 75, IllFormed: 25, Exact: 75}
    assert F1(references, "").corpus(["", "", "", ""]).value == 0


def test_references_that_are_no_trees_are_refused():
    for line in ("Do kitpris dordaukdot nit.", "", "S XX"):
        with pytest.raises(UserError, match="line 2 of the references is not one"):
            F1(["S XX /S", line], "")
    assert parse_tree("S -LRB- XX /-LRB- /S").brackets == {("-LRB-", 0, 1): 1, ("S", 0, 1): 1}
