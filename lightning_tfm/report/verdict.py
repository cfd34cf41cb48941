"""What a study says about a row of the paper's table, as one verdict word for each metric.

Rules. The paper printed single runs, so its differences are noisy too: a run of its size has a standard deviation over
seeds of sigma (`Metric.sigma`), and a printed difference is *clear* only beyond tau = 2 sqrt(2) sigma: 15 of its 19
rows in perplexity, 4 in BLEU. With P the printed difference to base, d ours with standard error se and df degrees of
freedom, *found* is a p below the level after the correction over the rows of the metric (report/multiplicity.py);
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
from enum import StrEnum

from lightning_tfm.metrics import METRICS, PRINTED
from lightning_tfm.report import statistics
from lightning_tfm.report.power import MOST
from lightning_tfm.report.row import Difference, Interval, SummaryRow
from lightning_tfm.report.statistics import ALPHA, Estimate

DISC = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"


class Word(StrEnum):
    """A verdict: its text, and all that is needed to print it. In the order in which words are counted and listed."""

    clause: tuple[str, str]
    """of one row, of several"""
    means: str
    """the rule in a sentence"""
    style: str
    """its colour on the page, which nothing else has: good, bad, found, worse; open and untested are grey"""
    mark: str
    """a path around (0, 0), filled by the even-odd rule; no two are alike, as no word depends on its colour"""
    latex: str
    found: bool
    """whether it rests on a difference that was found"""

    def __new__(
        cls, text: str, clause: tuple[str, str], means: str, style: str, mark: str, latex: str, found: bool = False
    ) -> "Word":
        word = str.__new__(cls, text)
        word._value_ = text
        vars(word).update(clause=clause, means=means, style=style, mark=mark, latex=latex, found=found)
        return word

    REPRODUCED = (
        "reproduced",
        ("is reproduced", "are reproduced"),
        "clear in the paper, found here with the same sign, and compatible in size with an error of at most half of it",
        "good",
        DISC,
        r"$\bullet$",
        True,
    )
    SAME_DIRECTION = (
        "same direction",
        ("goes in the same direction", "go in the same direction"),
        "clear in the paper, found here with the same sign; beside it our difference over the printed one, or that the "
        "size is unclear",
        "found",
        "M-3.6-4.8 4.8 0-3.6 4.8z",
        r"$\triangleright$",
        True,
    )
    CONTRADICTED = (
        "contradicted",
        ("is contradicted", "are contradicted"),
        "clear in the paper, found here with the opposite sign",
        "bad",
        "M-4.8-3-3-4.8 0-1.8 3-4.8 4.8-3 1.8 0 4.8 3 3 4.8 0 1.8-3 4.8-4.8 3-1.8 0z",
        r"$\times$",
        True,
    )
    DIFFERS = (
        "differs where the paper shows none",
        ("differs where the paper shows none", "differ where the paper shows none"),
        "not clear in the paper, found here, and our interval is outside the noise around the printed difference",
        "bad",
        "M-4.5-4.5h9v9h-9zM-1.2-3h2.4v6h-2.4z",
        r"$\otimes$",
        True,
    )
    UNCLEAR = (
        "found here, paper unclear",
        ("is found here, the paper unclear", "are found here, the paper unclear"),
        "not clear in the paper, found here",
        "found",
        "M-4-4h8v8h-8z",
        r"$\diamond$",
        True,
    )
    SMALLER = (
        "smaller than printed",
        ("is smaller than printed", "are smaller than printed"),
        "only at full size: clear in the paper, not found, and below half of it by a one-sided test at 1 %",
        "open",
        DISC + "M0-3a3 3 0 0 1 0 6z",
        r"$<$",
    )
    NEITHER = (
        "no difference, as in the paper",
        ("shows no difference, as in the paper", "show no difference, as in the paper"),
        "not clear in the paper, and ours is inside the noise of its single runs by two one-sided tests at 5 %",
        "good",
        "M-4.5-3.4h9v2.4h-9zM-4.5 1h9v2.4h-9z",
        r"$\approx$",
    )
    BETTER = (
        "better",
        ("is better", "are better"),
        "found to differ, of a row without printed numbers",
        "found",
        "M0-5 5 3.8H-5z",
        r"$\uparrow$",
        True,
    )
    WORSE = (
        "worse",
        ("is worse", "are worse"),
        "found to differ, of a row without printed numbers",
        "worse",
        "M0 5 5-3.8H-5z",
        r"$\downarrow$",
        True,
    )
    EQUAL = (
        "practically equal",
        ("is practically equal", "are practically equal"),
        "of a row without printed numbers: inside the noise of full-size single runs by two one-sided tests at 5 %",
        "open",
        "M-3.4-4.5h2.4v9h-2.4zM1-4.5h2.4v9h-2.4z",
        "$=$",
    )
    SUPPORTED = (
        "supported",
        ("is supported", "are supported"),
        "of a claim: what it says of every one of its rows is found",
        "good",
        "M-4.8 0-1.8 3.6 4.8-3.4 3.4-4.8-1.8.2-3.4-1.4z",
        r"$\surd$",
        True,
    )
    UNDECIDED = (
        "undecided",
        ("is undecided", "are undecided"),
        "all else, with the number of seeds that would be needed if the difference is as estimated",
        "open",
        DISC + "M-2.7 0a2.7 2.7 0 1 0 5.4 0a2.7 2.7 0 1 0-5.4 0z",
        r"$\circ$",
    )
    UNTESTABLE = (
        "not testable",
        ("cannot be tested", "cannot be tested"),
        "too few seeds of the row or of what it is compared with",
        "untested",
        "M-4-1.1h8v2.2h-8z",
        "--",
    )
    DIVERGED = (
        "diverged",
        ("diverged in some of its seeds", "diverged in some of their seeds"),
        "so many of its seeds diverged: no mean of the others is formed, and nothing is tested",
        "untested",
        "M-1.3-5h2.6v6.2h-2.6zM-1.3 2.6h2.6v2.4h-2.6z",
        r"$\infty$",
    )
    INCOMPARABLE = (
        "not comparable",
        ("cannot be compared", "cannot be compared"),
        "a perplexity per other pieces than those of the row it would be compared with",
        "untested",
        "M-4.4 3.4 3.4-4.4 4.4-3.4-3.4 4.4z",
        r"$\ast$",
    )


WORDS = {word.value: word for word in Word}
REPRODUCED, SAME_DIRECTION, CONTRADICTED = Word.REPRODUCED, Word.SAME_DIRECTION, Word.CONTRADICTED
DIFFERS, UNCLEAR, SMALLER, NEITHER = Word.DIFFERS, Word.UNCLEAR, Word.SMALLER, Word.NEITHER
BETTER, WORSE, EQUAL, SUPPORTED = Word.BETTER, Word.WORSE, Word.EQUAL, Word.SUPPORTED
UNDECIDED, UNTESTABLE, DIVERGED, INCOMPARABLE = Word.UNDECIDED, Word.UNTESTABLE, Word.DIVERGED, Word.INCOMPARABLE
FEWER = "a verdict needs"
"""in the reason why a row is not testable, where seeds are missing"""
OPEN = (UNDECIDED, UNTESTABLE)
SCOPE = "over seeds: this corpus, this scale"
"""what every word speaks of"""
BIAS = (
    "Among the rows found, d / P is biased upwards: of 19 rows, half of which differ by 2 standard deviations, "
    "1.44-fold at 3 seeds, 1.17-fold at 5"
)

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
    word: Word
    why: str
    beside: str = ""
    """what is printed beside the word"""
    factor: Interval | None = None
    """d / P with the interval of d, where the two have a common unit; the printed number is taken as exact"""


def clear(paper: float, metric: str) -> bool:
    """Whether a printed difference is more than the noise of single runs."""
    return abs(paper) > METRICS[metric].clear


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
        few = min(evidence.n, evidence.n_base) < statistics.LEAST
        return Verdict(UNTESTABLE if few else UNDECIDED, evidence.untested)
    found, e = evidence.p < alpha, evidence
    if paper is None:
        if found:
            return Verdict(BETTER if METRICS[metric].better(float(e.estimate)) else WORSE, f"differs from {to}")
        if e.equivalent < alpha:
            return Verdict(EQUAL, f"inside ± {_region(metric)} of {to}", f"± {_region(metric)}")
        return _undecided(e, "no difference found")
    if clear(paper, metric):
        return _of_a_clear_one(e, paper, metric, found, full_size, to)
    if found:
        tau = METRICS[metric].clear
        if e.lower > paper + tau or e.upper < paper - tau:
            return Verdict(DIFFERS, f"differs from {to}; the paper's difference is within the noise of single runs")
        return Verdict(UNCLEAR, f"differs from {to}; the paper's difference is within the noise of single runs")
    if e.equivalent < alpha and (full_size or METRICS[metric].same_unit):
        return Verdict(NEITHER, "inside the noise of the paper's single runs, as is the paper's difference")
    return _undecided(e, "neither a difference nor its absence shown")


def _of_a_clear_one(e: Evidence, paper: float, metric: str, found: bool, full_size: bool, to: str) -> Verdict:
    if not (full_size or METRICS[metric].same_unit):
        if not found:
            return _undecided(e, "no difference found")
        word = SAME_DIRECTION if (e.estimate > 0) == (paper > 0) else CONTRADICTED
        return Verdict(word, f"differs from {to}; {METRICS[metric].label} here and in the paper have no common unit")
    lower, upper = sorted((e.lower / paper, e.upper / paper))
    factor = Interval(float(e.estimate) / paper, lower, upper)
    told = f"× {factor.estimate:z.2f} [{lower:z.2f}, {upper:z.2f}]"
    if found and (e.estimate > 0) != (paper > 0):
        return Verdict(CONTRADICTED, f"differs from {to} in the direction opposite to the paper's", factor=factor)
    if found:
        compatible, resolved = agrees(e, paper, METRICS[metric].sigma or 0.0)
        if compatible and resolved:
            return Verdict(REPRODUCED, f"differs from {to} as in the paper, in direction and size", told, factor)
        beside = "size unclear" if compatible else told
        return Verdict(SAME_DIRECTION, f"differs from {to} in the paper's direction", beside, factor)
    if full_size and e.half < SMALLER_ALPHA:
        return Verdict(SMALLER, "no difference found, and less than half of the printed one", told, factor)
    return _undecided(e, "no difference found", factor)


def agrees(e: Estimate, paper: float, sigma: float) -> tuple[bool, bool]:
    """(compatible, resolved): whether the sizes agree within the noise of both, and whether that noise lets one say."""
    squared = float(e.se) ** 2 + 2 * sigma**2
    nu = squared**2 / (float(e.se) ** 4 / float(e.df))
    m: float = statistics.t_isf(ALPHA / 2, nu).item() * math.sqrt(squared)
    return abs(float(e.estimate) - paper) <= m, m <= abs(paper) / 2


FALSE = {
    REPRODUCED: (0.2, 0.0),
    SAME_DIRECTION: (0.1, 0.4),
    CONTRADICTED: (0.5, 4.2),
    DIFFERS: (2.6, 28.9),
    UNCLEAR: (6.0, 5.4),
    SMALLER: (0.0, 0.0),
    NEITHER: (0.0, 0.0),
    BETTER: (0.6, 6.5),
    WORSE: (0.3, 1.0),
    EQUAL: (0.0, 0.0),
}
"""share of its uses in which a word was false, in %, in log PPL and in BLEU: the highest of the kinds of simulated
studies of five seeds or more in which it was said 20 times (benchmarks/results/words.txt)"""


def phrase(difference: Difference) -> str:
    """A word with what belongs beside it."""
    word, beside = difference.verdict, difference.beside
    return f"{word} ({beside})" if word == DIVERGED else ", ".join(filter(None, [word, beside]))


def counted(rows: Sequence[SummaryRow], metric: str) -> dict[str, int]:
    """How often each verdict occurs in the report's rows."""
    differences = [row.metric(metric).difference for row in rows]
    found = [difference.verdict for difference in differences if difference]
    return {word: found.count(word) for word in Word if word in found}


def factors_printed(rows: Sequence[SummaryRow]) -> bool:
    """Whether d / P is shown beside a word that was found, so that `BIAS` belongs there too."""
    found = [d for row in rows for metric in PRINTED if (d := row.metric(metric).difference)]
    return any(d.verdict in (REPRODUCED, SAME_DIRECTION) and d.beside.startswith("×") for d in found)


def _region(metric: str) -> str:
    """tau in print."""
    return METRICS[metric].size(METRICS[metric].shown(METRICS[metric].clear))


def _undecided(e: Evidence, why: str, factor: Interval | None = None) -> Verdict:
    if math.isinf(e.needed) or math.isnan(e.needed):
        said, beside = f"more than {MOST} seeds", f"> {MOST} seeds"
    else:
        said = beside = f"about {e.needed:.0f} seeds"
    return Verdict(UNDECIDED, f"{why}; {said} would be needed if the difference is as estimated", beside, factor)
