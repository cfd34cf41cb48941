"""What the report of a search says, as a dataclass."""

from dataclasses import dataclass, field

from lightning_tfm.schema import OPTIONAL
from lightning_tfm.study.space import Parameter
from lightning_tfm.study.trials import Importance, Trial


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
    title: str = field(default="", metadata={"key": ""})
    question: str = field(default="", metadata={"key": ""})

    def with_values(self, *objectives: str) -> list[Trial]:
        """Trials with a value in each of the objectives."""
        return [t for t in self.trials if all(t.values[o] is not None for o in objectives)]
