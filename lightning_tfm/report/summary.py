"""What a table and a report say, as dataclasses: made by summarise.py, shown by text, formats and pages.

Differences in perplexity are differences of log PPL; `percent` says the same as a change of PPL. As JSON (`plain`) a
field is a key, with blanks for underscores.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from statistics import stdev
from typing import Any

import numpy as np

from lightning_tfm.metrics import METRICS, PPL, PRINTED, WORD
from lightning_tfm.study.rows import Paper
from lightning_tfm.study.space import Parameter

COLUMNS = {
    "N": ("model", "N"),
    "d_model": ("model", "d_model"),
    "d_ff": ("model", "d_ff"),
    "h": ("model", "h"),
    "d_k": ("model", "d_k"),
    "d_v": ("model", "d_v"),
    "P_drop": ("model", "P_drop"),
    "eps_ls": ("training", "eps_ls"),
    "positions": ("model", "positions"),
    "train steps": ("training", "steps"),
}
"""the paper's columns, and where an experiment holds them"""


OPTIONAL = {"optional": True}
"""of a field that JSON lacks where it is None"""
WEIGHED = {"weighed": True}
"""of a field that JSON lacks where there was nothing to weigh"""
BY_METRIC = {"by metric": True}
"""of a field whose keys are metrics, and in JSON keys beside the other fields"""


# --- one row ---


@dataclass(frozen=True)
class Interval:
    """An estimate with its marginal 95 % interval."""

    estimate: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Percent(Interval):
    """A difference in percent of PPL."""

    smallest: float | None


@dataclass(frozen=True)
class Difference:
    """A row's difference to base (or Summary.reference) in one metric, ours and the paper's, in log PPL or BLEU.

    From `estimate` to `prospect` it is verdict.Evidence, None where there was no test, or where there are no scores.
    """

    verdict: str
    """a verdict.Word"""
    why: str
    paper: float | None
    """the paper's own"""
    paper_is_clear: bool | None = field(default=None, metadata=OPTIONAL)
    """beyond the noise of single runs"""
    estimate: float | None = field(default=None, metadata=WEIGHED)
    se: float | None = field(default=None, metadata=WEIGHED)
    df: float | None = field(default=None, metadata=WEIGHED)
    lower: float | None = field(default=None, metadata=WEIGHED)
    upper: float | None = field(default=None, metadata=WEIGHED)
    p: float | None = field(default=None, metadata=WEIGHED)
    holm: float | None = field(default=None, metadata=WEIGHED)
    equivalent: float | None = field(default=None, metadata=WEIGHED)
    half: float | None = field(default=None, metadata=WEIGHED)
    smallest: float | None = field(default=None, metadata=WEIGHED)
    needed: float | None = field(default=None, metadata=WEIGHED)
    prospect: float | None = field(default=None, metadata=WEIGHED)
    percent: Percent | None = field(default=None, metadata=OPTIONAL)
    """of perplexity"""
    factor: Interval | None = field(default=None, metadata=OPTIONAL)
    """ours over the paper's, which is taken as it stands; where the paper's is clear and they share a unit"""
    paper_percent: float | None = field(default=None, metadata=OPTIONAL)
    beside: str = field(default="", metadata={"key": ""})
    """what is printed beside the verdict (verdict.phrase)"""
    weighed: bool = field(default=False, metadata={"key": ""})
    """whether there are scores of the row and of base"""

    @property
    def shown(self) -> "Percent | Difference":
        """As it is printed: perplexity in percent."""
        return self.percent or self


@dataclass(frozen=True)
class Scores:
    """A row's scores in one metric."""

    mean: float | None
    sd: float | None
    """over seeds (n-1)"""
    by_seed: dict[str, float]
    difference: Difference | None = None
    """to base; None for base itself"""
    instead: str = field(default="–", metadata={"key": ""})
    """what stands where there is no mean"""


@dataclass(frozen=True)
class SummaryRow:
    """One row of the table."""

    group: str
    name: str = field(metadata={"key": "row"})
    base: bool
    """it changes nothing"""
    change: dict[str, Any]
    """dotted keys and values at the paper's scale"""
    values: dict[str, Any]
    """by column, at the sizes that were trained"""
    blank: list[str]
    """columns equal to base, which the paper leaves blank"""
    parameters: int | None
    n: int
    """finished runs"""
    flops: float | None
    """of one training, as is `seconds`; mean over the runs"""
    seconds: float | None
    paper: Paper
    missing: dict[str, str]
    """seed -> why its cell is empty"""
    scores: dict[str, Scores] = field(metadata=BY_METRIC)
    """in each metric that every record holds"""
    diverged: list[int] | None = field(default=None, metadata=OPTIONAL)
    """seeds whose training diverged: the row has no mean then, of the others neither"""
    far_above: list[int] = field(default_factory=list)
    """seeds far above the others of the row, as a plateau of the loss leaves them (report/far_above.py)"""
    body: int | None = field(default=None, metadata={"key": ""})
    """parameters without tables of positions, by the sizes"""
    ties: dict[str, Any] = field(default_factory=dict, metadata={"key": ""})
    """of `change`: what its values follow (study/ties.py)"""
    same_as: str | None = field(default=None, metadata={"key": "is", **OPTIONAL})
    """the row whose runs are its own, too, so that it is no comparison of its own"""
    more: dict[str, Scores] = field(default_factory=dict, metadata=BY_METRIC)
    """in metrics that some records lack, where every run of the row has one"""
    character: Scores | None = field(default=None, metadata={"key": "nll per character", **OPTIONAL})
    elsewhere: str | None = field(default=None, metadata=OPTIONAL)
    """what others print of this change, with the source"""

    def metric(self, name: str) -> Scores:
        """One of metrics.METRICS; empty where there is none."""
        return (self.scores | self.more).get(name) or Scores(None, None, {})

    def with_metrics(self, changed: Mapping[str, Scores]) -> "SummaryRow":
        scores, more = ({name: changed.get(name, one) for name, one in of.items()} for of in (self.scores, self.more))
        return replace(self, scores=scores, more=more)

    @property
    def ppl(self) -> Scores:
        return self.scores[PPL.name]

    @property
    def word(self) -> Scores | None:
        """The nll per reference word; tested where rows have other pieces."""
        return self.more.get(WORD.name)

    @property
    def primary(self) -> Difference | None:
        """The difference in the metric that decides: perplexity, or nll per word where that is compared."""
        return self.word.difference if self.word and self.word.difference else self.ppl.difference


def tested(rows: Sequence[SummaryRow], by_word: bool) -> tuple[str, ...]:
    """Metrics: those that every record holds, the nll per word where rows have other pieces, and what was added."""
    more = {name for row in rows for name in row.more if name != WORD.name} | {WORD.name for _ in range(by_word)}
    return tuple(name for name in METRICS if name in PRINTED or name in more)


# --- agreement with the paper over all rows (report/agreement.py) ---


@dataclass(frozen=True)
class OfBaseSize:
    """Rows with as many parameters as base."""

    rows: int
    spearman: float | None


@dataclass(frozen=True)
class RankDifference:
    """Spearman's correlation less that of the parameter count; the 95 % interval is over rows."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class MetricAgreement:
    """In one metric, over a set of rows; correlations are rank correlations with the paper."""

    rows: int
    spearman: float | None
    interval_over_rows: list[float | None] | None
    """95 % with the rows as a sample of rows"""
    kendall: float | None
    """tau-b"""
    parameter_count_alone: float | None
    parameter_count_kendall: float | None
    less_parameter_count: RankDifference | None
    given_parameter_count: float | None
    size_of_base: OfBaseSize
    ceiling: float | None
    """given the paper's noise and ours"""
    clear_beyond: float
    clear_rows: int
    with_the_paper: int
    if_every_change_is_worse: int
    against_the_paper: list[str]
    """clear rows that are not on the paper's side"""


@dataclass(frozen=True)
class RowSetAgreement:
    """Over one set of rows."""

    by_metric: dict[str, MetricAgreement | None] = field(metadata=BY_METRIC)

    @property
    def ppl(self) -> MetricAgreement:
        found = self.by_metric[PPL.name]
        assert found is not None, "there is no agreement without it"
        return found


@dataclass(frozen=True)
class CoursePoint:
    """At one validation of base."""

    share: float
    """of each row's own training"""
    step: int
    """of base"""
    base_ppl: float
    spearman: float | None


@dataclass(frozen=True)
class AgreementCourse:
    """The rank correlation in log PPL in the course of training."""

    rows: int
    parameter_count_alone: float | None
    points: list[CoursePoint]


@dataclass(frozen=True)
class Agreement(RowSetAgreement):
    """Over all rows, and over those that a miniature's regime was not chosen on."""

    calibrated_on: list[str] | None
    not_calibrated_on: RowSetAgreement | None
    curve: AgreementCourse | None


@dataclass(frozen=True)
class LastEighth:
    """How far base had finished learning."""

    fall: float
    """share by which its dev perplexity fell over the last eighth of its training; negative where it rose"""
    threshold: float
    still_falling: bool


# --- lines beyond the training length (report/beyond.py) ---


@dataclass(frozen=True)
class Spread:
    """Over seeds."""

    mean: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(sum(values) / len(values), min(values), max(values))


@dataclass(frozen=True)
class LengthPoint:
    """One class of lengths, in training lengths: above … upto."""

    above: float
    upto: float
    sentences: int
    nll: Spread
    """per piece"""
    bleu: Spread
    ratio: Spread
    """pieces of the translations over those of the references"""
    early: float
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
    """carries, falls off, undecided, not testable; control"""
    reach: float
    """in training lengths"""
    against: Interval | None
    """nll per piece beyond, less base's; None for base"""
    p: float | None
    """of that, corrected"""
    compared: str
    """better, worse, undecided, not testable; empty for base"""
    bleu_within: float
    bleu_beyond: float
    ratio: float
    """of lengths, beyond, as is `early`"""
    early: float
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


# --- studies of all combinations of some fields (report/factors.py) ---


@dataclass(frozen=True)
class Factor:
    """A field that a study varies."""

    key: str
    levels: list[str]
    """the reference level first"""


@dataclass(frozen=True)
class Effect:
    """A main effect or an interaction, in log PPL or BLEU."""

    kind: str
    """main or interaction"""
    metric: str
    words: list[str]
    """the levels that are compared: of one field, or of both"""
    estimate: float
    lower: float | None = None
    """of the marginal 95 % interval, as is `upper`; None where there are too few seeds"""
    upper: float | None = None
    p: float | None = None
    """corrected over the effects of its kind by Benjamini and Hochberg; None where there are too few seeds"""
    depends_on: list[str] = field(default_factory=list)
    """of a main effect: fields with which it interacts at p < 0.05, so that it averages over unlike combinations"""


@dataclass(frozen=True)
class HeatMap:
    """Mean scores over the levels of two fields."""

    first: str
    second: str
    metric: str
    values: list[list[float | None]]
    """[level of the first][level of the second]; PPL or BLEU"""


@dataclass(frozen=True)
class FactorSummary:
    """What each field is worth."""

    factors: list[Factor]
    effects: list[Effect]
    maps: list[HeatMap]


# --- tuned rows (report/tuning.py) ---


@dataclass(frozen=True)
class TunedRow:
    """What a row took."""

    row: str
    value: Any
    ppl: dict[str, float]
    """value -> mean dev PPL over the tuning seeds"""
    other: float | None = field(default=None, metadata=OPTIONAL)
    """share of the redrawn choices that take another value (report/choice.py)"""


@dataclass(frozen=True)
class TuningSummary:
    """How every row came to its own value of a field."""

    key: str
    values: list[Any]
    seeds: list[int]
    """apart from those of the table"""
    study: str
    """of the runs that the choice took"""
    runs: int | None
    """None, as `seconds` and `flops`, where this was not kept"""
    seconds: float | None
    flops: float | None
    """of all its runs together"""
    rows: list[TunedRow]


# --- softmaxes by d_k (report/softmax.py) ---


@dataclass(frozen=True)
class SoftmaxRow:
    """Of one row, at one moment, of one kind of attention."""

    row: str
    scores: str
    d_k: int
    """that was trained"""
    n: int
    """runs"""
    when: str
    """start or end of the training"""
    kind: str
    """encoder, decoder, cross, or all of them"""
    alone: bool = field(metadata={"key": ""})
    """it changes scores and d_k alone"""
    entropy: Spread
    """over ln of the number of keys"""
    saturated: Spread
    """share of softmaxes"""
    gradient: Spread
    """share of the gradient at the scores that passes saturated ones"""


@dataclass(frozen=True)
class SoftmaxSummary:
    """Whether softmaxes saturate."""

    saturated_below: float
    """of Σ p (1 - p)"""
    lines: int
    """of the dev text"""
    rows: list[SoftmaxRow]


# --- the whole ---


@dataclass(frozen=True)
class Table:
    """All rows without tests, and what they have in common."""

    study: str
    scale: str
    """how the miniature divides the paper, empty at full size"""
    signature: str
    """of the BLEU scores, empty while there is none"""
    seeds: list[int]
    rows: list[SummaryRow]
    agreement: Agreement | None = None
    last_eighth: LastEighth | None = None
    tuning: TuningSummary | None = None
    foreign: list[str] = field(default_factory=list)
    """rows with other pieces than base"""
    signatures: dict[str, str] | None = None
    """of added metrics; None without any"""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is printed with tests, once they are made."""
        return tested(self.rows, bool(self.foreign))


@dataclass(frozen=True)
class ClaimFinding:
    """What one row says about a claim (claims.Finding)."""

    row: str
    says: str
    estimate: float | None
    p: float | None
    against: float | None
    percent: float | None


@dataclass(frozen=True)
class ClaimSummary:
    """A claim of the paper's section 6.2."""

    text: str
    verdict: str
    p: float | None
    findings: list[ClaimFinding]


@dataclass(frozen=True)
class Summary:
    """Everything the report says."""

    schema: int
    study: str
    scale: str
    signature: str
    seeds: list[int]
    corpus: str
    languages: list[str]
    """source and target"""
    sentences: int | None
    """of the dev text"""
    sentence_noise: bool = field(metadata={"key": "sentence noise of BLEU"})
    """whether BLEU is tested with the noise of sentences too: the references are at hand"""
    alpha: float
    interval_level: float
    """that the rows' intervals cover with: those of the last look"""
    looks: list[dict[str, list[int]]] | None
    """row -> seeds of each look; None where seeds were fixed beforehand"""
    most_looks: int | None
    power: float
    clear: dict[str, float]
    """metrics.Metric.clear"""
    finished: int
    cells: int
    """finished, or asked for"""
    agreement: Agreement | None
    last_eighth: LastEighth | None
    claims: list[ClaimSummary]
    rows: list[SummaryRow]
    factors: FactorSummary | None = field(default=None, metadata=OPTIONAL)
    """where the rows are all combinations of some fields"""
    reference: str | None = field(default=None, metadata=OPTIONAL)
    """row that differences, p and words are to, where it is not base"""
    tuning: TuningSummary | None = field(default=None, metadata=OPTIONAL)
    """where every row has its own best value of a field"""
    foreign: list[str] | None = field(default=None, metadata={"key": "other pieces", **OPTIONAL})
    """rows with other pieces than the one that all are compared with: their perplexities are not compared"""
    softmax: SoftmaxSummary | None = field(default=None, metadata=OPTIONAL)
    """where rows change how queries and keys are compared, or their width, and it was collected"""
    signatures: dict[str, str] | None = field(default=None, metadata=OPTIONAL)
    """of added metrics"""
    beyond: BeyondSummary | None = field(default=None, metadata={"key": "beyond the training length", **OPTIONAL})

    @property
    def base(self) -> SummaryRow | None:
        return next((row for row in self.rows if row.base), None)

    @property
    def level(self) -> str:
        """Of the rows' intervals, in percent: 95, or more after looks."""
        return f"{100 * self.interval_level:.4g}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is tested."""
        return tested(self.rows, self.foreign is not None)

    @property
    def to(self) -> str:
        """What all rows are compared with, in words."""
        return self.reference or "base"

    @property
    def against(self) -> SummaryRow | None:
        """The row that all others are compared with."""
        return next((row for row in self.rows if row.name == self.reference), None) if self.reference else self.base


def plain(value: Any) -> Any:
    """For JSON."""
    if is_dataclass(value):
        kept = [f for f in fields(value) if _key_of(f) and not _left_out(value, f)]
        found: dict[str, Any] = {}
        for f in kept:
            own = plain(getattr(value, f.name))
            by_metric = "by metric" in f.metadata
            found |= {METRICS[name].key: v for name, v in own.items()} if by_metric else {_key_of(f): own}
        return found
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def _key_of(field_: Any) -> str:
    return field_.metadata.get("key", field_.name.replace("_", " "))


def _left_out(value: Any, field_: Any) -> bool:
    absent = "optional" in field_.metadata and getattr(value, field_.name) is None
    return absent or ("weighed" in field_.metadata and not value.weighed)


def rounded(value: Any) -> Any:
    """At ten significant digits, so that the order of a sum on another machine does not change a byte.

    NaN and infinities become None, tuples lists, keys text.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: rounded(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


# --- searches (report/search.py) ---


@dataclass(frozen=True)
class Trial:
    """One run of a search."""

    trial: str
    state: str
    change: dict[str, Any]
    """dotted keys and values at the paper's scale"""
    values: dict[str, float | None]
    """by objective; None where the trial has none"""
    steps_seen: int | None = field(metadata={"key": "steps_seen"})
    """last optimizer step that reported a dev perplexity"""
    run: str
    feasible: bool
    """within the limits"""
    reason: str
    command: str
    """that trains it again by itself, at the first of its seeds"""
    by_seed: dict[str, dict[str, float]] | None = field(default=None, metadata=OPTIONAL)
    """objective -> seed -> value, where trials have several seeds and `values` are means"""
    tied: dict[str, Any] | None = field(default=None, metadata=OPTIONAL)
    """what the tied parameters come to"""
    curve: list[tuple[int, float]] = field(default_factory=list, metadata={"key": ""})
    """(step, dev perplexity) of its run, or that at the first of its seeds, where that is here"""

    def sd(self, objective: str) -> float | None:
        """Over the seeds (n-1); None below two."""
        found = (self.by_seed or {}).get(objective, {})
        return stdev(found.values()) if len(found) > 1 else None


@dataclass(frozen=True)
class Importance:
    """What each parameter explains of an objective, or why nobody can tell."""

    objective: str
    trials: int
    """finished ones that it stands on"""
    stopped: int
    """left out of it"""
    why_not: str | None = field(default=None, metadata=OPTIONAL)
    importance: dict[str, float] | None = field(default=None, metadata=OPTIONAL)
    """share of each parameter, the largest first"""


@dataclass(frozen=True)
class SearchSummary:
    """Everything the report of a search says."""

    schema: int
    kind: str
    study: str
    corpus: str
    languages: list[str]
    sampler: str
    pruner: str
    asked: int
    """trials"""
    objectives: dict[str, str]
    """name -> minimize or maximize"""
    constraints: dict[str, float]
    space: list[Parameter]
    states: dict[str, int]
    best: list[str]
    gains: list[str]
    """over base, in words"""
    importance: list[Importance]
    trials: list[Trial]
    seeds: list[int] | None = field(default=None, metadata=OPTIONAL)
    """of every trial, where they are several"""
    ties: dict[str, str] | None = field(default=None, metadata=OPTIONAL)
    """parameters that are not sampled but follow the others -> how"""

    def with_values(self, *objectives: str) -> list[Trial]:
        """Trials with a value in each of the objectives."""
        return [t for t in self.trials if all(t.values[o] is not None for o in objectives)]
