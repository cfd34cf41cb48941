"""What a table and a report say, as dataclasses: made by summarise.py, shown by text, formats and pages."""

from dataclasses import dataclass, field

from lightning_tfm.measure.record import LayerTable
from lightning_tfm.metrics import OF_TEXT
from lightning_tfm.report.analyses.agreement import Agreement, LastEighth
from lightning_tfm.report.analyses.factors import FactorSummary
from lightning_tfm.report.analyses.length_extrapolation import BeyondSummary
from lightning_tfm.report.analyses.softmax import SoftmaxSummary
from lightning_tfm.report.row import SummaryRow, tested
from lightning_tfm.report.wording.claims import ClaimSummary
from lightning_tfm.report.wording.training_setup import Regime
from lightning_tfm.schema import OPTIONAL
from lightning_tfm.study.row_tuning import TuningSummary


@dataclass(frozen=True)
class Table:
    """All rows without tests, and what they have in common."""

    study: str
    scale: str
    """how the miniature divides the paper, empty at full size"""
    signature: str
    """of the metric of translations that the paper prints, empty while there is none"""
    seeds: list[int]
    rows: list[SummaryRow]
    agreement: Agreement | None = None
    last_eighth: LastEighth | None = None
    tuning: TuningSummary | None = None
    foreign: list[str] = field(default_factory=list)
    """rows with other pieces than base"""
    hidden: list[SummaryRow] = field(default_factory=list)
    """rows that `study hide` put apart"""
    signatures: dict[str, str] | None = None
    """of added metrics; None without any"""
    title: str = ""
    """of the study, as its question"""
    question: str = ""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is printed with tests, once they are made."""
        return tested(self.rows, bool(self.foreign))


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
    sentence_noise: bool = field(metadata={"key": f"sentence noise of {OF_TEXT.label}"})
    """whether it is tested with the noise of sentences too: the references are at hand"""
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
    """finished, or requested"""
    agreement: Agreement | None
    last_eighth: LastEighth | None
    claims: list[ClaimSummary]
    rows: list[SummaryRow]
    hidden: list[SummaryRow] | None = field(default=None, metadata=OPTIONAL)
    """rows that `study hide` put apart: in no table, but in every correction and export"""
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
    regime: Regime | None = field(default=None, metadata=OPTIONAL)
    layers: LayerTable | None = field(default=None, metadata={"key": ""})
    """what layer types cost, where it was measured for the study"""
    title: str = field(default="", metadata={"key": ""})
    """of the study, as its question"""
    question: str = field(default="", metadata={"key": ""})

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
