"""What a translation is scored by, each metric declared once. No torch, no numpy.

A metric is one line here. What tests it, prints it in every format, draws it and ranks by it reads its traits from this
line.
"""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    name: str
    """its key in records, JSON and CSV"""
    label: str
    """its name beside a number"""
    digits: int
    """of a score"""
    fine: int
    """of a difference"""
    head: str = ""
    """of a narrow column; empty: `label`"""
    called: str = ""
    """within a sentence; empty: `label`"""
    unit: str = ""
    """of a difference in print; empty: `label`"""
    drawn: str = ""
    """what an axis says of it; empty: dev and `called`"""
    lower_is_better: bool = False
    log: bool = False
    """whether its logarithm is tested; differences are printed in percent"""
    sigma: float | None = None
    """standard deviation over seeds of one full-size run; None: nobody knows it, so no word speaks of equality"""
    printed: bool = True
    """whether the paper prints it"""
    columns: tuple[str, str] = ("", "")
    """of the table of sentences, whose sums' ratio is tested"""
    counted: str = ""
    """class in counting.py, of a metric that reads the translations"""
    field: str = ""
    """of a score's record; empty: `name`"""
    key: str = ""
    """in JSON and CSV; empty: `name`"""
    same_unit: bool = False
    """whether a miniature's differences may be compared in size with those of the paper"""

    def __post_init__(self) -> None:
        for trait, of in {"head": "label", "called": "label", "unit": "label", "field": "name", "key": "name"}.items():
            object.__setattr__(self, trait, getattr(self, trait) or getattr(self, of))

    @property
    def clear(self) -> float:
        """tau: a difference of two single runs, as the paper prints them, is clear only beyond two of its standard
        deviations."""
        return math.nan if self.sigma is None else 2 * 2**0.5 * self.sigma

    @property
    def side(self) -> int:
        """Sign of a better difference."""
        return -1 if self.lower_is_better else 1

    @property
    def brief(self) -> int:
        """Digits of a difference where room is scarce."""
        return min(self.digits, self.fine)

    @property
    def tested_as(self) -> str:
        return "log " * self.log + self.label

    def of(self, score: Any) -> float | None:
        """Of a run's record.Score; None where it was not scored so."""
        added = score.measures.get(self.name)
        return added.value if added else getattr(score, self.field, None)

    def tested(self, score: float) -> float:
        """What is tested of a score."""
        return math.log(score) if self.log else score

    def shown(self, difference: float) -> float:
        """A tested difference as it is printed."""
        return 100 * math.expm1(difference) if self.log else difference

    def size(self, shown: float, sign: str = "") -> str:
        """A difference as it is printed, with its unit."""
        return f"{shown:{sign}.{self.fine}f} {self.unit}"

    def better(self, difference: float) -> bool:
        return difference * self.side > 0

    def axis(self, to: str) -> str:
        """What the axis of a picture of differences says."""
        side = "left" if self.lower_is_better else "right"
        return f"difference in {self.drawn or f'dev {self.called}'} to {to}{', %' * self.log} ({side} is better)"


PPL = Metric(
    "ppl",
    "PPL",
    digits=2,
    fine=1,
    called="perplexity",
    unit="% PPL",
    lower_is_better=True,
    log=True,
    sigma=0.005,
    columns=("nll", "tokens"),
    same_unit=True,
)
"""0.5 % of perplexity between full-size runs, so that 1.4 % is clear"""
BLEU = Metric("bleu", "BLEU", digits=1, fine=2, sigma=0.3, counted="Bleu")
"""some 0.3 between checkpoints near the end (NVIDIA's notes on its Transformer; published reproductions spread alike),
so that 0.85 is clear"""
WORD = Metric(
    "word",
    "nll per word",
    digits=3,
    fine=3,
    head="nll/word",
    unit="nats per word",
    drawn="nats per reference word",
    lower_is_better=True,
    sigma=PPL.sigma,
    columns=("nll", "words"),
    field="nll_per_word",
    key="nll per word",
    printed=False,
    same_unit=True,
)
"""nll per reference word, which no segmentation moves"""
CHRF = Metric("chrf", "chrF", digits=1, fine=2, counted="Chrf", printed=False)
METRICS = {metric.name: metric for metric in (PPL, WORD, BLEU, CHRF)}
PRINTED = tuple(metric.name for metric in METRICS.values() if metric.printed)
"""what the paper prints, and every record holds"""
ADDED = tuple(metric.name for metric in METRICS.values() if metric.counted and not metric.printed)
"""what `validate` adds to a score; a study prints and tests them where all its runs have them"""
OF_TEXT = BLEU
"""what sentences are compared by where there is room for one metric"""


def in_print(score: Any, finer: int = 1) -> str:
    """PPL 3.251, BLEU 30.12: what every record holds, with so many digits more than a table."""
    metrics = [METRICS[name] for name in PRINTED]
    return ", ".join(f"{m.label} {m.of(score):.{m.digits + finer}f}" for m in metrics)
