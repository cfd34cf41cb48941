"""What a study says about a row of the paper's table, as one verdict word for each metric.

The paper printed single runs, so its differences are noisy too. `CLEAR` is the difference (tau) from which a printed
one is taken for more than that: 15 of its 19 rows in perplexity, 4 in BLEU. With P the printed difference to base, d
ours, "found" a p below the level after the correction over the rows of the metric (report/multiplicity.py):

reproduced                    |P| > tau, found, the same sign; the factor d / P stands beside it
contradicted                  |P| > tau, found, the opposite sign
found here, paper unclear     |P| <= tau, found
smaller than printed          |P| > tau, not found, and d below P / 2 in P's direction by a one-sided test at 1 %; only
                              at the paper's own size and steps: smaller models may well have smaller effects
no difference in either       |P| <= tau, not found, and d inside ± tau by two one-sided tests at 5 % (TOST, Schuirmann
                              1987)
undecided                     all else; with the number of seeds that would decide it if the difference is as estimated
not testable                  the row or base has fewer than two seeds
better, worse, undecided      where the paper prints no such row
not comparable                a perplexity per other pieces than those of the row that it would be compared with

log PPL is the primary metric. BLEU is a noisy copy of it and has words of its own.

The tests behind "smaller than printed" and "no difference in either" are not corrected for the number of rows, and what
they say of the paper is as noisy as its single run. How often each word is true of simulated studies:
benchmarks/results/verdicts.txt.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightning_tfm.report.power import MOST
from lightning_tfm.report.statistics import ALPHA, Estimate
from lightning_tfm.report.summary import Difference, SummaryRow

REPRODUCED, CONTRADICTED, UNCLEAR = "reproduced", "contradicted", "found here, paper unclear"
SMALLER, NEITHER = "smaller than printed", "no difference in either"
BETTER, WORSE = "better", "worse"
UNDECIDED, UNTESTABLE = "undecided", "not testable"
ONE_SEED = "a single seed"
"""how the reason begins why a row is not testable, where seeds are missing"""
INCOMPARABLE = "not comparable"
WORDS = (REPRODUCED, CONTRADICTED, UNCLEAR, SMALLER, NEITHER, BETTER, WORSE, UNDECIDED, UNTESTABLE, INCOMPARABLE)
OPEN = (UNDECIDED, UNTESTABLE)

SD_LOG_PPL, SD_BLEU = 0.005, 0.3
"""standard deviation over seeds of one full-size run: some 0.3 BLEU between checkpoints near the end (NVIDIA's notes on
its Transformer; published reproductions spread alike), 0.5 % of perplexity"""
CLEAR = {"ppl": 2 * 2**0.5 * SD_LOG_PPL, "bleu": 2 * 2**0.5 * SD_BLEU}
"""tau: a difference of two single runs, as the paper prints them, is clear only beyond two of its standard deviations
(1.4 % of perplexity, 0.85 BLEU)"""
SMALLER_ALPHA = 0.01


@dataclass(frozen=True)
class Evidence(Estimate):
    """One row's difference to base in one metric, in the metric's own direction: log PPL (lower is better) or BLEU.

    All p are divided by the look's share of the level where the results were looked at more than once; NaN: no test.
    """

    n: int
    n_base: int
    lower: float = math.nan
    upper: float = math.nan
    """the marginal 95 % interval; after looks at Summary.interval_level, which is wider"""
    p: float = math.nan
    """adjusted over the rows of this metric by Benjamini and Hochberg: decides"""
    holm: float = math.nan
    """adjusted over the same rows by Holm"""
    equivalent: float = math.nan
    """of a difference inside ± tau"""
    half: float = math.nan
    """of a difference below half the paper's, in the paper's direction"""
    smallest: float = math.nan
    """true difference that would have been found with a probability of about 70 %"""
    needed: float = math.nan
    """seeds of it and of base that would decide it if the difference is as estimated"""
    prospect: float = math.nan
    """chance that the last look will decide it, predicted from this one"""
    untested: str = ""
    """why there was no test"""


@dataclass(frozen=True)
class Verdict:
    word: str
    why: str


def clear(paper: float, metric: str) -> bool:
    """Whether a printed difference is more than the noise of single runs."""
    return abs(paper) > CLEAR[metric]


def judge(
    evidence: Evidence | None,
    paper: float | None,
    metric: str,
    full_size: bool,
    alpha: float = ALPHA,
    to: str = "base",
) -> Verdict:
    """`paper`: the paper's difference to base (log PPL or BLEU), None where it prints no number; `to`: the row that
    differences are to."""
    if evidence is None:
        return Verdict(UNTESTABLE, "no scores")
    if evidence.untested:
        return Verdict(UNTESTABLE if min(evidence.n, evidence.n_base) < 2 else UNDECIDED, evidence.untested)
    found, e = evidence.p < alpha, evidence
    if paper is None:
        if found:
            return Verdict(BETTER if (e.estimate < 0) == (metric != "bleu") else WORSE, f"differs from {to}")
        return Verdict(UNDECIDED, f"no difference found; {_seeds(e)}")
    if clear(paper, metric):
        if found and (e.estimate > 0) == (paper > 0):
            return Verdict(REPRODUCED, f"differs from {to} in the paper's direction")
        if found:
            return Verdict(CONTRADICTED, f"differs from {to} in the direction opposite to the paper's")
        if full_size and e.half < SMALLER_ALPHA:
            return Verdict(SMALLER, "no difference found, and less than half of the printed one")
        return Verdict(UNDECIDED, f"no difference found; {_seeds(e)}")
    if found:
        return Verdict(UNCLEAR, f"differs from {to}; the paper's difference is within the noise of single runs")
    if e.equivalent < alpha:
        return Verdict(NEITHER, "inside the noise of the paper's single runs, as is the paper's difference")
    return Verdict(UNDECIDED, f"neither a difference nor its absence shown; {_seeds(e)}")


def phrase(difference: Difference) -> str:
    """A word with the number that belongs to it."""
    word, factor = difference.verdict, difference.factor
    if word in (REPRODUCED, SMALLER) and factor is not None:
        return f"{word}, × {factor.estimate:.2f} [{factor.lower:.2f}, {factor.upper:.2f}]"
    if word == UNDECIDED and difference.p is not None:
        n = difference.needed
        return f"{word}, " + (f"> {MOST} seeds" if n is None else f"about {n:.0f} seeds")
    return word


def counted(rows: Sequence[SummaryRow], metric: str) -> dict[str, int]:
    """How often each verdict occurs in the report's rows."""
    differences = [row.metric(metric).difference for row in rows]
    found = [difference.verdict for difference in differences if difference]
    return {word: found.count(word) for word in WORDS if word in found}


def _seeds(evidence: Evidence) -> str:
    if math.isinf(evidence.needed) or math.isnan(evidence.needed):
        return f"more than {MOST} seeds would be needed if the difference is as estimated"
    return f"about {evidence.needed:.0f} seeds would be needed if the difference is as estimated"
