"""What a table and a report say, as dataclasses: made by build_summary.py, shown by tables, formats and pages.

Differences in perplexity are differences of log PPL; `percent` says the same as a change of PPL.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lightning_tfm.metrics import BYTE, CHARACTER, METRICS, OF_TEXT, PPL, PRINTED, WORD, Metric
from lightning_tfm.plural_words import interval
from lightning_tfm.report.blocks import Section
from lightning_tfm.report.serialize import BY_METRIC, INLINE
from lightning_tfm.report.stats.evidence import ABOUT, NUMBERS, Evidence
from lightning_tfm.report.stats.statistics import ALPHA
from lightning_tfm.report.wording.claims import ClaimSummary
from lightning_tfm.schema import OPTIONAL
from lightning_tfm.study.rows import Paper

if TYPE_CHECKING:
    from lightning_tfm.report.records import Cells

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

    @property
    def paper_in_print(self) -> float | None:
        """The paper's, in the unit of `in_print`."""
        return self.paper if self.paper_percent is None else self.paper_percent


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
        return " + ".join(f"{PLAIN.get(name, name)} {str(value).lower()}" for name, value in own.items()) or "as base"

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


SCHEMA = 6
F = TypeVar("F")


def nothing(result: Any, report: "Summary") -> Sequence[Any]:
    """Of an analysis that says nothing there."""
    return []


@dataclass(frozen=True, kw_only=True)
class Analysis(Generic[F]):
    """What is found in the cells, and where a report says it; what says something takes what was found and the report.

    A new one is a file in analyses/ that ends with an `Analysis`, and its line in `analyses/catalog.py:ANALYSES`.
    """

    key: str
    """of what was found in Summary.analyses, and in JSON"""
    find: "Callable[[Cells, Summary], F | None]"
    """None where it does not apply; the report holds rows, and what earlier analyses of the list found"""
    sections: "Callable[[F, Summary], Sequence[Section]]" = nothing
    """of the page; Section.after says where"""
    lead: "Callable[[F, Summary], Sequence[str]]" = nothing
    """sentences on top of the page and of other headlines"""
    closing: "Callable[[F, Summary], Sequence[str]]" = nothing
    """the same, after what was found of single rows"""
    notes: "Callable[[F, Summary], Sequence[str]]" = nothing
    """below the table: of Markdown, and of what the next two say"""
    notes_on_page: bool = True
    """false where its sections say the same there"""
    notes_in_latex: bool = False
    brief: "Callable[[F, Summary], Sequence[str]]" = nothing
    """below the table in a terminal"""
    on_dashboard: bool = False
    """whether the dashboard's page of the study shows the pictures of its sections, below the main figure"""
    json: bool = True
    """whether what was found is in JSON"""
    without_tests: bool = False
    """whether a table without tests has it, too"""
    in_text: bool = False
    """whether text and Markdown have its sections, too"""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All rows with what they have in common, and once they are tested what the tests say."""

    schema: int = SCHEMA
    study: str
    scale: str
    """how the miniature divides the paper, empty at full size"""
    signature: str
    """of the metric of translations that the paper prints, empty while there is none"""
    seeds: list[int]
    corpus: str
    text: str = field(default="", metadata={"key": ""})
    """the corpus in plain words"""
    languages: list[str]
    """source and target"""
    tested: bool = False
    """whether rows have differences with tests"""
    sentences: int | None = None
    """of the dev text, where rows are tested"""
    sentence_noise: bool = field(default=False, metadata={"key": f"sentence noise of {OF_TEXT.label}"})
    """whether it is tested with the noise of sentences too: the references are at hand"""
    alpha: float = ALPHA
    interval_level: float = 1 - ALPHA
    """that the rows' intervals cover with: those of the last look"""
    looks: list[dict[str, list[int]]] | None = None
    """row -> seeds of each look; None where seeds were fixed beforehand"""
    most_looks: int | None = None
    power: float = ABOUT
    clear: dict[str, float]
    """metrics.Metric.clear"""
    finished: int
    cells: int
    """finished, or requested"""
    claims: list[ClaimSummary] = field(default_factory=list)
    rows: list[SummaryRow]
    hidden: list[SummaryRow] | None = field(default=None, metadata=OPTIONAL)
    """rows that `study hide` put apart: in no table, but in every correction and export"""
    reference: str | None = field(default=None, metadata=OPTIONAL)
    """row that differences, p and words are to, where it is not base"""
    foreign: list[str] | None = field(default=None, metadata={"key": "other pieces", **OPTIONAL})
    """rows with other pieces than the one that all are compared with: their perplexities are not compared"""
    signatures: dict[str, str] | None = field(default=None, metadata=OPTIONAL)
    """of added metrics"""
    outdated: dict[str, int] = field(default_factory=dict, metadata={"key": ""})
    """added metric -> runs whose score by another version of it is left out"""
    analyses: dict[str, Any] = field(default_factory=dict, metadata=INLINE)
    """key of an analysis -> what it found"""
    title: str = field(default="", metadata={"key": ""})
    """of the study, as its question"""
    question: str = field(default="", metadata={"key": ""})

    def of(self, analysis: Analysis[F]) -> F | None:
        """What the analysis found; None where it does not apply."""
        return self.analyses.get(analysis.key)

    @property
    def base(self) -> SummaryRow | None:
        return next((row for row in self.rows if row.base), None)

    @property
    def level(self) -> str:
        """Of the rows' intervals, in percent: 95, or more after looks."""
        return f"{100 * self.interval_level:.4g}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is tested, once rows are: what every record holds, the nll per word where rows have other pieces, and
        what was added."""
        more = {name for row in self.rows for name in (*row.scores, *row.more) if not METRICS[name].beside}
        return tuple(name for name in METRICS if name in more or (name == WORD.name and self.foreign is not None))

    @property
    def metrics_beside(self) -> list[Metric]:
        """What is printed after perplexity and the nll per word."""
        return [METRICS[name] for name in self.metrics if name not in (PPL.name, WORD.name)]

    @property
    def primary(self) -> Metric:
        """The metric that decides: perplexity, or where rows have other pieces the nll per word."""
        return WORD if WORD.name in self.metrics else PPL

    @property
    def to(self) -> str:
        """What all rows are compared with, in words."""
        return self.reference or "base"

    @property
    def at_zero(self) -> str:
        """What stands at zero on an axis of differences: names of rows may have no room there."""
        return "0 %" if self.reference else "base"

    @property
    def against(self) -> SummaryRow | None:
        """The row that all others are compared with."""
        return next((row for row in self.rows if row.name == self.reference), None) if self.reference else self.base
