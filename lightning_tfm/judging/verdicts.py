"""Runs -> verdicts, by report/stats. The rule, and how often it is wrong: docs/judge-method.md."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.judging.scores import LONGEST_CELL, Aim, Items, Scores, aim, printable, records, scores_of
from lightning_tfm.metrics import Metric
from lightning_tfm.plural_words import plural
from lightning_tfm.report.stats import base_alone, evidence, resampling, statistics
from lightning_tfm.report.stats.evidence import Evidence
from lightning_tfm.report.stats.statistics import LEAST, Differences, SentenceNoise
from lightning_tfm.report.wording.verdict import FEWER, SAME_SCORES, UNSCORED, RowVerdict
from lightning_tfm.report.wording.verdict import judge as verdict_of
from lightning_tfm.report.wording.verdict_words import Verdict

if TYPE_CHECKING:
    from lightning_tfm.judging.gate import Answer
    from lightning_tfm.judging.presentation import Picture

BASES = ("base", "baseline")


@dataclass(frozen=True)
class JudgedRow:
    """A row in one metric, as it is tested (`log`: of logarithms)."""

    row: str
    metric: str
    n: int
    """finished runs that did not diverge"""
    mean: float
    """of the metric; where logarithms are tested the geometric one; NaN where a seed diverged"""
    sd: float
    diverged: int
    seeds: Mapping[str, float]
    missing: int
    """seeds that a verdict needs, and the row or base lacks"""
    evidence: Evidence | None = None
    """its difference to base; None for base, and where there is no estimate"""
    verdict: str = ""
    """a verdict_words.Verdict; of base empty, or that it diverged"""
    why: str = ""
    beside: str = ""
    """what is printed beside the verdict"""
    published: float | None = None
    """other people's number"""

    def with_verdict(self, verdict: RowVerdict, **more: Any) -> "JudgedRow":
        return replace(self, verdict=verdict.word, why=verdict.why, beside=verdict.beside, **more)


@dataclass(frozen=True)
class Judgement:
    """Verdicts by metric, the first of which decides; base first."""

    source: str
    base: str
    target: float | None
    aims: Sequence[Aim]
    rows: Mapping[str, Sequence[JudgedRow]]
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

    def of(self, row: str) -> JudgedRow:
        """In the metric that decides. Raises UserError."""
        rows, row = {judged.row: judged for judged in self.rows[self.aims[0].name]}, printable(str(row))
        if row not in rows:
            raise UserError(f"{self.source}: no row '{row}': {nearest(row, rows)}")
        return rows[row]

    def __str__(self) -> str:
        """The table of the command line."""
        return import_module("lightning_tfm.judging.presentation").terminal(self)

    def table(self) -> Any:
        """A DataFrame with a line for each row and metric, at full precision."""
        lines = import_module("lightning_tfm.judging.presentation").data(self)
        return import_module("pandas").DataFrame(list(lines))

    def forest(self) -> "Picture":
        """The main figure, for a notebook."""
        return import_module("lightning_tfm.judging.presentation").picture(self)

    def gate(self, row: str) -> "Answer":
        """What `--gate ROW` says: `.code` is 0 (better), 3 (undecided) or 4 (not better), `.line` a dict."""
        return import_module("lightning_tfm.judging.gate").answer_of_file(self, row)


def base_of(scores: Scores, named: str | None) -> str:
    """The row that all are compared with. Raises UserError."""
    if named is not None:
        named = printable(str(named))  # a number in a DataFrame
        if named not in scores.runs:
            raise UserError(f"--base {named}: no such row: {nearest(named, scores.runs)}")
        return named
    bases = [row for row in scores.runs if row in BASES]
    if len(bases) != 1:
        there = " and ".join(f"'{row}'" for row in bases) or "no row 'base' or 'baseline'"
        raise UserError(f"{scores.source}: {there}; name what the rows are compared with: --base ROW")
    return bases[0]


def _check_target(target: float, base: str | None, aim: Aim) -> None:
    """Raises UserError."""
    if base is not None:
        raise UserError(f"--base {base}: not together with --target, which every row is compared with")
    if not math.isfinite(target) or (aim.log and target <= 0):
        raise UserError(f"--target={target:g}: expected a number" + " above 0, which has a logarithm" * aim.log)


def judge(
    frame: Any,
    *,
    metrics: Mapping[str, str],
    base: str | None = None,
    row: str = "row",
    seed: str = "seed",
    target: float | None = None,
) -> Judgement:
    """Verdicts on `frame`, a DataFrame or a list of dicts, one per run, with columns `row`, `seed` and metrics.

    `metrics`: name -> "higher" or "lower", then [:log][:MARGIN], as on the command line; the first decides. `base`: the
    row that the others are compared with ["base" or "baseline"]; `target`: a number instead. Raises UserError.
    """
    if not isinstance(metrics, Mapping):
        raise UserError(f"metrics={metrics!r}: expected a dict such as {{'acc': 'higher'}}")
    aims = [aim(f"{name}:{side}") for name, side in metrics.items()]
    return judgement_of(scores_of("scores", _lines(frame), aims, row, seed), aims, base, target)


def _lines(frame: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    columns = list(getattr(frame, "columns", ()))
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise UserError(f"scores: column '{twice[0]}' is there twice")
    lines: Any = frame.to_dict("records") if hasattr(frame, "to_dict") else frame
    if isinstance(lines, str) or not isinstance(lines, Iterable):
        raise UserError(f"scores: {str(frame)[:LONGEST_CELL]!r}: expected a DataFrame or a list of dicts, a run each")
    for i, line in enumerate(lines, 1):
        if not isinstance(line, Mapping):
            raise UserError(f"scores: {str(line)[:LONGEST_CELL]!r} is no run: expected a DataFrame or a list of dicts")
        yield f"line {i}", {key: _plain(value) for key, value in line.items()}


def _plain(value: Any) -> Any:
    """A number of NumPy or torch as Python's; several of them as text, which is no number."""
    try:
        return value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):
        return str(value)


def judgement_of(
    scores: Scores,
    aims: Sequence[Aim],
    base: str | None = None,
    target: float | None = None,
    items: Items | None = None,
    share: float = 1.0,
) -> Judgement:
    """`target`: a number that each row is compared with in the first metric, instead of base; `items`: of the test
    set, in the first metric; `share`: of the level, at this look. Raises UserError."""
    if target is not None:
        _check_target(target, base, aims[0])
    against = base_of(scores, base) if target is None else ""
    order = [against, *(row for row in scores.runs if row != against)] if target is None else ["", *scores.runs]
    if len(order) < 2:
        raise UserError(f"{scores.source}: there is only '{against}'; nothing to compare it with")
    aims = aims if target is None else aims[:1]
    first, *others = (_Metric(scores, metric, order, target) for metric in aims)
    noise = _noise_of_items(items, first.aim, order) if items and target is None else (None, math.inf)
    rows = {first.aim.name: first.rows(share, *noise)} | {metric.aim.name: metric.rows(share) for metric in others}
    alone = ""
    if target is None and not first.diverged[0]:
        used = [x if not bad else [] for x, bad in zip(first.values, first.diverged, strict=True)]
        alone = base_alone.why(used, against)
    notes = [*scores.notes, *scores.missing()]
    return Judgement(scores.source, against, target, aims, rows, notes, alone, bool(items))


def _noise_of_items(items: Items, aim: Aim, order: list[str]) -> tuple[SentenceNoise, int]:
    """Of the test set on the rows in `order`, base first, and its number of items."""
    runs = {run: np.array(sums) for run, sums in items.items() if run[0] in order}
    row_R = np.array([order.index(row) for row, _ in runs])
    ratio = resampling.ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        boot_RB = resampling.resampled(list(runs.values()), (lambda x: np.log(ratio(x))) if aim.log else ratio)
    if not np.isfinite(boot_RB).all():
        raise UserError(f"--items: a resampled test set has no {'log ' * aim.log}{aim.name}: too few items are not 0")
    S = len(next(iter(runs.values())))
    return statistics.sentence_noise(boot_RB, row_R, len(order), S), S


class _Metric:
    """The rows in one metric, base first; with a target it stands in base's place, without a name."""

    def __init__(self, scores: Scores, aim: Aim, order: Sequence[str], target: float | None) -> None:
        self.aim, self.order, self.target = aim, order, target
        self.seeds = [scores.of(row, aim.name) if target is None or row else {"": target} for row in order]
        self.finite = [[x for x in of.values() if not math.isnan(x)] for of in self.seeds]
        self.diverged = [len(of) - len(x) for of, x in zip(self.seeds, self.finite, strict=True)]
        self.values = [[aim.transform(x) for x in of] for of in self.finite]
        self.n_R = np.array([len(x) for x in self.values])
        self.used_R = np.where(np.array(self.diverged) > 0, 0, self.n_R)  # a diverged row moves no other

    def rows(self, share: float, noise: SentenceNoise | None = None, S: float = math.inf) -> list[JudgedRow]:
        """`noise`: of the test set, of S items."""
        d = self._differences(noise, S)
        enough = (self.used_R >= LEAST) & ((self.used_R[0] >= LEAST) | (self.target is not None))
        p_R = np.where(enough, d.p, np.nan)
        none_R, tau = np.full(len(self.order), np.nan), self.aim.clear
        numbers = evidence.significance_fields(d, p_R, none_R, tau, share)
        equal_R = evidence.may_be_equal(none_R, tau, same_unit=True)
        numbers |= evidence.planning_fields(d, share * numbers["p"], equal_R, tau, share)
        return [self._row(i, d, numbers, not np.isnan(p_R[i])) for i in range(len(self.order)) if self.order[i]]

    def _differences(self, noise: SentenceNoise | None, S: float) -> Differences:
        mean_R = np.array([np.mean(x) if x else np.nan for x in self.values])
        pairs = zip(self.values, self.used_R, strict=True)
        variance_R = np.array([np.var(x, ddof=1) if n > 1 else 0.0 for x, n in pairs])
        counts = np.maximum(self.used_R, 1)
        return statistics.compare(mean_R, variance_R, counts, noise, S, fixed=self.target is not None)

    def _row(self, i: int, d: Differences, numbers: Mapping[str, np.ndarray], tested: bool) -> JudgedRow:
        n, n_0, diverged = int(self.n_R[i]), int(self.n_R[0]), self.diverged[i]
        finite = [] if diverged else self.finite[i]  # the others of a diverged row are no sample of it
        to, few = (self.order[0], min(n, n_0)) if self.target is None else (f"{self.target:g}", n)
        mean, sd = self.aim.mean(finite) if finite else math.nan, self.aim.sd(finite)
        sd, missing = math.nan if sd is None else sd, max(LEAST - few, 0)
        row = JudgedRow(self.order[i], self.aim.name, n, mean, sd, diverged, self.seeds[i], missing)
        if diverged:
            k_of_n = f"{diverged} of {n + diverged}"
            return row.with_verdict(RowVerdict(Verdict.DIVERGED, f"{k_of_n} seeds diverged", k_of_n))
        if i == 0:
            return row
        if few == 0 or self.diverged[0]:
            why = f"seeds of {to} diverged" if self.diverged[0] else UNSCORED + f" of {to}" * (n > 0)
            return row.with_verdict(RowVerdict(Verdict.UNTESTABLE, why, why))
        e = evidence.untested_evidence(float(d.estimate[i]), n, n_0, SAME_SCORES)
        if tested or (few > 1 and d.se[i] > 0):
            e = replace(e, **evidence.fields_of(numbers, i, tested))
        if missing:
            beside = plural(missing, "more seed") + f" of {to}" * (n >= LEAST)
            why = f"{plural(few, 'seed')}, {FEWER} {LEAST}"
            return row.with_verdict(RowVerdict(Verdict.UNTESTABLE, why, beside), evidence=e)
        verdict = verdict_of(e, None, self.aim, full_size=False, to=to)
        return row.with_verdict(replace(verdict, beside=verdict.beside or e.untested), evidence=e)


# --- other people's numbers, with the words that this project has for that (report/wording/verdict.py) ---

UNITS = 30
"""times as large as one's own, published numbers may be in another unit"""


def with_published(judgement: Judgement, path: Path, row: str) -> Judgement:
    """`path`: a line per row, base's too, with columns of the same names. A published number is a single run's, taken
    to be as noisy as one here: of a standard deviation that is the rows' typical one. Raises UserError."""
    lines = ((place, {**record, "seed": "1"}) for place, record in records(path))
    runs = scores_of(str(path), lines, judgement.aims, row, "seed").runs
    if judgement.base not in runs:
        raise UserError(f"{path}: no row '{judgement.base}', which the published differences are to")
    published = {name: run.get("1", {}) for name, run in runs.items()}
    of_rows = {row.row for row in judgement.rows[judgement.aims[0].name]}
    for name, metric, value in ((name, *number) for name, run in published.items() for number in run.items()):
        if math.isnan(value):
            raise UserError(f"{path}: row '{name}': {metric} is no finite number; leave it empty where it is unknown")
    rows = {
        aim.name: [_beside(judged, published, judgement, aim) for judged in judgement.rows[aim.name]]
        for aim in judgement.aims
    }
    unknown = [f"{path}: '{name}' is none of the rows; left out" for name in published if name not in of_rows]
    return replace(judgement, rows=rows, notes=[*judgement.notes, *unknown, *_other_units(judgement, path, published)])


def _other_units(judgement: Judgement, path: Path, numbers: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What looks like percent beside fractions; a logarithm's differences are the same in both."""
    for wanted in judgement.aims:
        there, here = numbers[judgement.base].get(wanted.name, math.nan), judgement.rows[wanted.name][0].mean
        apart = abs(there) > UNITS * abs(here) > 0 or abs(here) > UNITS * abs(there) > 0
        if apart and not wanted.log:
            yield (
                f"{path}: '{judgement.base}' has {wanted.name} {there:g}, and {here:.4g} here: in another unit? The "
                "differences are compared as they are"
            )


def _beside(row: JudgedRow, numbers: Mapping[str, Mapping[str, float]], judgement: Judgement, aim: Aim) -> JudgedRow:
    own, of_base = numbers.get(row.row, {}).get(aim.name), numbers[judgement.base].get(aim.name)
    if own is None or of_base is None or row.row == judgement.base:
        return row
    published = aim.transform(own) - aim.transform(of_base)
    if row.evidence is None or math.isnan(row.evidence.p):
        return replace(row, published=published)
    sds = [other.sd / (100 if aim.log else 1) for other in judgement.rows[aim.name] if other.sd > 0]
    sigma, lower, log = math.exp(sum(map(math.log, sds)) / len(sds)), aim.lower_is_better, aim.log
    metric = Metric(aim.name, aim.name, 3, 3, lower_is_better=lower, log=log, sigma=sigma, same_unit=True)
    e = replace(row.evidence, equivalent=float(row.evidence.equivalence(metric.clear)))
    verdict = verdict_of(e, published, metric, full_size=False, to=judgement.base)
    return row.with_verdict(verdict, published=published)
