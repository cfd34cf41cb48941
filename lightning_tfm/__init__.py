"""Every row of Table 3 of "Attention Is All You Need", on any hardware.

The names below are the stable ones for Python (docs/howto/python.md). Each is imported when it is first used, so
that the command line starts without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_tfm.config import Experiment as Experiment
    from lightning_tfm.data.module import TranslationData as TranslationData
    from lightning_tfm.data.prepare import prepare as prepare
    from lightning_tfm.inference.attention_hooks import attention_places as attention_places
    from lightning_tfm.inference.attention_hooks import watch_attention as watch_attention
    from lightning_tfm.judging.scores_callback import Scores as Scores
    from lightning_tfm.judging.verdicts import judge as judge
    from lightning_tfm.model.transformer import Transformer as Transformer
    from lightning_tfm.results import load_run as load_run
    from lightning_tfm.results import load_study as load_study
    from lightning_tfm.study.settings import load_experiment as load_experiment
    from lightning_tfm.training.module import TransformerModule as TransformerModule

_HOME = {
    "Experiment": "config",
    "Scores": "judging.scores_callback",
    "Transformer": "model.transformer",
    "TransformerModule": "training.module",
    "TranslationData": "data.module",
    "attention_places": "inference.attention_hooks",
    "load_experiment": "study.settings",
    "load_run": "results",
    "judge": "judging.verdicts",
    "load_study": "results",
    "prepare": "data.prepare",
    "watch_attention": "inference.attention_hooks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lightning_tfm' has no attribute '{name}'; it has {', '.join(_HOME)}")
    return getattr(import_module(f"lightning_tfm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
