"""What the report of a search says, as a dataclass."""

from dataclasses import dataclass, field

from lightning_tfm.metrics import METRICS
from lightning_tfm.schema import OPTIONAL
from lightning_tfm.study.space import Parameter
from lightning_tfm.study.trials import Importance, Trial

FIELDS = {
    "model.N": "layers",
    "model.d_model": "model width",
    "model.d_ff": "feed-forward width",
    "model.h": "heads",
    "model.kv_heads": "key-value heads",
    "model.d_k": "key width",
    "model.d_v": "value width",
    "model.P_drop": "dropout",
    "model.P_attention": "attention dropout",
    "model.P_ff": "feed-forward dropout",
    "training.tokens": "tokens per step",
    "training.warmup": "warm-up steps",
    "training.lr_factor": "learning rate factor",
    "training.eps_ls": "label smoothing",
    "training.clip_norm": "gradient clipping",
    "data.vocab_size": "vocabulary size",
}
"""field of an experiment -> what people call it, where that is not the last part of its name"""


def field_name(key: str) -> str:
    """In plain words: dropout for model.P_drop."""
    return FIELDS.get(key) or key.rpartition(".")[2].replace("_", " ")


def objective_name(objective: str) -> str:
    """In words: dev perplexity for dev/ppl."""
    split, _, name = objective.partition("/")
    return f"{split} {METRICS[name].prose_name}" if name in METRICS else objective


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
