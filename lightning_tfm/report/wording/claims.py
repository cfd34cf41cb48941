"""The claims of the paper's section 6.2: the confirmatory family, fixed here before any study's results are seen.

Tested only in log PPL. A claim about several rows needs all of them, so its p is the largest of their one-sided ones
(intersection-union test, Berger 1982); it is contradicted by any one of them, so the p against it is the smallest times
their number. Both sides together are a two-sided test, p = 2 min(for, against), and Holm 1979 corrects these over the
claims whose rows the study has: the chance of any false verdict, in either direction, is at most the level.

"As good as base" is supported by a difference inside ± tau (`PPL.clear`), by two one-sided tests, and contradicted
by one that is outside, not by one that merely differs from zero.

The paper says "worse than the best setting" of one head; its best settings are 8 heads (base) and 16, equal to the last
digit of BLEU, and the claim is tested against base. "Bigger models are better" leaves out C-N8, where the paper itself
prints no clear difference (-0.8 % PPL, -0.3 BLEU).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lightning_tfm.metrics import PPL
from lightning_tfm.report.stats.multiplicity import holm
from lightning_tfm.report.stats.statistics import ALPHA, Estimate
from lightning_tfm.report.wording.verdict_words import Verdict

WORSE, BETTER, SAME = "worse than base", "better than base", "as good as base"
TAU = PPL.clear
NO_TEST = (np.array(np.nan), np.array(np.nan))


@dataclass(frozen=True)
class Claim:
    """A sentence of section 6.2 and what it says about rows: WORSE, BETTER or SAME."""

    text: str
    says: dict[str, str]
    heads: int | None = None
    """of base, where the sentence names them"""


CLAIMS = (
    Claim("One attention head is worse than eight, the best setting.", {"A-h1": WORSE}, heads=8),
    Claim("Quality also drops off with too many heads.", {"A-h32": WORSE}),
    Claim("Reducing the attention key size d_k hurts.", {"B-dk16": WORSE, "B-dk32": WORSE}),
    Claim(
        "Bigger models are better.",
        {
            "C-N2": WORSE,
            "C-N4": WORSE,
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
    """What one row says about a claim."""

    row: str
    says: str
    estimate: float | None = math.nan
    """difference in log PPL"""
    p: float | None = math.nan
    """one-sided, of what the claim says, only of this row; NaN: no test"""
    against: float | None = math.nan
    """of the opposite"""
    percent: float | None = math.nan
    """the difference in percent of PPL"""


@dataclass(frozen=True)
class ClaimSummary:
    """What was found about a claim."""

    text: str
    verdict: str
    p: float | None
    """Holm's over the claims, two-sided, the smallest of all looks; NaN: no test"""
    findings: list[Finding]


def claims_of(rows: Sequence[str], heads: int = 8) -> list[Claim]:
    """The family: claims all of whose rows the study has, over a base with this many `heads`."""
    return [claim for claim in CLAIMS if set(claim.says) <= set(rows) and claim.heads in (None, heads)]


def one_sided(says: str, d: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """(p for, p against) what is said of one row, from its difference in log PPL (lower is better)."""
    if says == SAME:
        return d.equivalence(TAU), np.minimum(2 * np.minimum(d.above(TAU), d.below(-TAU)), 1.0)
    return (d.above(0.0), d.below(0.0)) if says == WORSE else (d.below(0.0), d.above(0.0))


def both_sides(claim: Claim, rows: Mapping[str, Estimate]) -> tuple[np.ndarray, np.ndarray]:
    """(p for, p against) a claim."""
    sides = [one_sided(says, rows[name]) for name, says in claim.says.items()]
    every, any_ = (np.array(side) for side in zip(*sides, strict=True))
    return every.max(0), np.minimum(len(sides) * any_.min(0), 1.0)


def holm_of_claims(sides: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Holm's p of claims from (p for, p against) of each, [..., claims]; one that cannot be tested counts as p = 1."""
    two_sided = np.stack([np.minimum(2 * np.minimum(*pair), 1.0) for pair in sides], axis=-1)
    return holm(np.where(np.isnan(two_sided), 1.0, two_sided))


def claim_verdicts(
    family: Sequence[Claim], looks: Sequence[tuple[Mapping[str, Estimate], float]]
) -> list[ClaimSummary]:
    """Every claim against the evidence of all looks, (row -> difference in log PPL, share of the level) of each."""
    strongest: dict[str, tuple[float, float]] = {}
    for rows, share in looks if family else []:
        sides = [both_sides(c, rows) if set(c.says) <= set(rows) else NO_TEST for c in family]
        for claim, p, (for_it, against) in zip(family, holm_of_claims(sides) / share, sides, strict=True):
            evidence = (min(float(p), 1.0), float(for_it - against))
            if not np.isnan(evidence[1]):
                strongest[claim.text] = min(evidence, strongest.get(claim.text, evidence))
    last = looks[-1][0] if looks else {}
    return [_verdict(claim, strongest.get(claim.text), last) for claim in family]


def _verdict(claim: Claim, evidence: tuple[float, float] | None, rows: Mapping[str, Estimate]) -> ClaimSummary:
    findings = [_finding(row, says, rows.get(row)) for row, says in claim.says.items()]
    if evidence is None:
        return ClaimSummary(claim.text, Verdict.UNTESTABLE, np.nan, findings)
    p, lean = evidence
    word = Verdict.UNDECIDED if p >= ALPHA else Verdict.SUPPORTED if lean < 0 else Verdict.CONTRADICTED
    return ClaimSummary(claim.text, word, p, findings)


def _finding(row: str, says: str, d: Estimate | None) -> Finding:
    if d is None:
        return Finding(row, says)
    for_it, against = one_sided(says, d)
    estimate = float(d.estimate)
    return Finding(row, says, estimate, float(for_it), float(against), 100 * math.expm1(estimate))
