"""What the report of a search says, as a dataclass."""

from dataclasses import dataclass
from typing import Any

from lightning_tfm.metrics import METRICS
from lightning_tfm.study.search import Search
from lightning_tfm.study.trials import STATES, Importance, Trial

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

    search: Search
    trials: list[Trial]
    """with their curves, where their runs are here"""
    importance: list[Importance]
    best: list[str]
    gains: list[str]
    """over base, in words"""

    @property
    def seeds(self) -> list[int]:
        """Of every trial, where they are several."""
        return list(self.search.trial_seeds) if len(self.search.trial_seeds) > 1 else []

    @property
    def ties(self) -> dict[str, str]:
        """Parameters that are not sampled but follow the others -> how."""
        return {key: str(next(iter(tie.values()))) for key, tie in self.search.ties.items()}

    @property
    def states(self) -> dict[str, int]:
        """State -> how many trials are in it."""
        return {word: sum(t.state == word for t in self.trials) for word in STATES.values()}

    def with_values(self, *objectives: str) -> list[Trial]:
        return [t for t in self.trials if all(t.values[o] is not None for o in objectives)]

    def content(self) -> dict[str, Any]:
        """What JSON holds."""
        search, data = self.search, self.search.base.data
        whole: dict[str, Any] = {"study": search.name, "corpus": data.corpus, "languages": list(data.languages)}
        whole |= {"sampler": search.sampler, "pruner": search.pruner.type, "asked": search.trials}
        whole |= {key: getattr(search, key) for key in ("objectives", "constraints", "space")}
        whole |= {key: getattr(self, key) for key in ("states", "best", "gains", "importance", "trials")}
        return whole | {key: value for key in ("seeds", "ties") if (value := getattr(self, key))}
