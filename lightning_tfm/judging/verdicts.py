"""Runs -> verdicts. The rule, and how often it is wrong: docs/judge-method.md."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.judging import items as of_items
from lightning_tfm.judging.scores import Aim, Scores
from lightning_tfm.plural_words import plural
from lightning_tfm.report.stats import base_alone, evidence, statistics
from lightning_tfm.report.stats.evidence import Evidence
from lightning_tfm.report.stats.power import MOST
from lightning_tfm.report.stats.statistics import ALPHA, LEAST, Differences, SentenceNoise
from lightning_tfm.report.wording.word import BETTER, DIVERGED, EQUAL, UNDECIDED, UNTESTABLE, WORSE, Word

BASES = ("base", "baseline")
WITH_ITEMS = (
    "intervals and verdicts of {} are over seeds and over test sets like this one (paired bootstrap over its items)"
)
SEEDS_ONLY = "verdicts are over seeds, for this one test set; --items says what another test set would do"


@dataclass(frozen=True)
class Judged:
    """A row in one metric, as it is tested (`log`: of logarithms)."""

    row: str
    metric: str
    n: int
    """finished runs that did not diverge"""
    mean: float
    """of the metric; where logarithms are tested the geometric one"""
    sd: float
    diverged: int
    verdict: str
    """a word.Word; empty for base"""
    why: str
    evidence: Evidence | None
    """its difference to base; None for base, and where there is no estimate"""
    seeds: Mapping[str, float]
    missing: int = 0
    """seeds that a verdict needs, and the row or base lacks"""
    published: float | None = None
    """other people's number"""
    beside: str = ""
    """what is printed beside the verdict"""


@dataclass(frozen=True)
class Judgement:
    """Verdicts by metric, the first of which decides; base first."""

    source: str
    base: str
    target: float | None
    aims: Sequence[Aim]
    rows: Mapping[str, Sequence[Judged]]
    """metric -> its rows"""
    notes: Sequence[str]
    alone: str
    """why base may be what stands apart; empty where nothing says so"""
    with_items: bool = False
    """whether the noise of the test set is in its intervals"""

    def of(self, row: str) -> Judged:
        """In the metric that decides. Raises UserError."""
        found = {one.row: one for one in self.rows[self.aims[0].name]}
        if row not in found:
            raise UserError(f"{self.source}: no row '{row}': {nearest(row, found)}")
        return found[row]


def base_of(scores: Scores, named: str | None) -> str:
    """The row that all are compared with. Raises UserError."""
    if named is not None:
        if named not in scores.runs:
            raise UserError(f"--base {named}: no such row: {nearest(named, scores.runs)}")
        return named
    found = [row for row in scores.runs if row in BASES]
    if len(found) != 1:
        there = " and ".join(f"'{row}'" for row in found) or "no row 'base' or 'baseline'"
        raise UserError(f"{scores.source}: {there}; name what the rows are compared with: --base ROW")
    return found[0]


def judged(
    scores: Scores,
    aims: Sequence[Aim],
    base: str | None = None,
    target: float | None = None,
    items: Mapping[tuple[str, str], np.ndarray] | None = None,
    share: float = 1.0,
) -> Judgement:
    """`target`: a number that each row is compared with in the first metric, instead of base; `items`: of the test
    set, in the first metric (items.py); `share`: of the level, at this look."""
    against = base_of(scores, base) if target is None or base else ""
    order = [against, *(row for row in scores.runs if row != against)] if against else ["", *scores.runs]
    if len(order) < 2:
        raise UserError(f"{scores.source}: there is only '{order[0]}'; nothing to compare it with")
    notes = [*scores.notes, *scores.missing()]
    found, alone = {}, ""
    for i, one in enumerate(aims if target is None else aims[:1]):
        aimed = _Metric(scores, one, ["", *scores.runs] if target is not None else order, target)
        noise = of_items.noise(items, one, order) if items and i == 0 and target is None else None
        found[one.name] = aimed.judged(share, *(noise or (None, np.inf)))
        if i == 0 and target is None and not aimed.diverged[0]:
            used = [x if not bad else [] for x, bad in zip(aimed.values, aimed.diverged, strict=True)]
            alone = base_alone.why(used, against)
    return Judgement(scores.source, against, target, aims, found, notes, alone, bool(items))


class _Metric:
    """The rows in one metric, base first; with a target it stands in base's place, without seeds."""

    def __init__(self, scores: Scores, one: Aim, order: Sequence[str], target: float | None) -> None:
        self.aim, self.order, self.target = one, order, target
        self.seeds = [scores.of(row, one.name) if row else {} for row in order]
        self.diverged = [sum(math.isnan(x) for x in of.values()) for of in self.seeds]
        self.values = [[one.tested(x) for x in of.values() if not math.isnan(x)] for of in self.seeds]
        self.n_R = np.array([len(x) for x in self.values])
        self.used_R = np.where(np.array(self.diverged) > 0, 0, self.n_R)  # a diverged row moves no other
        self.mean_R = np.array([np.mean(x) if x else np.nan for x in self.values])
        pairs = zip(self.values, self.used_R, strict=True)
        self.variance_R = np.array([np.var(x, ddof=1) if n > 1 else 0.0 for x, n in pairs])

    def judged(self, share: float, noise: SentenceNoise | None, S: float) -> list[Judged]:
        """`noise`: of the test set, of S items."""
        self.d = self._differences(noise, S)
        enough = (self.used_R >= LEAST) & ((self.used_R[0] >= LEAST) | (self.target is not None))
        p_R = np.where(enough, self.d.p, np.nan)
        none_R, tau = np.full(len(self.order), np.nan), self.aim.tau
        numbers = evidence.corrected(self.d, p_R, none_R, tau, share)
        equal_R = evidence.may_be_equal(none_R, tau, same_unit=True)
        numbers |= evidence.planning(self.d, share * numbers["p"], equal_R, tau, share)
        return [self._row(i, numbers, not np.isnan(p_R[i])) for i in range(len(self.order)) if self.order[i]]

    def _differences(self, noise: SentenceNoise | None, S: float) -> Differences:
        R, counts = len(self.order), np.maximum(self.used_R, 1)
        zeros = SentenceNoise(np.zeros(R), np.zeros(R))
        if self.target is None:
            return statistics.compare(self.mean_R, self.variance_R, counts, noise or zeros, S)
        apart = statistics.outlying(self.variance_R, counts - 1)
        prior = statistics.prior_df(self.variance_R[None], counts - 1, apart[None])
        v, f = statistics.moderated(self.variance_R, counts - 1, prior, apart)
        v[0] = 0.0  # of the target
        estimate, se = self.mean_R - self.aim.tested(self.target), np.sqrt(v / counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = np.where(se > 0, 2 * statistics.t_sf(np.abs(estimate) / se, f), np.nan)
        return Differences(estimate, se, f, v, np.ones(R), p, v, zeros.shared, np.asarray(prior)[..., None])

    def _row(self, i: int, numbers: Mapping[str, np.ndarray], tested: bool) -> Judged:
        n, n_0, to = int(self.n_R[i]), int(self.n_R[0]), f"{self.target:g}" if self.target is not None else "base"
        pair = [n] if self.target is not None else [n, n_0]
        mean, sd = self._mean(i), self._sd(i)
        found: dict[str, Any] = {"row": self.order[i], "metric": self.aim.name, "n": n, "mean": mean, "sd": sd}
        found |= {"diverged": self.diverged[i], "seeds": self.seeds[i], "missing": max(LEAST - min(pair), 0)}
        if self.diverged[i] and (i or self.target is not None):
            k_of_n = f"{self.diverged[i]} of {n + self.diverged[i]}"
            return Judged(verdict=DIVERGED, why=f"{k_of_n} seeds diverged", evidence=None, beside=k_of_n, **found)
        if i == 0:
            return Judged(verdict="", why="", evidence=None, **found)
        if min(pair) == 0 or (self.diverged[0] and self.target is None):
            why = f"seeds of {to} diverged" if self.diverged[0] else "no scores"
            return Judged(verdict=UNTESTABLE, why=why, evidence=None, **found)
        e = Evidence(float(self.d.estimate[i]), math.nan, math.nan, n, n_0)
        known = numbers if tested else {k: numbers[k] for k in ("se", "df", "lower", "upper")}
        if tested or (min(pair) > 1 and self.d.se[i] > 0):
            values: dict[str, Any] = {k: float(x_R[i]) for k, x_R in known.items()}
            e = replace(e, **values)
        if not tested:
            few = found["missing"] > 0
            more = plural(found["missing"], "more seed")
            why = f"{plural(min(pair), 'seed')}, a verdict needs {LEAST}" if few else "all seeds gave the same number"
            beside = more + f" of {to}" * (n >= LEAST) if few else ""
            return Judged(verdict=UNTESTABLE if few else UNDECIDED, why=why, evidence=e, beside=beside, **found)
        word, why, beside = self._word(e, to)
        return Judged(verdict=word, why=why, evidence=e, beside=beside, **found)

    def _word(self, e: Evidence, to: str) -> tuple[Word, str, str]:
        """(verdict, why, what is printed beside it)."""
        if e.p < ALPHA:
            return (BETTER if (e.estimate < 0) == self.aim.lower else WORSE), f"differs from {to}", ""
        if e.equivalent < ALPHA:
            size = f"± {100 * self.aim.margin:g} %" if self.aim.log else f"± {self.aim.margin:g}"  # type: ignore[operator]
            return EQUAL, f"inside {size} of {to}", size
        needed = f"about {e.needed:.0f} seeds" if math.isfinite(e.needed) else f"more than {MOST} seeds"
        return UNDECIDED, f"no difference found; {needed} would be needed if the difference is as estimated", needed

    def _mean(self, i: int) -> float:
        return math.exp(self.mean_R[i]) if self.aim.log else float(self.mean_R[i])

    def _sd(self, i: int) -> float:
        """Of logarithms in percent; NaN of one seed."""
        if self.n_R[i] < 2:
            return math.nan
        return float(np.std(self.values[i], ddof=1)) * (100 if self.aim.log else 1)
