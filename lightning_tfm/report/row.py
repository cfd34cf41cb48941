"""What a table says about one row: its scores, and its difference to base.

Differences in perplexity are differences of log PPL; `percent` says the same as a change of PPL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lightning_tfm.metrics import BYTE, CHARACTER, METRICS, PPL, PRINTED, WORD, Metric
from lightning_tfm.plural_words import interval
from lightning_tfm.report.serialize import BY_METRIC, INLINE
from lightning_tfm.report.stats.evidence import NUMBERS, Evidence
from lightning_tfm.schema import OPTIONAL
from lightning_tfm.study.rows import Paper

PLAIN = {
    "N": "depth",
    "d_model": "width",
    "d_ff": "feed-forward width",
    "d_k": "key width",
    "d_v": "value width",
    "h": "heads",
    "P_drop": "dropout",
    "eps_ls": "label smoothing",
    "warmup": "warm-up",
    "lr_factor": "learning-rate factor",
    "feed_forward": "feed-forward",
}
"""field -> what a headline and a picture call it; tables have the field itself"""


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
class Multiplier(Interval):
    """Of compute (report/analyses/compute_multiplier.py); a bound has no estimate and one end."""

    marked: bool
    """it has another schedule than what it is compared with, or the rate was still falling to zero where it is read"""

    def __str__(self) -> str:
        mark = "*" * self.marked
        if self.estimate is None:
            return f"> {self.lower:.2f}{mark}" if self.lower is not None else f"< {self.upper:.2f}{mark}"
        return f"{self.estimate:.2f}{mark} {interval(self.lower, self.upper, '{:.2f}'.format)}".rstrip()


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
class Difference:
    """A row's difference to base (or Summary.reference) in one metric, ours and the paper's, as it is tested. It has
    the numbers of its evidence, too: None where there was no test, and where there are no scores."""

    verdict: str
    """a verdict_words.Verdict"""
    why: str
    paper: float | None
    """the paper's own"""
    paper_is_clear: bool | None = field(default=None, metadata=OPTIONAL)
    """beyond the noise of single runs"""
    evidence: Evidence | None = field(default=None, metadata=INLINE)
    """None without scores of the row and of base"""
    percent: Percent | None = field(default=None, metadata=OPTIONAL)
    """of perplexity"""
    factor: Interval | None = field(default=None, metadata=OPTIONAL)
    """ours over the paper's, which is taken as exact; where the paper's is clear and they share a unit"""
    paper_percent: float | None = field(default=None, metadata=OPTIONAL)
    beside: str = field(default="", metadata={"key": ""})
    """what is printed beside the verdict (verdict_words.phrase)"""

    def __getattr__(self, name: str) -> float | None:
        if name not in NUMBERS:
            raise AttributeError(name)
        number: float | None = getattr(self.evidence, name, None)
        return number

    @property
    def in_print(self) -> "Percent | Difference":
        """As it is printed: perplexity in percent."""
        return self.percent or self


@dataclass(frozen=True)
class Scores:
    """A row's scores in one metric."""

    mean: float | None
    """metrics.Metric.mean"""
    sd: float | None
    """metrics.Metric.sd"""
    by_seed: dict[str, float]
    difference: Difference | None = None
    """to base; None for base itself"""
    instead: str = field(default="–", metadata={"key": ""})
    """what is shown if there is no mean"""


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
    """seeds far above the others of the row, as a plateau of the loss leaves them (report/wording/outlier_seeds.py)"""
    ties: dict[str, Any] = field(default_factory=dict, metadata={"key": ""})
    """of `change`: what its values follow (study/expressions.py)"""
    same_as: str | None = field(default=None, metadata={"key": "is", **OPTIONAL})
    """the row with the same runs, so that this one is not a comparison"""
    more: dict[str, Scores] = field(default_factory=dict, metadata=BY_METRIC)
    """in metrics that some records lack, where every run of the row has one"""
    character: Scores | None = field(default=None, metadata={"key": "nll per character", **OPTIONAL})
    elsewhere: str | None = field(default=None, metadata=OPTIONAL)
    """what others print of this change, with the source"""
    label: str = field(default="", metadata={"key": ""})
    """what people call it"""
    typed: dict[str, Any] = field(default_factory=dict, metadata={"key": ""})
    """by column, as it is typed, where a miniature divides it"""
    worth: Multiplier | None = field(default=None, metadata=OPTIONAL)
    """of compute in steps, to base (or Summary.reference)"""
    worth_flops: Multiplier | None = field(default=None, metadata=OPTIONAL)
    """the same in FLOPs"""

    @property
    def called(self) -> str:
        """Its label; of a combination (norm=pre, warmup=400) what differs from base, in plain words; else its name."""
        if self.label or self.base or "=" not in self.name:
            return self.label or self.name
        own = {name: self.typed.get(name, value) for name, value in self.values.items() if name not in self.blank}
        return " + ".join(f"{PLAIN.get(name, name)} {str(value).lower()}" for name, value in own.items()) or self.name

    def metric(self, name: str) -> Scores:
        """One of metrics.METRICS; empty where there is none."""
        return (self.scores | self.more).get(name) or Scores(None, None, {})

    def with_metrics(self, changed: Mapping[str, Scores]) -> "SummaryRow":
        scores, more = ({name: changed.get(name, own) for name, own in of.items()} for of in (self.scores, self.more))
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


def nll_metrics(rows: Sequence[SummaryRow]) -> list[Metric]:
    """The nll per reference word and character that any row has: records of before they were kept print blank; of a
    text without a source by bytes."""
    if any(BYTE.name in row.more for row in rows):
        return [WORD, BYTE]
    return [WORD, CHARACTER] * any(row.word is not None for row in rows)


def printed_metrics(rows: Sequence[SummaryRow]) -> list[Metric]:
    """Of what the paper prints, what the rows are scored by."""
    return [METRICS[name] for name in PRINTED if any(name in row.scores for row in rows)]
