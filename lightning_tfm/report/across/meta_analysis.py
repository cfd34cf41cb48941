"""Rows over corpora as random effects: what a row does on average over corpora, and what an unseen corpus would show.

Of a row y_k is the difference to base in study k, as the metric is tested, v_k its squared standard error over seeds
(stats/statistics.py). The studies are taken as a sample of corpora: y_k ~ N(theta_k, v_k), theta_k ~ N(mu, tau^2).

- tau^2 by Paule and Mandel (1982): sum w_k (y_k - mu)^2 = K - 1 with w_k = 1 / (v_k + tau^2), mu = sum w_k y_k /
  sum w_k; 0 if the sum is not larger at tau^2 = 0.
- se^2 = max(1, q) / sum w_k, q = sum w_k (y_k - mu)^2 / (K - 1) (Hartung and Knapp 2001; never below the standard error
  of a known variance: Röver, Knapp and Friede 2015). Interval and p with t of K - 1 degrees of freedom; p is corrected
  over the rows of the metric by Benjamini and Hochberg.
- An unseen corpus: mu ± t_(K - 2) sqrt(tau^2 + se^2) (Higgins, Thompson and Spiegelhalter 2009), from three studies on.
- I^2 = max(0, (Q - (K - 1)) / Q), Q the sum above at tau^2 = 0 (Higgins and Thompson 2002): the share of the spread
  between studies that seeds do not explain.

How well that foresees is tried on the studies themselves, a family of texts at a time: its studies are held out, and
each of their differences either is within mu ± t_(K - 2) sqrt(tau^2 + se^2 + v) of the others or is not, with v of
the difference that is held out. Studies of one family (of one corpus and folder, unless said otherwise) are not
an independent sample of corpora; within the pool each counts as one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from scipy.optimize import brentq

from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS
from lightning_tfm.report.across.comparison import Asked, Comparison
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA, t_isf, t_sf
from lightning_tfm.report.to_json import rounded

LEAST = 3
"""studies of a row: with fewer nothing is said of an unseen corpus"""
SCOPE = "over corpora: this scale"


@dataclass(frozen=True)
class Effects:
    """One row over K studies (see above)."""

    mu: float
    se: float
    tau: float
    I2: float
    K: int

    @property
    def p(self) -> float:
        """Two-sided."""
        return float(2 * t_sf(abs(self.mu) / self.se, self.K - 1))

    @property
    def interval(self) -> tuple[float, float]:
        """Of mu, 95 %."""
        half = float(t_isf(ALPHA / 2, self.K - 1)) * self.se
        return self.mu - half, self.mu + half

    def half_width(self, variance: float = 0.0) -> float:
        """Of the 95 % interval for an unseen corpus, observed with an error of this variance."""
        return float(t_isf(ALPHA / 2, self.K - 2)) * math.sqrt(self.tau**2 + self.se**2 + variance)

    @property
    def unseen(self) -> tuple[float, float]:
        half = self.half_width()
        return self.mu - half, self.mu + half


def random_effects(y: Sequence[float], v: Sequence[float]) -> Effects:
    """Of the estimates `y` with the variances `v` (above 0), from three on."""
    y_K, v_K = np.asarray(y, dtype=float), np.asarray(v, dtype=float)
    K = len(y_K)

    def spread(tau2: float) -> float:
        w_K = 1 / (v_K + tau2)
        return float((w_K * (y_K - (w_K * y_K).sum() / w_K.sum()) ** 2).sum())

    Q = spread(0.0)
    most = K * float(np.ptp(y_K)) ** 2  # there the sum is below K - 1
    tau2 = float(brentq(lambda x: spread(x) - (K - 1), 0.0, most, xtol=1e-15, rtol=1e-12)) if Q > K - 1 else 0.0
    w_K = 1 / (v_K + tau2)
    se = math.sqrt(max(1.0, spread(tau2) / (K - 1)) / w_K.sum())
    I2 = max(0.0, (Q - (K - 1)) / Q) if Q > 0 else 0.0
    return Effects(float((w_K * y_K).sum() / w_K.sum()), se, math.sqrt(tau2), I2, K)


@dataclass(frozen=True)
class PooledEffect:
    """A row in one metric, as tested."""

    metric: str
    studies: int
    estimate: float
    se: float
    lower: float
    """of the 95 % interval, as is `upper`"""
    upper: float
    p: float
    """corrected over the rows by Benjamini and Hochberg"""
    unseen_lower: float
    """what an unseen corpus would show, 95 %"""
    unseen_upper: float
    tau: float
    I2: float
    word: str
    """better, worse, undecided; over corpora"""


@dataclass(frozen=True)
class PooledRow:
    row: str
    by_metric: dict[str, PooledEffect]


@dataclass(frozen=True)
class Foresight:
    """How many differences of held-out families were where the other studies put them, in one metric."""

    metric: str
    cases: int
    covered: int
    half_width: float
    """median, as the metric is tested, with the held-out error"""
    families: list[str]
    """that could be held out"""


@dataclass(frozen=True)
class Pool:
    """Everything `pool` says."""

    studies: list[str]
    families: dict[str, list[str]]
    """first study of each -> its studies"""
    rows: list[PooledRow]
    foresight: list[Foresight]
    left_out: list[str]
    shared: list[str]
    """runs that studies have in common"""
    labels: dict[str, str] = field(default_factory=dict, metadata={"key": ""})
    """row -> what people call it"""
    asked: Asked = field(default_factory=Asked, metadata={"key": ""})


def pool(comparison: Comparison, families: Mapping[str, str]) -> Pool:
    """The rows of a comparison over its studies. `families`: study -> name of its family.

    Raises UserError where fewer than three studies are given, or no row is in as many.
    """
    studies = [side.study for side in comparison.sides]
    if len(studies) < LEAST:
        raise UserError(f"pool {' '.join(studies)}: an unseen corpus takes {LEAST} studies, {len(studies)} given")
    metrics = comparison.metrics
    known = {
        (row.name, metric): _known(comparison, i, metric) for i, row in enumerate(comparison.rows) for metric in metrics
    }
    enough = {key: of for key, of in known.items() if len(of) >= LEAST}
    names = [row.name for row in comparison.rows if any((row.name, metric) in enough for metric in metrics)]
    few = [row.name for row in comparison.rows if row.name not in names]
    left_out = [*comparison.left_out, *(f"{name}: an interval in fewer than {LEAST} studies" for name in few)]
    if not names:
        raise UserError(f"no row has an interval in {LEAST} of the studies {', '.join(studies)}: {'; '.join(left_out)}")
    by_row: dict[str, dict[str, PooledEffect]] = {name: {} for name in names}
    for metric in metrics:
        found = {name: random_effects(*_parts(enough[name, metric])) for name in names if (name, metric) in enough}
        adjusted = benjamini_hochberg(np.array([effect.p for effect in found.values()]))
        for (name, effect), p in zip(found.items(), adjusted, strict=True):
            by_row[name][metric] = _pooled(metric, effect, float(p))
    groups: dict[str, list[str]] = {}
    for study in studies:
        groups.setdefault(families[study], []).append(study)
    foresight = [one for metric in metrics if (one := _foresight(metric, known, groups)) is not None]
    rows = [PooledRow(name, by_metric) for name, by_metric in by_row.items()]
    kinds, named = {of[0]: of for of in groups.values()}, (comparison.labels, comparison.asked)
    return rounded(Pool(studies, kinds, rows, foresight, left_out, comparison.shared, *named))


Known = dict[str, tuple[float, float]]
"""study -> (difference to base, its variance)"""


def _known(comparison: Comparison, i: int, metric: str) -> Known:
    found = {}
    for side, place in zip(comparison.sides, comparison.rows[i].places, strict=True):
        d = place.difference.get(metric) if place else None
        if d is not None and d.estimate is not None and d.se:
            found[side.study] = (d.estimate, d.se**2)
    return found


def _parts(known: Known) -> tuple[list[float], list[float]]:
    return [y for y, _ in known.values()], [v for _, v in known.values()]


def _pooled(metric: str, found: Effects, p: float) -> PooledEffect:
    word = "undecided" if not p < ALPHA else "better" if METRICS[metric].better(found.mu) else "worse"
    ends = (*found.interval, p, *found.unseen)
    return PooledEffect(metric, found.K, found.mu, found.se, *ends, found.tau, found.I2, word)


def _foresight(
    metric: str, known: Mapping[tuple[str, str], Known], groups: Mapping[str, Sequence[str]]
) -> Foresight | None:
    """None where no family can be held out."""
    inside, widths, tried = [], [], []
    for of in groups.values():
        for (_, m), by_study in known.items():
            others = {study: pair for study, pair in by_study.items() if study not in of}
            if m != metric or len(others) < LEAST:
                continue
            found = random_effects(*_parts(others))
            for y, v in (by_study[study] for study in of if study in by_study):
                widths.append(found.half_width(v))
                inside.append(abs(y - found.mu) <= widths[-1])
                tried.append(of[0])
    if not inside:
        return None
    return Foresight(metric, len(inside), sum(inside), median(widths), list(dict.fromkeys(tried)))
