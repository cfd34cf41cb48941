"""What a translation is scored by, each metric declared once. No torch, no numpy.

A metric is one line here. What tests it, prints it in every format, draws it and ranks by it reads its traits there.
A user-defined one is a class, corpus_metrics.py:Summed, named by its path `module:Class`; it has the same traits as
attributes.
"""

import inspect
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.plural_words import numeral


@dataclass(frozen=True)
class Metric:
    name: str
    """its key in records, JSON and CSV"""
    label: str
    """its name beside a number"""
    digits: int
    """of a score"""
    difference_digits: int
    """of a difference"""
    column_head: str = ""
    """of a narrow column; empty: `label`"""
    prose_name: str = ""
    """within a sentence; empty: `label`"""
    unit: str = ""
    """of a difference in print; empty: `label`"""
    lower_is_better: bool = False
    log: bool = False
    """whether its logarithm is tested; differences are printed in percent"""
    sigma: float | None = None
    """standard deviation over seeds of one full-size run; None: unknown, so no verdict of equality"""
    printed: bool = True
    """whether the paper prints it"""
    columns: tuple[str, str] = ("", "")
    """of the table of sentences, whose sums' ratio is tested"""
    counted: str = ""
    """class in corpus_metrics.py, or the path `module:Class` of one, of a metric that reads the translations"""
    asked: bool = False
    """whether it is added only where it is named: it means nothing for most texts"""
    field: str = ""
    """of a score's record; empty: `name`"""
    key: str = ""
    """in JSON and CSV; empty: `name`"""
    same_unit: bool = False
    """whether a miniature's differences may be compared in size with those of the paper"""

    def __post_init__(self) -> None:
        by_label = dict.fromkeys(("column_head", "prose_name", "unit"), "label")
        for trait, of in (by_label | dict.fromkeys(("field", "key"), "name")).items():
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
        return min(self.digits, self.difference_digits)

    @property
    def beside(self) -> bool:
        """Whether it is the nll over another count than pieces: printed, and tested (WORD) where pieces differ."""
        return not (self.counted or self.printed)

    @property
    def more(self) -> bool:
        """Whether it may be added to a score; a study prints and tests it where all its runs have it."""
        return bool(self.counted) and not self.printed

    @property
    def tested_as(self) -> str:
        return "log " * self.log + self.label

    def of(self, score: Any) -> float | None:
        """Of a run's record.Score; None where it was not scored with this metric."""
        added = score.measures.get(self.name)
        return added.value if added else getattr(score, self.field, None)

    def transform(self, score: float) -> float:
        """The transformed score that is tested."""
        return score if not self.log else -math.inf if score <= 0 else math.log(score)

    def mean(self, scores: Collection[float]) -> float:
        """Back from the mean of what is tested, so that means of rows differ by their differences: the geometric
        mean of perplexities. A single one, of whatever kind, is itself."""
        if len(scores) == 1:
            return next(iter(scores))
        average = mean(map(self.transform, scores))
        return math.exp(average) if self.log else average

    def sd(self, scores: Collection[float]) -> float | None:
        """Standard deviation (n-1) of what is tested, of logarithms in percent; None below two, or where any of it is
        not finite."""
        tested = [self.transform(score) for score in scores]
        if len(tested) < 2 or not all(map(math.isfinite, tested)):
            return None
        return stdev(tested) * (100 if self.log else 1)

    @property
    def sd_key(self) -> str:
        return "sd" + " %" * self.log

    def score(self, mean: float, sd: float | None = None) -> str:
        """As it is printed: 2.13 ± 1.8 % for perplexity, 60.7 ± 0.8 for BLEU."""
        return f"{mean:.{self.digits}f}" + ("" if sd is None else f" ± {self.spread(sd)}")

    def spread(self, sd: float) -> str:
        """A standard deviation as it is printed."""
        return f"{sd:.{self.difference_digits}f} %" if self.log else f"{sd:.{self.digits}f}"

    def in_units(self, difference: float) -> float:
        """A tested difference as it is printed."""
        return 100 * math.expm1(difference) if self.log else difference

    def size(self, difference: float) -> str:
        """A difference `in_units` as it is printed, with its unit."""
        return f"{numeral(difference, f'z.{self.difference_digits}f')} {self.unit}"

    def true_difference(self, difference: float) -> str:
        """A difference of this size; more than 100 % is given as a multiple."""
        if self.log and difference > 100:
            return f"a true {self.prose_name} {1 + difference / 100:.1f} times as high"
        return f"a true difference of {self.size(difference)}"

    def better(self, difference: float) -> bool:
        return difference * self.side > 0


PPL = Metric(
    "ppl",
    "PPL",
    digits=2,
    difference_digits=1,
    prose_name="perplexity",
    unit="% PPL",
    lower_is_better=True,
    log=True,
    sigma=0.005,
    columns=("nll", "tokens"),
    same_unit=True,
)
"""0.5 % of perplexity between full-size runs, so that 1.4 % is clear"""
BLEU = Metric("bleu", "BLEU", digits=1, difference_digits=2, sigma=0.3, counted="Bleu")
"""some 0.3 between checkpoints near the end (NVIDIA's notes on its Transformer; published reproductions spread so),
so that 0.85 is clear"""
WORD = Metric(
    "word",
    "nll per word",
    digits=3,
    difference_digits=3,
    column_head="nll/word",
    unit="nats per word",
    lower_is_better=True,
    sigma=PPL.sigma,
    columns=("nll", "words"),
    field="nll_per_word",
    key="nll per word",
    printed=False,
    same_unit=True,
)
"""nll per reference word, which no segmentation changes"""
CHARACTER = replace(
    WORD,
    name="character",
    label="nll per character",
    column_head="nll/char",
    field="nll_per_character",
    key="nll per character",
)
"""printed beside it, and never tested"""
BYTE = replace(
    WORD,
    name="byte",
    label="nll per byte",
    column_head="nll/byte",
    unit="nats per byte",
    columns=("nll", "bytes"),
    field="nll_per_byte",
    key="nll per byte",
)
"""the same for a language model's text, in UTF-8"""
CHRF = Metric("chrf", "chrF", digits=1, difference_digits=2, counted="Chrf", printed=False)
EXACT = Metric(
    "exact", "exact", digits=1, difference_digits=2, unit="% exact", counted="Exact", printed=False, asked=True
)
F1, PRECISION, RECALL = (
    Metric(
        name.lower(),
        name,
        digits=1,
        difference_digits=2,
        counted=f"lightning_tfm.parseval:{name}",
        printed=False,
        asked=True,
    )
    for name in ("F1", "Precision", "Recall")
)
ILL_FORMED = replace(
    EXACT,
    name="ill_formed",
    label="ill-formed",
    column_head="",
    prose_name="",
    unit="% ill-formed",
    field="",
    key="",
    lower_is_better=True,
    counted="lightning_tfm.parseval:IllFormed",
)
"""of trees, as the three above: by EVALB's rules"""


class Metrics(dict[str, Metric]):
    """All metrics by name; a user-defined one, requested by its path, is included from then on."""

    def __init__(self, *ship: Metric):
        super().__init__((metric.name, metric) for metric in ship)

    def __missing__(self, name: str) -> Metric:
        """Raises UserError naming the nearest, what the import said, or what the class lacks."""
        module, _, attribute = name.replace(":", ".").rpartition(".")
        if not module or not attribute:
            names = [metric.name for metric in self.values() if metric.more]
            raise UserError(f"metric '{name}': {nearest(name, names)} (or the path of a class, module:Class)")
        if name != f"{module}:{attribute}":
            return self[f"{module}:{attribute}"]
        from lightning_tfm.user_code.modules import class_at

        cls = class_at(name, "metric ")
        bases = {f"{c.__module__}:{c.__name__}" for c in getattr(cls, "__mro__", ())}
        whole = "lightning_tfm.corpus_metrics:Summed" in bases and not inspect.isabstract(cls) and hasattr(cls, "WIDTH")
        if not (whole and isinstance(inspect.getattr_static(cls, "score"), staticmethod)):
            raise UserError(
                f"metric '{name}' must derive from Summed (lightning_tfm.corpus_metrics) and define WIDTH, "
                "counts(self, hypotheses) and, as a static method, score(sums)"
            )
        for old, new in RENAMED.items():
            if old in vars(cls) and not callable(getattr(cls, old)):
                raise UserError(f"metric '{name}': its trait `{old}` is now called {new}")
        traits = {trait: getattr(cls, trait) for trait in OF_OWN if hasattr(cls, trait)}
        if wrong := [f"{t}={v!r}" for t, v in traits.items() if type(v) is not Metric.__annotations__[t]]:
            raise UserError(f"metric '{name}': {', '.join(wrong)} has another type than in metrics.Metric")
        plain: dict[str, Any] = {"label": attribute, "digits": 1, "difference_digits": 2}
        self[name] = Metric(name, counted=name, printed=False, asked=True, **plain | traits)
        return self[name]

    def named(self, names: str) -> list[Metric]:
        """Those of `f1+exact`, which may be added. Raises UserError."""
        if wrong := next((sign for sign in ", ;" if sign in names), "+" * (names != "" and "" in names.split("+"))):
            raise UserError(f"metrics '{names}': names are joined by +, as in chrf+exact, without {wrong!r} elsewhere")
        metrics = [self[name] for name in names.split("+") if names]
        for metric in metrics:
            if not metric.more:
                raise UserError(f"metric '{metric.name}' is in every score: remove it")
        ((label, number),) = Counter(m.label for m in [*map(self.__getitem__, PRINTED), *metrics]).most_common(1)
        if number > 1:
            raise UserError(f"metrics '{names}': {number} columns would be labelled '{label}'")
        return metrics


OF_OWN = ("label", "digits", "difference_digits", "column_head", "prose_name", "unit", "lower_is_better", "log")
"""traits that a user-defined class may have"""
RENAMED = {"fine": "difference_digits", "head": "column_head", "called": "prose_name"}
"""earlier names of these, which are refused -> today's"""
METRICS = Metrics(PPL, WORD, BYTE, BLEU, CHRF, F1, PRECISION, RECALL, ILL_FORMED, EXACT)
PRINTED = tuple(metric.name for metric in METRICS.values() if metric.printed)
"""what the paper prints, and every record of a translated text holds"""
ADDED = tuple(metric.name for metric in METRICS.values() if metric.more and not metric.asked)
"""what `validate` adds to a score unasked"""
OF_TEXT = BLEU
"""what sentences are compared by where there is only room for one metric"""


def chief(names: Collection[str]) -> Metric:
    """Of metrics that a text is scored by, the one for where there is room for one: what was asked for since it says
    nothing of most texts, else OF_TEXT. A user-defined one is passed over, which not every reader can import."""
    return next((m for m in METRICS.values() if m.asked and m.name in names and ":" not in m.name), OF_TEXT)


def paper_metrics(translated: bool) -> list[str]:
    """Of PRINTED, what a text is scored by: one without a source (config.Data.translated) has no translation."""
    return [name for name in PRINTED if translated or not METRICS[name].counted]


def metrics_held_by(score: Any) -> list[Metric]:
    """Of PRINTED, what a record.Score holds."""
    return [METRICS[name] for name in PRINTED if METRICS[name].of(score) is not None]


def numbers(score: Any) -> dict[str, float]:
    """Metric -> what a record.Score holds of it: of PRINTED, and what was added."""
    values = {name: METRICS[name].of(score) for name in PRINTED}
    values |= {name: added.value for name, added in score.measures.items()}
    return {name: value for name, value in values.items() if value is not None}


def in_print(score: Any, finer: int = 1) -> str:
    """PPL 3.251, BLEU 30.12: what the paper prints and any further metrics, with `finer` more digits than a table."""
    metrics = [*metrics_held_by(score), *(metric for name, metric in METRICS.items() if name in score.measures)]
    return ", ".join(f"{m.label} {m.of(score):.{m.digits + finer}f}" for m in metrics)


def in_words(score: Any) -> str:
    """perplexity 3.2511, BLEU 30.12."""
    return ", ".join(f"{m.prose_name} {m.of(score):.{m.digits + 1 + m.log}f}" for m in metrics_held_by(score))
