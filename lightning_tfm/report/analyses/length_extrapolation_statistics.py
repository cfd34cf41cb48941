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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

import numpy as np

from lightning_tfm.registry import SCHEMES
from lightning_tfm.report.records import Cells, FilledCell, commonest, read_columns
from lightning_tfm.report.row import Interval, Spread
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.resampling import resamples
from lightning_tfm.report.stats.statistics import (
    ALPHA,
    LEAST,
    Differences,
    Estimate,
    combine_variances,
    compare,
    moderated,
    prior_df,
    sentence_noise,
)
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.runs.record import ByLength, LengthClass, Missing, Score, read_score
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

    row: str
    seed: int
    score: Score
    lines_S3: np.ndarray
    """(nll, pieces of the reference, pieces of the source) of each line"""

    @property
    def by_length(self) -> ByLength:
        assert self.score.by_length is not None, "only such scores are read"
        return self.score.by_length

    def at(self, side: str) -> dict[float, LengthClass]:
        """End of a class -> the class."""
        return {length_class.upto: length_class for length_class in self.by_length.classes if length_class.side == side}


@dataclass(frozen=True)
class LongRuns:
    """All that belong together: of one evaluation."""

    runs: dict[tuple[str, int], LongRun]
    missing: list[str] = field(default_factory=list)
    """why others are not there"""

    def of(self, row: str) -> list[LongRun]:
        return [run for (name, _), run in sorted(self.runs.items()) if name == row]


def read_runs(cells: Cells) -> LongRuns:
    """Runs whose score by length can be read and is of the evaluation that most share."""
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
    for key in [key for key, run in runs.items() if run.score.evaluation_hash != common]:
        missing.setdefault("scored on other lines, or otherwise", []).append(f"{key[0]}/{key[1]}")
        del runs[key]
    return LongRuns(runs, [f"{why}: {', '.join(names)}" for why, names in missing.items()])


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
    return LongRun(cell.row, cell.seed, score, lines_S3)


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
    runs, twins = read_runs(cells), study.twins()
    names = [row.name for row in study.rows if runs.of(row.name) and row.name not in twins]
    control = _control(study, runs, names)
    measured = Measured.of(runs, names)
    excess, against = _excess(measured, control), _against(measured, study.base_row, fixed)
    rows = [_row(runs, name, control, excess.get(name), against.get(name)) for name in names]
    word, why = sentence_verdict(study, {row.row: row for row in rows})
    return BeyondSummary(
        limit=data.training_length,
        split=data.long,
        lines=len(runs.of(names[0])[0].lines_S3) if names else 0,
        tolerance=TOLERANCE,
        control=control,
        sentence=SENTENCE if word else None,
        verdict=word,
        why=why,
        rows=rows,
        missing=runs.missing,
    )


def _control(study: Ablation, runs: LongRuns, names: Sequence[str]) -> str | None:
    """The row that has trained on lines as long as any that is scored; of several the one nearest to base."""
    rows = {row.name: row for row in study.rows}
    seen = []
    for name in names:
        farthest = max(run.lines_S3[:, 1:].max() for run in runs.of(name))
        if study.written(rows[name]).data.max_len >= farthest:
            seen.append(name)
    return min(seen, key=lambda name: len(rows[name].change), default=None)


# --- statistics ---


@dataclass(frozen=True)
class Measured:
    """All runs on the lines, resampled and not. R rows, U runs, B resamples."""

    names: list[str]
    row_U: np.ndarray
    rise_U: np.ndarray
    rise_UB: np.ndarray
    beyond_U: np.ndarray
    """nll per piece beyond the training length"""
    beyond_UB: np.ndarray
    S: int

    @classmethod
    def of(cls, found: LongRuns, names: list[str]) -> "Measured":
        runs = [(i, run) for i, name in enumerate(names) for run in found.of(name)]
        if not runs:
            empty = np.zeros((0, 1))
            return cls([], empty[:, 0].astype(int), empty[:, 0], empty, empty[:, 0], empty, 0)
        S = len(runs[0][1].lines_S3)
        sums_2U2 = [np.stack([_sums(run)[:, part] for _, run in runs], 1) for part in range(2)]
        once, many = np.ones((1, S)), resamples(S)
        (within_1U, beyond_1U), (within_BU, beyond_BU) = (
            [_per_piece(counts, part) for part in sums_2U2] for counts in (once, many)
        )
        rows = np.array([i for i, _ in runs])
        rise_U, rise_UB = (beyond_1U - within_1U)[0], (beyond_BU - within_BU).T
        return cls(list(names), rows, rise_U, rise_UB, beyond_1U[0], beyond_BU.T, S)

    def moments(self, values_U: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean, sample variance, runs) of each row."""
        each = [values_U[self.row_U == i] for i in range(len(self.names))]
        variances = [values.var(ddof=1) if len(values) > 1 else 0.0 for values in each]
        means, counts = [values.mean() for values in each], [float(len(values)) for values in each]
        return np.array(means), np.array(variances), np.array(counts)

    def ordered(self, first: str) -> "Measured":
        """With the row `first` in front, as `statistics.compare` takes it."""
        names = [first, *(name for name in self.names if name != first)]
        row_U = np.array([names.index(self.names[i]) for i in self.row_U])
        return Measured(names, row_U, self.rise_U, self.rise_UB, self.beyond_U, self.beyond_UB, self.S)


def _sums(run: LongRun) -> np.ndarray:
    """[S, 2, 2]: (nll, pieces) of each line, in the part within the training length and in the part beyond it."""
    within, beyond = sorted(run.at("both").items())
    longer_S = run.lines_S3[:, 1:].max(1) / run.by_length.limit
    parts = [(longer_S > part.above) & (longer_S <= part.upto) for _, part in (within, beyond)]
    return np.stack([run.lines_S3[:, :2] * part[:, None] for part in parts], 1)


def _per_piece(counts_BS: np.ndarray, sums_SU2: np.ndarray) -> np.ndarray:
    """[B, U]: nll over pieces, of lines that occur so often."""
    nll_BU, pieces_BU = (counts_BS @ sums_SU2[..., k] for k in range(2))
    return nll_BU / np.maximum(pieces_BU, 1)


def _excess(measured: Measured, control: str | None) -> dict[str, Estimate]:
    """row -> its rise, less the control's where there is one."""
    if control is not None:
        m = measured.ordered(control)
        return _each(m.names, _differences(m, m.rise_U, m.rise_UB))
    return _each(measured.names, _alone(measured)) if measured.names else {}


def _against(measured: Measured, base: str | None, fixed: bool) -> dict[str, tuple[Estimate, float]]:
    """row -> its nll per piece beyond less base's, and p corrected over the rows; NaN unless seeds were `fixed`."""
    if base not in measured.names or base is None:
        return {}
    m = measured.ordered(base)
    difference = _differences(m, m.beyond_U, m.beyond_UB)
    seeds_R = np.bincount(m.row_U, minlength=len(m.names))
    enough_R = fixed & (np.minimum(seeds_R, seeds_R[0]) >= LEAST)
    p_R = benjamini_hochberg(np.where(enough_R, difference.p, np.nan))
    each = _each(m.names, difference)
    return {name: (each[name], float(p)) for name, p in zip(m.names, p_R, strict=True) if name != base}


def _differences(m: Measured, values_U: np.ndarray, boot_UB: np.ndarray) -> Differences:
    """Untested where the row or the first one has a single seed, though the other rows would lend it a variance."""
    mean_R, variance_R, n_R = m.moments(values_U)
    d = compare(mean_R, variance_R, n_R, sentence_noise(boot_UB, m.row_U, len(m.names), m.S), m.S)
    several_R = (n_R > 1) & (n_R[0] > 1)
    return replace(d, se=np.where(several_R, d.se, np.nan), p=np.where(several_R, d.p, np.nan))


def _alone(m: Measured) -> Estimate:
    """Every row's own rise: `compare` without the other row's part."""
    mean_R, variance_R, n_R = m.moments(m.rise_U)
    zero_1B = np.zeros((1, m.rise_UB.shape[1]))
    noise = sentence_noise(np.concatenate((zero_1B, m.rise_UB)), np.append(0, m.row_U + 1), len(m.names) + 1, m.S)
    shared_R, own_R = noise.shared[1:], noise.own[1:]
    v_R, f_R = moderated(variance_R, n_R - 1, prior_df(variance_R[None], n_R - 1))
    most = (n_R - 1).sum(keepdims=True)
    squared_R, df_R, _ = combine_variances(v_R / n_R, f_R, shared_R, shared_R + own_R / n_R, most, m.S)
    return Estimate(mean_R, np.where(n_R > 1, np.sqrt(squared_R), np.nan), df_R)


def _each(names: Sequence[str], differences: Estimate) -> dict[str, Estimate]:
    numbers = (np.asarray(x).tolist() for x in (differences.estimate, differences.se, differences.df))
    parts = zip(names, *numbers, strict=True)
    return {name: Estimate(estimate, se, df) for name, estimate, se, df in parts}


def _interval(difference: Estimate) -> Interval:
    """Without ends where the seeds allow none."""
    lower, upper = (float(x) for x in difference.interval(ALPHA))
    known = np.isfinite(lower) and np.isfinite(upper) and lower < upper
    return Interval(float(difference.estimate), lower if known else None, upper if known else None)


# --- one row ---


def _row(
    found: LongRuns, name: str, control: str | None, excess: Estimate | None, against: tuple[Estimate, float] | None
) -> BeyondRow:
    runs = found.of(name)
    within, beyond = ([run.at("both")[upto] for run in runs] for upto in sorted(runs[0].at("both")))
    shown = None if excess is None or name == control else _interval(excess)
    to_base = None if against is None else _interval(against[0])
    return BeyondRow(
        row=name,
        n=len(runs),
        within=mean(map(_nll, within)),
        beyond=mean(map(_nll, beyond)),
        excess=shown,
        word="control" if name == control else _word(shown),
        reach=_reach(found, name, control),
        against=to_base,
        p=None if against is None or np.isnan(against[1]) else against[1],
        compared="" if against is None else _better(against),
        bleu_within=_mean([length_class.bleu for length_class in within]),
        bleu_beyond=_mean([length_class.bleu for length_class in beyond]),
        ratio=_mean([_share(length_class.pieces, length_class.tokens) for length_class in beyond]),
        early=_mean([_share(length_class.early, length_class.sentences) for length_class in beyond]),
        points={side: _points(runs, side) for side in SIDES},
    )


def _nll(length_class: LengthClass) -> float:
    return length_class.nll / length_class.tokens


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None else part / whole


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    return mean(known) if (known := _numbers(values)) else None


def _spread(values: Sequence[float | None]) -> Spread | None:
    return Spread.of(known) if (known := _numbers(values)) else None


def _word(excess: Interval | None) -> str:
    if excess is None or excess.lower is None or excess.upper is None:
        return Verdict.UNTESTABLE
    return CARRIES if excess.upper <= TOLERANCE else FALLS_OFF if excess.lower > TOLERANCE else Verdict.UNDECIDED


def _better(against: tuple[Estimate, float]) -> str:
    difference, p = against
    if np.isnan(p):
        return Verdict.UNTESTABLE
    return Verdict.UNDECIDED if p >= ALPHA else Verdict.BETTER if difference.estimate < 0 else Verdict.WORSE


def _reach(runs: LongRuns, name: str, control: str | None) -> float:
    rises = _rises(runs.of(name))
    expected = _rises(runs.of(control)) if control else dict.fromkeys(rises, 0.0)
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
        within = _nll(run.at("both")[1.0])
        for upto, length_class in sorted(run.at("longer").items()):
            if upto > 1:
                rises.setdefault(upto, []).append(_nll(length_class) - within)
    return {upto: mean(values) for upto, values in rises.items()}


def _points(runs: Sequence[LongRun], side: str) -> list[LengthPoint]:
    """The classes that have lines: the same in all runs, as they score the same lines."""
    made = []
    for upto in sorted(runs[0].at(side)):
        each = [run.at(side)[upto] for run in runs]
        made.append(
            LengthPoint(
                above=each[0].above,
                upto=upto,
                sentences=each[0].sentences,
                nll=Spread.of([_nll(length_class) for length_class in each]),
                bleu=_spread([length_class.bleu for length_class in each]),
                ratio=_spread([_share(length_class.pieces, length_class.tokens) for length_class in each]),
                early=_mean([_share(length_class.early, length_class.sentences) for length_class in each]),
            )
        )
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
    gains = [row.against for row in learned]  # learned less base: above 0 where base is better
    names = " and ".join(called.get(row.row, row.row) for row in learned)
    if any(gain is None or gain.lower is None or gain.upper is None for gain in gains):
        return Verdict.UNTESTABLE, f"{told}; too few seeds of {names}"
    if any(gain.upper < TOLERANCE for gain in gains if gain and gain.upper is not None):
        return Verdict.CONTRADICTED, f"{told}, and is not better than {names} by {TOLERANCE:g} nats per token"
    if all(gain.lower > 0 for gain in gains if gain and gain.lower is not None):
        return IN_PART, f"{told}, less than {names}"
    return Verdict.UNDECIDED, f"{told}; not known whether less than {names}"
