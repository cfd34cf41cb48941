"""Scores from sufficient statistics are sacreBLEU's own, and so are the plain paired bootstrap's p-values."""

import numpy as np
import pytest
import sacrebleu
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from lightning_tfm.corpus_metrics import Bleu, Chrf
from lightning_tfm.report.stats.resampling import ratio, resampled, resamples

LINES = st.lists(st.text("ab c.,-&'\u00fc1\u3000\t", max_size=20), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(LINES, LINES, st.sampled_from(["13a", "intl", "char", "none"]))
def test_counts_and_scores_are_sacrebleus(hypotheses, references, tokenize):
    n = min(len(hypotheses), len(references))
    hypotheses, references = hypotheses[:n], [r if r.strip() else "a b" for r in references[:n]]
    metric = sacrebleu.BLEU(tokenize=tokenize, force=True)
    theirs = np.array(metric._extract_corpus_statistics(hypotheses, [references]))
    ours = Bleu(references, tokenize)(hypotheses)
    np.testing.assert_array_equal(ours, theirs)
    score = metric.corpus_score(hypotheses, [references]).score
    assert Bleu.score(ours.sum(0)) == pytest.approx(score, abs=1e-9)
    other = Chrf(references)
    assert Chrf.score(other(hypotheses).sum(0)) == pytest.approx(other.corpus(hypotheses).value, abs=1e-9)
    assert other.corpus(hypotheses).value == sacrebleu.CHRF().corpus_score(hypotheses, [references]).score


def corpus(S=120, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array(list("abcdefghij"))
    references = [" ".join(rng.choice(words, rng.integers(4, 15))) for _ in range(S)]

    def translate(wrong):
        return [" ".join(w if rng.random() > wrong else "x" for w in line.split()) for line in references]

    return references, translate


@pytest.mark.parametrize("wrong", [0.2, 0.22, 0.3])
def test_paired_bootstrap_has_the_p_values_of_sacrebleus_paired_test(wrong):
    references, translate = corpus()
    a, b = translate(0.2), translate(wrong)
    metric = sacrebleu.BLEU(references=[references], force=True)
    _, results = PairedTest([("a", a), ("b", b)], {"BLEU": metric}, None, test_type="bs", n_samples=2000)()
    theirs = results["BLEU"][1].p_value
    counts = Bleu(references, "13a")
    both = [counts(a), counts(b)]
    distance = np.abs(np.diff(resampled(both, Bleu.score), axis=0)[0])
    apart = abs(np.diff([Bleu.score(one.sum(0)) for one in both])[0])
    ours = ((distance - distance.mean() > apart).sum() + 1) / (len(distance) + 1)  # its formula (Koehn 2004)
    error = np.sqrt(2 * max(theirs * (1 - theirs), 1e-3) / 2000)  # both sides are Monte-Carlo
    assert abs(ours - theirs) < 4 * error


def test_resamples_are_fixed_and_whole():
    counts = resamples(50)
    assert (counts.sum(1) == 50).all()
    assert counts[0, :8].tolist() == resamples(50)[0, :8].tolist()


def test_resampled_is_what_a_loop_over_resamples_gives():
    rng = np.random.default_rng(1)
    tables = [np.stack([rng.gamma(2, 3, 30), rng.integers(1, 9, 30)], 1) for _ in range(35)]
    found = resampled(tables, ratio)
    draws = resamples(30)
    for r, b in [(0, 0), (34, 7), (20, 1999)]:
        sums = sum(draws[b, s] * tables[r][s] for s in range(30))
        assert found[r, b] == pytest.approx(sums[0] / sums[1])


def test_a_text_of_another_length_is_refused():
    with pytest.raises(ValueError, match="1 translations of 2 lines"):
        Bleu(["a", "b"], "13a")(["a"])
