"""What a study says about a row of the paper's table, as one verdict word for each metric.

Rules. The paper printed single runs, so its differences are noisy too: a run of its size has a standard deviation over
seeds of sigma (`Metric.sigma`), and a printed difference is *clear* only beyond tau = 2 sqrt(2) sigma: 15 of its 19
rows in perplexity, 4 in BLEU. With P the printed difference to base, d ours with standard error se and df degrees of
freedom, *found* is a p below the level after the correction over the rows of the metric (report/stats/multiplicity.py);
nu = (se^2 + 2 sigma^2)^2 / (se^4 / df), m = t_nu sqrt(se^2 + 2 sigma^2) with the two-sided 95 % point of Student's t;
*compatible* is |d - P| <= m, *resolved* m <= |P| / 2. Without the second, noise makes rows compatible.

    reproduced                          |P| > tau, found, the same sign, compatible, resolved
    same direction                      |P| > tau, found, the same sign, otherwise; with d / P and its interval, or
                                        "size unclear" where it is compatible but not resolved
    contradicted                        |P| > tau, found, the opposite sign
    differs where the paper shows none  |P| <= tau, found, our interval outside P ± tau
    found here, paper unclear           |P| <= tau, found, otherwise
    smaller than printed                only at full size: |P| > tau, not found, a one-sided 99 % bound below P / 2
    no difference, as in the paper      |P| <= tau, not found, both one-sided tests at 5 % inside ± tau (TOST,
                                        Schuirmann 1987)
    undecided                           all else, with the number of seeds that would be needed
    not testable                        too few seeds of the row or of base
    diverged (k of n)                   k of its n seeds diverged (runs/divergence.py): no mean, no test
    not comparable                      a perplexity per other pieces than those of the row it is compared with
    better, worse                       found, of a row that the paper does not print
    practically equal                   such a row, not found, both one-sided tests at 5 % inside ± tau

Log PPL is the primary metric. BLEU is a noisy copy of it, and a miniature's has no common unit with the paper's: there
BLEU has no factor and only the words from "same direction" to "found here, paper unclear", and "undecided". Every word
is one over seeds (`SCOPE`): another corpus or scale may differ. The tests behind "smaller than printed" and the
two that speak of equality are not corrected for the number of rows. How often each word is true of simulated studies:
benchmarks/results/words.txt.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning_tfm.metrics import METRICS, PRINTED, Metric
from lightning_tfm.plural_words import interval, numeral
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.evidence import MOST, SMALLER_ALPHA, Evidence
from lightning_tfm.report.stats.statistics import ALPHA, Estimate
from lightning_tfm.report.wording.verdict_words import Verdict

if TYPE_CHECKING:  # a row imports rows files and YAML, which judging a file of scores does without
    from lightning_tfm.report.summary import Interval, SummaryRow

FEWER = "a verdict needs"
"""in the reason why a row is not testable, where seeds are missing"""
UNSCORED = "no scores"
SAME_SCORES = "all seeds gave the same number"
SCOPE = "over seeds: this corpus, this scale"
"""what every word speaks of"""
BIAS = (
    "Among significant rows, d / P is biased upwards: of 19 rows, half of which differ by 2 standard deviations, "
    "1.44-fold at 3 seeds, 1.17-fold at 5"
)


@dataclass(frozen=True)
class RowVerdict:
    word: Verdict
    why: str
    beside: str = ""
    """what is printed beside the word"""
    factor: "Interval | None" = None
    """d / P with the interval of d, where the two have a common unit; the printed number is taken as exact"""


def judge(
    evidence: Evidence | None,
    paper: float | None,
    metric: str | Metric,
    full_size: bool,
    to: str = "base",
) -> RowVerdict:
    """`paper`: the paper's difference to base (log PPL or BLEU), None where it prints no number; `to`: the row that
    differences are to."""
    of = METRICS[metric] if isinstance(metric, str) else metric
    if evidence is None:
        return RowVerdict(Verdict.UNTESTABLE, UNSCORED)
    if evidence.untested:
        few = min(evidence.n, evidence.n_base) < statistics.LEAST
        return RowVerdict(Verdict.UNTESTABLE if few else Verdict.UNDECIDED, evidence.untested)
    significant, e = evidence.p < ALPHA, evidence
    if paper is None:
        if significant:
            return RowVerdict(Verdict.BETTER if of.better(float(e.estimate)) else Verdict.WORSE, f"differs from {to}")
        if e.equivalent < ALPHA:
            return RowVerdict(Verdict.EQUAL, f"inside ± {_region(of)} of {to}", f"± {_region(of)}")
        return _undecided(e, "no difference found")
    if abs(paper) > of.clear:
        return _of_a_clear_one(e, paper, of, significant, full_size, to)
    if significant:
        outside = e.lower > paper + of.clear or e.upper < paper - of.clear
        why = f"differs from {to}; the paper's difference is within the noise of single runs"
        return RowVerdict(Verdict.DIFFERS if outside else Verdict.UNCLEAR, why)
    if e.equivalent < ALPHA and (full_size or of.same_unit):
        return RowVerdict(Verdict.NEITHER, "inside the noise of the paper's single runs, as is the paper's difference")
    return _undecided(e, "neither a difference nor its absence shown")


def _of_a_clear_one(e: Evidence, paper: float, of: Metric, significant: bool, full_size: bool, to: str) -> RowVerdict:
    from lightning_tfm.report.summary import Interval

    if not (full_size or of.same_unit):
        if not significant:
            return _undecided(e, "no difference found")
        word = Verdict.SAME_DIRECTION if (e.estimate > 0) == (paper > 0) else Verdict.CONTRADICTED
        return RowVerdict(word, f"differs from {to}; {of.label} here and in the paper have no common unit")
    lower, upper = sorted((e.lower / paper, e.upper / paper))
    factor = Interval(float(e.estimate) / paper, lower, upper)
    ratio = f"× {_factor(float(e.estimate) / paper)} {interval(lower, upper, _factor)}"
    if significant and (e.estimate > 0) != (paper > 0):
        return RowVerdict(
            Verdict.CONTRADICTED, f"differs from {to} in the direction opposite to the paper's", factor=factor
        )
    if significant:
        compatible, resolved = agrees(e, paper, of.sigma or 0.0)
        if compatible and resolved:
            return RowVerdict(
                Verdict.REPRODUCED, f"differs from {to} as in the paper, in direction and size", ratio, factor
            )
        beside = "size unclear" if compatible else ratio
        return RowVerdict(Verdict.SAME_DIRECTION, f"differs from {to} in the paper's direction", beside, factor)
    if full_size and e.half < SMALLER_ALPHA:
        return RowVerdict(Verdict.SMALLER, "no difference found, and less than half of the printed one", ratio, factor)
    return _undecided(e, "no difference found", factor)


def _factor(value: float) -> str:
    return numeral(value, "z.2f")


def agrees(e: Estimate, paper: float, sigma: float) -> tuple[bool, bool]:
    """(compatible, resolved): whether the sizes agree within the noise of both, and whether that noise lets one say."""
    squared = float(e.se) ** 2 + 2 * sigma**2
    nu = squared**2 / (float(e.se) ** 4 / float(e.df))
    m: float = statistics.t_isf(ALPHA / 2, nu).item() * math.sqrt(squared)
    return abs(float(e.estimate) - paper) <= m, m <= abs(paper) / 2


FALSE = {
    Verdict.REPRODUCED: (0.2, 0.0),
    Verdict.SAME_DIRECTION: (0.1, 0.4),
    Verdict.CONTRADICTED: (0.5, 4.2),
    Verdict.DIFFERS: (2.6, 28.9),
    Verdict.UNCLEAR: (6.0, 5.4),
    Verdict.SMALLER: (0.0, 0.0),
    Verdict.NEITHER: (0.0, 0.0),
    Verdict.BETTER: (0.6, 6.5),
    Verdict.WORSE: (0.3, 1.0),
    Verdict.EQUAL: (0.0, 0.0),
}
"""share of its uses in which a word was false, in %, in log PPL and in BLEU: the highest of the kinds of simulated
studies of five seeds or more in which it was said 20 times (benchmarks/results/words.txt)"""


def verdict_counts(rows: "Sequence[SummaryRow]", metric: str) -> dict[str, int]:
    """How often each verdict occurs in the report's rows."""
    differences = [row.metric(metric).difference for row in rows]
    verdicts = [difference.verdict for difference in differences if difference]
    return {word: verdicts.count(word) for word in Verdict if word in verdicts}


def factors_printed(rows: "Sequence[SummaryRow]") -> bool:
    """Whether d / P is shown beside a word that was found, so that `BIAS` belongs there too."""
    every = [d for row in rows for metric in PRINTED if (d := row.metric(metric).difference)]
    return any(d.verdict in (Verdict.REPRODUCED, Verdict.SAME_DIRECTION) and d.beside.startswith("×") for d in every)


def _region(metric: Metric) -> str:
    """tau in print."""
    return metric.size(metric.in_units(metric.clear))


def _undecided(e: Evidence, why: str, factor: "Interval | None" = None) -> RowVerdict:
    if math.isinf(e.needed) or math.isnan(e.needed):
        seeds, beside = f"more than {MOST} seeds", f"> {MOST} seeds"
    else:
        seeds = beside = f"about {e.needed:.0f} seeds"
    return RowVerdict(
        Verdict.UNDECIDED, f"{why}; {seeds} would be needed if the difference is as estimated", beside, factor
    )
