"""What a table and a report say, as a dataclass: made by build_summary.py, shown by tables, formats and pages."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from lightning_tfm.metrics import METRICS, OF_TEXT, PPL, WORD, Metric
from lightning_tfm.report.analysis import Analysis
from lightning_tfm.report.row import SummaryRow
from lightning_tfm.report.serialize import INLINE
from lightning_tfm.report.stats.power import ABOUT
from lightning_tfm.report.stats.statistics import ALPHA
from lightning_tfm.report.wording.claims import ClaimSummary
from lightning_tfm.schema import OPTIONAL

SCHEMA = 6
F = TypeVar("F")


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
    def against(self) -> SummaryRow | None:
        """The row that all others are compared with."""
        return next((row for row in self.rows if row.name == self.reference), None) if self.reference else self.base
