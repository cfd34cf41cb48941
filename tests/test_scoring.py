"""Scores against hand-made and published arithmetic."""

import math

import pytest

from lightning_tfm.bleu import bleu
from lightning_tfm.corpus_metrics import Chrf
from lightning_tfm.errors import UserError
from lightning_tfm.inference.paper_bleu import paper_bleu, paper_tokens
from lightning_tfm.metrics import METRICS, Metrics
from lightning_tfm.parseval import F1


def test_bleu_carries_its_signature():
    score = bleu(["a b c d e"], ["a b c d e"])
    assert score.value == pytest.approx(100) and "tok:13a" in score.signature
    with pytest.raises(ValueError, match="1 hypotheses for 2"):
        bleu(["a"], ["a", "b"])


def test_chrf():
    def chrf(line: str, reference: str) -> float:
        made = Chrf([reference])
        assert made.score(made([line]).sum(0)) == pytest.approx(made.corpus([line]).value)
        return made.corpus([line]).value

    assert chrf("abc def", "abc def") == pytest.approx(100) and chrf("xyz", "abc") == 0
    # Popović 2015 by hand for "ab" against "ac", order up to 2 that exist: p1 = r1 = 1/2, p2 = r2 = 0 -> F = 25
    assert chrf("ab", "ac") == pytest.approx(25)


@pytest.mark.parametrize(
    ("joined", "label"), [("f1+lightning_tfm.parseval:F1", "F1"), ("tests.test_scoring:BLEU", "BLEU")]
)
def test_two_columns_of_one_label_are_refused(joined, label):
    with pytest.raises(UserError, match=f"'{joined}': 2 columns would be labelled '{label}'".replace("+", "[+]")):
        Metrics(*METRICS.values()).named(joined)


class BLEU(F1):
    """A user's, labelled as one that every score has."""


def test_tokens_as_the_authors_script_makes_them():
    assert paper_tokens(["Die EU-Länder, 2-3 Mal (z.B. A-B-C) – „so“."], "de") == [
        "Die EU ##AT##-##AT## Länder , 2 ##AT##-##AT## 3 Mal ( z.B. A ##AT##-##AT## B-C ) – „ so “ ."
    ]
    assert paper_tokens(["It's 5 & more - isn't it?"], "en") == ["It &apos;s 5 &amp; more - isn &apos;t it ?"]


def test_the_arithmetic_of_multi_bleu():
    """By hand. Hypotheses 7 + 4 tokens, references 8 + 4; matches 6+4 of 11, 4+3 of 9, 3+2 of 7, 2+1 of 5."""
    hyp = ["the cat sat on the red mat", "a dog ran away"]
    ref = ["the cat sat on the big red hat", "a dog ran away"]
    precisions = [(6 + 4) / 11, (4 + 3) / 9, (3 + 2) / 7, (2 + 1) / 5]
    expected = 100 * math.exp(1 - 12 / 11 + sum(math.log(p) for p in precisions) / 4)
    assert paper_bleu(hyp, ref, "en").value == pytest.approx(expected, abs=1e-9)
    assert paper_bleu(["a b c"], ["a b c"], "en").value == 0  # no 4-gram: multi-bleu does not smooth


def test_papineni_s_clipping():
    """Papineni et al. 2002: "the the the the the the the" has unigram precision 2/7."""
    import sacrebleu

    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    score = metric.corpus_score(["the the the the the the the"], [["the cat is on the mat"]])
    assert (score.counts[0], score.totals[0]) == (2, 7)


def test_splitting_hyphens_raises_the_score_where_compounds_are_half_right():
    hyp, ref = ["die neue EU-Regel gilt für alle heute"], ["die neue EU-Norm gilt für alle heute"]
    assert paper_bleu(hyp, ref, "de").value > bleu(hyp, ref).value
