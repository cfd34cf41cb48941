"""Runs -> verdicts. The rule, and how often it is wrong: docs/judge-method.md."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.judging import items as of_items
from lightning_tfm.judging.scores import Aim, Scores
from lightning_tfm.plural_words import plural
from lightning_tfm.report.stats import base_alone, evidence, statistics
from lightning_tfm.report.stats.evidence import Evidence
from lightning_tfm.report.stats.statistics import LEAST, Differences, SentenceNoise
from lightning_tfm.report.wording.verdict import judge
from lightning_tfm.report.wording.verdict_words import Verdict

if TYPE_CHECKING:
    from lightning_tfm.judging.gate import Answer
    from lightning_tfm.judging.views import Picture

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
    """a verdict_words.Verdict; empty for base"""
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

    @property
    def to(self) -> str:
        """What the rows are compared with."""
        return self.base if self.target is None else f"{self.target:g}"

    def of(self, row: str) -> Judged:
        """In the metric that decides. Raises UserError."""
        rows = {one.row: one for one in self.rows[self.aims[0].name]}
        if row not in rows:
            raise UserError(f"{self.source}: no row '{row}': {nearest(row, rows)}")
        return rows[row]

    def __str__(self) -> str:
        """The table of the command line."""
        return import_module("lightning_tfm.judging.views").terminal(self)

    def table(self) -> Any:
        """A DataFrame with a line for each row and metric, at full precision."""
        lines = import_module("lightning_tfm.judging.views").data(self)
        return import_module("pandas").DataFrame(list(lines))

    def forest(self) -> "Picture":
        """The main figure, for a notebook."""
        return import_module("lightning_tfm.judging.views").picture(self)

    def gate(self, row: str) -> "Answer":
        """What `--gate ROW` says: `.code` is 0 (better), 3 (undecided) or 4 (not better), `.line` a dict."""
        return import_module("lightning_tfm.judging.gate").answer_of_file(self, row)


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


def _check_target(target: float, base: str | None, aim: Aim) -> None:
    """Raises UserError."""
    if base is not None:
        raise UserError(f"--base {base}: not together with --target, which every row is compared with")
    if not math.isfinite(target) or (aim.log and target <= 0):
        raise UserError(f"--target={target:g}: expected a number" + " above 0, which has a logarithm" * aim.log)


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
    if target is not None:
        _check_target(target, base, aims[0])
    against = base_of(scores, base) if target is None else ""
    order = [against, *(row for row in scores.runs if row != against)] if against else ["", *scores.runs]
    if len(order) < 2:
        raise UserError(f"{scores.source}: there is only '{order[0]}'; nothing to compare it with")
    aims = aims if target is None else aims[:1]
    metrics = [_Metric(scores, one, ["", *scores.runs] if target is not None else order, target) for one in aims]
    noise = of_items.noise(items, aims[0], order) if items and target is None else (None, np.inf)
    rows = {m.aim.name: m.judged(share, *(noise if m is metrics[0] else (None, np.inf))) for m in metrics}
    first, alone = metrics[0], ""
    if target is None and not first.diverged[0]:
        used = [x if not bad else [] for x, bad in zip(first.values, first.diverged, strict=True)]
        alone = base_alone.why(used, against)
    notes = [*scores.notes, *scores.missing()]
    return Judgement(scores.source, against, target, aims, rows, notes, alone, bool(items))


class _Metric:
    """The rows in one metric, base first; with a target it stands in base's place, without seeds."""

    def __init__(self, scores: Scores, aim: Aim, order: Sequence[str], target: float | None) -> None:
        self.aim, self.order, self.target = aim, order, target
        self.seeds = [scores.of(row, aim.name) if row else {} for row in order]
        self.finite = [[x for x in of.values() if not math.isnan(x)] for of in self.seeds]
        self.diverged = [len(of) - len(x) for of, x in zip(self.seeds, self.finite, strict=True)]
        self.values = [[aim.tested(x) for x in of] for of in self.finite]
        self.n_R = np.array([len(x) for x in self.values])
        self.used_R = np.where(np.array(self.diverged) > 0, 0, self.n_R)  # a diverged row moves no other

    def judged(self, share: float, noise: SentenceNoise | None, S: float) -> list[Judged]:
        """`noise`: of the test set, of S items."""
        d = self._differences(noise, S)
        enough = (self.used_R >= LEAST) & ((self.used_R[0] >= LEAST) | (self.target is not None))
        p_R = np.where(enough, d.p, np.nan)
        none_R, tau = np.full(len(self.order), np.nan), self.aim.clear
        numbers = evidence.corrected(d, p_R, none_R, tau, share)
        equal_R = evidence.may_be_equal(none_R, tau, same_unit=True)
        numbers |= evidence.planning(d, share * numbers["p"], equal_R, tau, share)
        return [self._row(i, d, numbers, not np.isnan(p_R[i])) for i in range(len(self.order)) if self.order[i]]

    def _differences(self, noise: SentenceNoise | None, S: float) -> Differences:
        mean_R = np.array([np.mean(x) if x else np.nan for x in self.values])
        pairs = zip(self.values, self.used_R, strict=True)
        variance_R = np.array([np.var(x, ddof=1) if n > 1 else 0.0 for x, n in pairs])
        R, counts = len(self.order), np.maximum(self.used_R, 1)
        zeros = SentenceNoise(np.zeros(R), np.zeros(R))
        if self.target is None:
            return statistics.compare(mean_R, variance_R, counts, noise or zeros, S)
        apart = statistics.outlying(variance_R, counts - 1)
        prior = statistics.prior_df(variance_R[None], counts - 1, apart[None])
        v, f = statistics.moderated(variance_R, counts - 1, prior, apart)
        v[0] = 0.0  # of the target
        estimate, se = mean_R - self.aim.tested(self.target), np.sqrt(v / counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = np.where(se > 0, 2 * statistics.t_sf(np.abs(estimate) / se, f), np.nan)
        return Differences(estimate, se, f, v, np.ones(R), p, v, zeros.shared, np.asarray(prior)[..., None])

    def _row(self, i: int, d: Differences, numbers: Mapping[str, np.ndarray], tested: bool) -> Judged:
        n, n_0, finite = int(self.n_R[i]), int(self.n_R[0]), self.finite[i]
        alone = self.target is not None
        to, few = (f"{self.target:g}", n) if alone else ("base", min(n, n_0))
        sd, missing = self.aim.sd(finite), max(LEAST - few, 0)
        row = Judged(
            self.order[i],
            self.aim.name,
            n,
            self.aim.mean(finite) if finite else math.nan,
            math.nan if sd is None else sd,
            self.diverged[i],
            "",
            "",
            None,
            self.seeds[i],
            missing,
        )
        if row.diverged and (i or alone):
            k_of_n = f"{row.diverged} of {n + row.diverged}"
            return replace(row, verdict=Verdict.DIVERGED, why=f"{k_of_n} seeds diverged", beside=k_of_n)
        if i == 0:
            return row
        if few == 0 or (self.diverged[0] and not alone):
            why = f"seeds of {to} diverged" if self.diverged[0] else "no scores"
            return replace(row, verdict=Verdict.UNTESTABLE, why=why)
        e = evidence.untested(float(d.estimate[i]), n, n_0, "all seeds gave the same number")
        known = numbers if tested else {k: numbers[k] for k in ("se", "df", "lower", "upper")}
        if tested or (few > 1 and d.se[i] > 0):
            values: dict[str, Any] = {k: float(x_R[i]) for k, x_R in known.items()}
            e = replace(e, untested="" if tested else e.untested, **values)
        if missing:
            beside = plural(missing, "more seed") + f" of {to}" * (n >= LEAST)
            why = f"{plural(few, 'seed')}, a verdict needs {LEAST}"
            return replace(row, verdict=Verdict.UNTESTABLE, why=why, evidence=e, beside=beside)
        verdict = judge(e, None, self.aim, full_size=False, to=to)
        return replace(row, verdict=verdict.word, why=verdict.why, evidence=e, beside=verdict.beside)
