"""What a study says about the paper: a verdict for every row and metric, and the claims of its section 6.2.

The paper gives one run of each row and no variance, so a verdict compares signs: ours as tested, its as printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lightning_tfm.report.statistics import ALPHA

REPRODUCED, CONTRADICTED, NOTHING = "reproduced", "contradicted", "no difference found"
EQUIVALENT, UNTESTABLE, DIFFERENT = "equivalent", "not testable", "difference found"

SD_LOG_PPL, SD_BLEU = 0.005, 0.3
"""standard deviation over seeds of one full-size run: some 0.3 BLEU between checkpoints near the end (NVIDIA's notes on
its Transformer; published reproductions spread alike), 0.5 % of perplexity"""
CLEAR = {"ppl": 2 * 2**0.5 * SD_LOG_PPL, "bleu": 2 * 2**0.5 * SD_BLEU}
"""tau: a difference of two single runs, as the paper prints them, is clear only beyond two of its standard deviations
(1.4 % of perplexity, 0.85 BLEU)"""

MARGIN_PPL = 0.01
"""relative difference in perplexity up to which two rows count as equivalent"""
MARGIN_BLEU = 0.3


@dataclass(frozen=True)
class Evidence:
    """One row's difference to base in one metric, in the metric's own direction: log PPL (lower is better) or BLEU."""

    n: int
    estimate: float
    lower: float
    upper: float
    """the marginal 95 % interval (narrowed level after sequential looks)"""
    p: float
    """Holm-adjusted over the study; NaN where there was no test"""
    smallest: float
    """true difference that would have been found with 80 % probability"""


@dataclass(frozen=True)
class Verdict:
    word: str
    why: str


def margin(metric: str, ppl: float = MARGIN_PPL, bleu: float = MARGIN_BLEU) -> float:
    """The equivalence margin in the units of `Evidence`."""
    return float(np.log1p(ppl)) if metric == "ppl" else bleu


def judge(evidence: Evidence | None, paper: float | None, margin: float, alpha: float = ALPHA) -> Verdict:
    """`paper`: the paper's difference to base (log PPL or BLEU), None where it prints no number."""
    if evidence is None or evidence.n < 2 or np.isnan(evidence.p):
        n = 0 if evidence is None else evidence.n
        return Verdict(UNTESTABLE, "a single seed" if n == 1 else "no scores" if n == 0 else "no spread to test with")
    found = evidence.p < alpha
    if paper is None:
        word = DIFFERENT if found else NOTHING
        return Verdict(word, "the paper prints no number for this row")
    if paper == 0:
        if -margin < evidence.lower and evidence.upper < margin:
            return Verdict(EQUIVALENT, "the paper prints no difference, and the interval lies inside the margin")
        return Verdict(UNTESTABLE, "the paper prints no difference, and the interval is wider than the margin")
    if not found:
        return Verdict(NOTHING, "no difference to base after Holm's correction")
    if (evidence.estimate > 0) == (paper > 0):
        return Verdict(REPRODUCED, "differs from base in the paper's direction")
    return Verdict(CONTRADICTED, "differs from base in the direction opposite to the paper's")


# --- section 6.2 ---

WORSE, BETTER, SAME = "worse than base", "better than base", "as good as base"
SUPPORTED, PARTLY, REFUTED, MIXED, OPEN = "supported", "supported in part", "contradicted", "mixed", "open"


@dataclass(frozen=True)
class Claim:
    """A sentence of section 6.2 and what it says of rows."""

    text: str
    says: dict[str, str]


CLAIMS = (
    Claim("One attention head is worse than the best setting.", {"A-h1": WORSE}),
    Claim("Quality also drops off with too many heads.", {"A-h32": WORSE}),
    Claim("Reducing the attention key size d_k hurts.", {"B-dk16": WORSE, "B-dk32": WORSE}),
    Claim(
        "Bigger models are better.",
        {
            "C-N2": WORSE,
            "C-N4": WORSE,
            "C-N8": BETTER,
            "C-dmodel256": WORSE,
            "C-dmodel1024": BETTER,
            "C-dff1024": WORSE,
            "C-dff4096": BETTER,
        },
    ),
    Claim("Dropout is very helpful in avoiding over-fitting.", {"D-Pdrop0.0": WORSE}),
    Claim("Learned positions give nearly identical results.", {"E-learned": SAME}),
)


@dataclass(frozen=True)
class Finding:
    """What one row says about a claim in one metric."""

    row: str
    metric: str
    says: str
    holds: bool | None
    """None: nothing found either way"""


@dataclass(frozen=True)
class ClaimVerdict:
    claim: Claim
    word: str
    findings: list[Finding]


def weigh(
    claim: Claim, evidence: Mapping[tuple[str, str], Evidence], margins: Mapping[str, float], alpha: float = ALPHA
) -> ClaimVerdict:
    """A claim against all evidence, (row, metric) -> Evidence.

    A row is for the claim if it is in one metric and against it in none. All rows for it: supported; some for and none
    against: in part; against only: contradicted; none either way: open; no row with two seeds: not testable.
    """
    findings = [
        Finding(row, metric, says, _holds(evidence.get((row, metric)), metric, says, margins[metric], alpha))
        for row, says in claim.says.items()
        for metric in margins
    ]
    tested = [e for row in claim.says for metric in margins if (e := evidence.get((row, metric))) and e.n > 1]
    if not tested:
        return ClaimVerdict(claim, UNTESTABLE, findings)
    against = any(f.holds is False for f in findings)
    for_it = [row for row in claim.says if any(f.holds for f in findings if f.row == row)]
    if against:
        word = MIXED if for_it else REFUTED
    elif len(for_it) == len(claim.says):
        word = SUPPORTED
    else:
        word = PARTLY if for_it else OPEN
    return ClaimVerdict(claim, word, findings)


def _holds(evidence: Evidence | None, metric: str, says: str, margin: float, alpha: float) -> bool | None:
    if evidence is None or evidence.n < 2 or np.isnan(evidence.p):
        return None
    if says == SAME:
        if -margin < evidence.lower and evidence.upper < margin:
            return True
        return False if evidence.p < alpha else None
    if not evidence.p < alpha:
        return None
    worse = (evidence.estimate > 0) == (metric == "ppl")
    return worse == (says == WORSE)
