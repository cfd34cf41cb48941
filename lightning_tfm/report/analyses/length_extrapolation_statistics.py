"""Beyond the training length: what each row pays for lines longer than it was trained on, and a verdict on the paper.

The paper (3.5) chose sinusoids since they "may allow the model to extrapolate to sequence lengths longer than the ones
encountered during training". A study with `data.long` scores lines by length (runs/evaluation.py). Here, fixed before a
study was run:

rise        nll per piece over all lines beyond the training length, minus that over the longest lines within it, those
            of half a training length to a whole one, of one training
excess      the rise minus the control's. The control is a row that has trained on lines as long as any that is scored
            (`data.max_len`): what long lines cost by themselves is in its rise. Without a control: the rise
extrapolates  the excess's 95 % interval ends below TOLERANCE: perplexity beyond rises by less than a tenth
degrades      it begins above TOLERANCE
undecided   neither; not testable: fewer than two seeds of the row or of the control
reach       the farthest class of lengths up to which, class by class from the training length on, the mean excess stays
            within TOLERANCE; in training lengths, 1 where it does in none

Intervals are stats/statistics.py's: noise of trainings (seeds; variances moderated over the rows) and of the test
lines (paired bootstrap, all runs on the same resamples). Rows against base in nll per piece beyond: better or worse by
p, corrected over the rows by Benjamini and Hochberg; without p where the row or base has fewer seeds than a verdict
needs (statistics.LEAST), or seeds were added by looks at other tests (`--seeds auto`). A row with one seed, or one
beside a control or base with one, has an estimate and no interval, p or word.

The sentence is of base where it has sinusoids, beside rows with learned positions:

supported           base extrapolates
contradicted        base degrades, and the interval of some learned row allows base no gain of TOLERANCE over it
supported in part   base degrades, and has less nll per piece beyond than every learned row (intervals above 0)
undecided           all else

The lengths of all this are those of the longer side; figures tell source and target apart.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np

from lightning_tfm.registry import SCHEMES
from lightning_tfm.report.records import Cells, FilledCell, commonest, read_columns
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.resampling import resamples
from lightning_tfm.report.stats.statistics import ALPHA, LEAST, Estimate, compare, sentence_noise
from lightning_tfm.report.summary import Interval, Spread
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.runs.record import LengthClass, Missing, Score, read_score
from lightning_tfm.schema import OPTIONAL
from lightning_tfm.study.study import Ablation
from lightning_tfm.sums import DamagedFile, check_files

TOLERANCE = 0.1
"""nats per piece: a perplexity a tenth higher"""
CARRIES, FALLS_OFF = "extrapolates", "degrades"
SUPPORTED, IN_PART = "supported", "supported in part"
SENTENCE = (
    "[Sinusoids] may allow the model to extrapolate to sequence lengths longer than the ones encountered during "
    "training."
)
SIDES = ("source", "target", "longer")
COLUMNS = ("nll", "tokens", "source")


# --- what every run scored, line by line ---


@dataclass(frozen=True)
class LongRun:
    """One run's score by length, and its lines."""

    score: Score
    lines_S3: np.ndarray
    """(nll, pieces of the reference, pieces of the source) of each line"""

    def at(self, side: str) -> dict[float, LengthClass]:
        """End of a class -> the class, the shortest first."""
        classes = self.score.by_length.classes if self.score.by_length else []
        return {c.upto: c for c in sorted(classes, key=lambda c: c.upto) if c.side == side}


Runs = Mapping[str, Sequence[LongRun]]
"""row -> its runs, in the order of seeds"""


def read_runs(cells: Cells) -> tuple[dict[str, list[LongRun]], list[str]]:
    """Those whose score by length can be read and is of the evaluation that most share; why the others are not."""
    data = cells.study.base.data
    runs: dict[tuple[str, int], LongRun] = {}
    missing: dict[str, list[str]] = {}
    for (row, seed), cell in cells.filled.items():
        why = "another vocabulary, in which lengths are others"
        run = Missing(why) if row in cells.foreign else _long_run(cell, data.long, data.training_length)
        if isinstance(run, Missing):
            missing.setdefault(run.reason.replace("STUDY", cells.study.name), []).append(f"{row}/{seed}")
        else:
            runs[row, seed] = run
    common = commonest([run.score.evaluation_hash for run in runs.values()])
    rows: dict[str, list[LongRun]] = {}
    for row, seed in runs:
        if runs[row, seed].score.evaluation_hash != common:
            missing.setdefault("scored on other lines, or otherwise", []).append(f"{row}/{seed}")
    for row, seed in sorted(runs):
        if (run := runs[row, seed]).score.evaluation_hash == common:
            rows.setdefault(row, []).append(run)
    return rows, [f"{why}: {', '.join(names)}" for why, names in missing.items()]


def scores_by_length(cell: FilledCell, split: str, limit: int) -> Iterator[Score]:
    """A run's scores by length: that of its record, and those that were made later."""
    later = (read_score(path) for path in sorted(cell.folder.glob(f"scores/*/{split}.json")))
    for score in (cell.record.scores.get("long"), *later):
        if isinstance(score, Score) and score.by_length is not None and score.by_length.limit == limit:
            yield score


def _long_run(cell: FilledCell, split: str, limit: int) -> LongRun | Missing:
    score = next(scores_by_length(cell, split, limit), None)
    if score is None:
        return Missing("not scored by length, which lightning-tfm report STUDY --collect does")
    folder = cell.folder / "scores" / score.evaluation_hash[:16]
    try:
        beside = read_score(folder / f"{split}.json")
        check_files(folder, beside.files if isinstance(beside, Score) else {})
        lines_S3 = read_columns(folder / f"{split}.sentences.tsv", COLUMNS)
    except (OSError, ValueError, DamagedFile) as error:
        return Missing(f"its scores by length cannot be read: {error}")
    if not math.isclose(lines_S3[:, 0].sum(), score.nll, rel_tol=1e-6) or lines_S3[:, 1].sum() != score.tokens:
        return Missing("its lines do not add up to the score by length")
    return LongRun(score, lines_S3)


# --- what is found ---


@dataclass(frozen=True)
class LengthPoint:
    """One class of lengths, in training lengths: above … upto."""

    above: float
    upto: float
    sentences: int
    nll: Spread
    """per piece"""
    bleu: Spread | None = field(metadata=OPTIONAL)
    """None, as are the next two, of a text without a source"""
    ratio: Spread | None = field(metadata=OPTIONAL)
    """pieces of the translations over those of the references"""
    early: float | None = field(metadata=OPTIONAL)
    """share of translations with less than half of their references' pieces"""


@dataclass(frozen=True)
class BeyondRow:
    """A row within and beyond the training length; means over seeds."""

    row: str
    n: int
    within: float
    """nll per piece"""
    beyond: float
    excess: Interval | None
    """rise of the nll per piece, less the control's; None for the control"""
    word: str
    """extrapolates, degrades, undecided, not testable; control"""
    reach: float
    """in training lengths"""
    against: Interval | None
    """nll per piece beyond, less base's; None for base"""
    p: float | None
    """of that, corrected"""
    compared: str
    """better, worse, undecided, not testable; empty for base"""
    bleu_within: float | None = field(metadata=OPTIONAL)
    """None, as are the next three, of a text without a source"""
    bleu_beyond: float | None = field(metadata=OPTIONAL)
    ratio: float | None = field(metadata=OPTIONAL)
    """of lengths, beyond, as is `early`"""
    early: float | None = field(metadata=OPTIONAL)
    points: dict[str, list[LengthPoint]]
    """by source, target, longer"""


@dataclass(frozen=True)
class BeyondSummary:
    """What lines beyond the training length cost."""

    limit: int
    """the training length, in pieces with the end token"""
    split: str
    lines: int
    tolerance: float
    control: str | None
    sentence: str | None
    """the paper's; None where the study does not ask for it"""
    verdict: str | None
    why: str
    rows: list[BeyondRow]
    missing: list[str]
    """runs without it, and why"""


def analyse(cells: Cells, fixed: bool = True) -> BeyondSummary | None:
    """None where the study scores nothing by length, or has no run yet. `fixed`: its seeds were, beforehand."""
    study, data = cells.study, cells.study.base.data
    if not data.long or not cells.filled:
        return None
    (every, missing), twins = read_runs(cells), study.twins()
    runs = {row.name: every[row.name] for row in study.rows if row.name in every and row.name not in twins}
    control, limit = _control(study, runs), data.training_length
    excess: dict[str, Estimate] = {}
    against: dict[str, tuple[Estimate, float]] = {}
    if runs:
        rise, beyond = _nll_per_piece(runs, limit)
        excess = _estimates(runs, control, *rise)
        against = _against(runs, study.base_row, beyond, fixed) if study.base_row in runs else {}
    rows = [_row(runs, name, control, excess[name], against.get(name)) for name in runs]
    word, why = sentence_verdict(study, {row.row: row for row in rows})
    return BeyondSummary(
        limit=limit,
        split=data.long,
        lines=_lines(runs),
        tolerance=TOLERANCE,
        control=control,
        sentence=SENTENCE if word else None,
        verdict=word,
        why=why,
        rows=rows,
        missing=missing,
    )


def _lines(runs: Runs) -> int:
    return next((len(of[0].lines_S3) for of in runs.values()), 0)


def _control(study: Ablation, runs: Runs) -> str | None:
    """The row that has trained on lines as long as any that is scored; of several the one nearest to base."""
    rows = {row.name: row for row in study.rows}
    farthest = {name: max(run.lines_S3[:, 1:].max() for run in of) for name, of in runs.items()}
    seen = [name for name in runs if study.written(rows[name]).data.max_len >= farthest[name]]
    return min(seen, key=lambda name: len(rows[name].change), default=None)


# --- statistics. U runs, row after row, B resamples ---

Resampled = tuple[np.ndarray, np.ndarray]
"""A number of every run on the lines as they are, [U], and resampled, [U, B]"""


def _nll_per_piece(runs: Runs, limit: int) -> tuple[Resampled, Resampled]:
    """(rise; beyond the training length)."""
    sums = [_sums(run, limit) for of in runs.values() for run in of]
    parts_SU2 = [np.stack([own[:, part] for own in sums], 1) for part in range(2)]

    def of_lines(counts_BS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[U, B] each, of lines that occur so often."""
        nll_BU, pieces_BU = zip(
            *((counts_BS @ part[..., 0], counts_BS @ part[..., 1]) for part in parts_SU2), strict=True
        )
        within_BU, beyond_BU = (nll / np.maximum(pieces, 1) for nll, pieces in zip(nll_BU, pieces_BU, strict=True))
        return (beyond_BU - within_BU).T, beyond_BU.T

    once, many = of_lines(np.ones((1, _lines(runs)))), of_lines(resamples(_lines(runs)))
    return (once[0][:, 0], many[0]), (once[1][:, 0], many[1])


def _sums(run: LongRun, limit: int) -> np.ndarray:
    """[S, 2, 2]: (nll, pieces) of each line, in the part within the training length and in the part beyond it."""
    longer_S = run.lines_S3[:, 1:].max(1) / limit
    parts = [(longer_S > part.above) & (longer_S <= part.upto) for part in run.at("both").values()]
    return np.stack([run.lines_S3[:, :2] * part[:, None] for part in parts], 1)


def _estimates(runs: Runs, first: str | None, own_U: np.ndarray, boot_UB: np.ndarray) -> dict[str, Estimate]:
    """row -> its number, less that of the row `first` where there is one.

    Without an error where the row or the first one has a single seed, though the other rows would lend it a variance.
    """
    order, S, fixed = [first or "", *(name for name in runs if name != first)], _lines(runs), first is None
    row_U = np.array([order.index(name) for name, of in runs.items() for _ in of])
    each = [own_U[row_U == i] for i in range(len(order))]
    each[0] = np.zeros(1) if fixed else each[0]
    mean_R, n_R = np.array([own.mean() for own in each]), np.array([float(len(own)) for own in each])
    variance_R = np.array([own.var(ddof=1) if len(own) > 1 else 0.0 for own in each])
    e = compare(mean_R, variance_R, n_R, sentence_noise(boot_UB, row_U, len(order), S), S, fixed=fixed)
    se_R = np.where((n_R > 1) & ((n_R[0] > 1) | fixed), e.se, np.nan)
    numbers = zip(order, *(x.tolist() for x in (e.estimate, se_R, e.df)), strict=True)
    return {name: Estimate(estimate, se, df) for name, estimate, se, df in numbers if name}


def _against(runs: Runs, base: str, beyond: Resampled, fixed: bool) -> dict[str, tuple[Estimate, float]]:
    """row -> its nll per piece beyond less base's, and p corrected over the rows; NaN unless seeds were `fixed`."""
    estimates = _estimates(runs, base, *beyond)
    few = [not fixed or min(len(runs[name]), len(runs[base])) < LEAST or name == base for name in estimates]
    p_R = np.array([math.nan if bad else float(e.two_sided) for e, bad in zip(estimates.values(), few, strict=True)])
    pairs = zip(estimates.items(), benjamini_hochberg(p_R).tolist(), strict=True)
    return {name: (estimate, p) for (name, estimate), p in pairs if name != base}


def _interval(difference: Estimate) -> Interval:
    """Without ends where the seeds allow none."""
    lower, upper = (float(x) for x in difference.interval(ALPHA))
    known = np.isfinite(lower) and np.isfinite(upper) and lower < upper
    return Interval(float(difference.estimate), lower if known else None, upper if known else None)


# --- one row ---


def _row(
    every: Runs, name: str, control: str | None, excess: Estimate, against: tuple[Estimate, float] | None
) -> BeyondRow:
    runs = every[name]
    within, beyond = (_over_seeds([run.at("both")[upto] for run in runs], mean) for upto in runs[0].at("both"))
    shown = None if name == control else _interval(excess)
    to_base = None if against is None else _interval(against[0])
    return BeyondRow(
        row=name,
        n=len(runs),
        within=within["nll"],
        beyond=beyond["nll"],
        excess=shown,
        word="control" if name == control else _word(shown),
        reach=_reach(every, name, control),
        against=to_base,
        p=None if against is None or np.isnan(against[1]) else against[1],
        compared="" if against is None else _better(against),
        bleu_within=within["bleu"],
        bleu_beyond=beyond["bleu"],
        ratio=beyond["ratio"],
        early=beyond["early"],
        points={side: _points(runs, side) for side in SIDES},
    )


def _over_seeds(classes: Sequence[LengthClass], summed: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """What a class of lengths scored, `summed` up over the runs; None where they have no translations."""
    every: dict[str, list[Any]] = {
        "nll": [c.nll / c.tokens for c in classes],
        "bleu": [c.bleu for c in classes],
        "ratio": [None if c.pieces is None else c.pieces / c.tokens for c in classes],
        "early": [None if c.early is None else c.early / c.sentences for c in classes],
    }
    return {name: None if None in values else summed(values) for name, values in every.items()}


def _word(excess: Interval | None) -> str:
    if excess is None or excess.lower is None or excess.upper is None:
        return Verdict.UNTESTABLE
    return CARRIES if excess.upper <= TOLERANCE else FALLS_OFF if excess.lower > TOLERANCE else Verdict.UNDECIDED


def _better(against: tuple[Estimate, float]) -> str:
    difference, p = against
    if np.isnan(p):
        return Verdict.UNTESTABLE
    return Verdict.UNDECIDED if p >= ALPHA else Verdict.BETTER if difference.estimate < 0 else Verdict.WORSE


def _reach(runs: Runs, name: str, control: str | None) -> float:
    rises, expected = _rises(runs[name]), _rises(runs[control]) if control else {}
    reach = 1.0
    for upto, rise in rises.items():
        if rise - expected.get(upto, 0.0) > TOLERANCE:
            break
        reach = upto
    return reach


def _rises(runs: Sequence[LongRun]) -> dict[float, float]:
    """End of each class beyond the training length -> mean nll per piece above that within it."""
    rises: dict[float, list[float]] = {}
    for run in runs:
        within = run.at("both")[1.0]
        for upto, beyond in run.at("longer").items():
            if upto > 1:
                rises.setdefault(upto, []).append(beyond.nll / beyond.tokens - within.nll / within.tokens)
    return {upto: mean(values) for upto, values in rises.items()}


def _points(runs: Sequence[LongRun], side: str) -> list[LengthPoint]:
    """The classes that have lines: the same in all runs, as they score the same lines."""
    made = []
    for upto, first in runs[0].at(side).items():
        classes = [run.at(side)[upto] for run in runs]
        spreads, early = _over_seeds(classes, Spread.of), _over_seeds(classes, mean)["early"]
        made.append(LengthPoint(first.above, upto, first.sentences, **spreads | {"early": early}))
    return made


# --- the paper's sentence ---


def sentence_verdict(study: Ablation, rows: Mapping[str, BeyondRow]) -> tuple[str | None, str]:
    """The verdict on the sentence and why; None where the study does not ask for it."""
    positions = {row.name: study.written(row).model.positions for row in study.rows if len(row.change) <= 1}
    base = rows.get(study.base_row or "")
    learned = [rows[name] for name in rows if SCHEMES.traits(positions.get(name, "")).ends_at]
    if base is None or positions.get(base.row) != "sinusoidal" or not learned:
        return None, ""
    called = {row.name: row.label or row.name for row in study.rows}
    told = f"{called.get(base.row, base.row)} {base.word}"
    if base.word == CARRIES:
        return SUPPORTED, told
    if base.word != FALLS_OFF:
        return (Verdict.UNTESTABLE if base.word == Verdict.UNTESTABLE else Verdict.UNDECIDED), told
    gains = [(called.get(row.row, row.row), row.against or Interval(None, None, None)) for row in learned]
    known = [(name, x.lower, x.upper) for name, x in gains if x.lower is not None and x.upper is not None]
    if few := [name for name, x in gains if x.lower is None or x.upper is None]:
        return Verdict.UNTESTABLE, f"{told}; too few seeds of {' and '.join(few)}"
    # learned less base: above 0 where base is better
    if no_worse := " and ".join(name for name, _, upper in known if upper < TOLERANCE):
        return Verdict.CONTRADICTED, f"{told}, and is not better than {no_worse} by {TOLERANCE:g} nats per token"
    if unclear := " and ".join(name for name, lower, _ in known if lower <= 0):
        return Verdict.UNDECIDED, f"{told}; not known whether less than {unclear}"
    return IN_PART, f"{told}, less than {' and '.join(name for name, _ in gains)}"
