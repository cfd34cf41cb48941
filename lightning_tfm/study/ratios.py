"""`miniature: {width: 16, hold: ratios}`: the regime that follows only from the paper's ratios and the width.

The paper's base has 63 to 65 million parameters, trains on 4.5 million pairs of some 28 target pieces for 100,000 steps
of 25,000. So it sees

    2.0 different target pieces a parameter, each of them in 20 epochs: 40 trained pieces a parameter,

warms up over 4 % of its steps, ends at warmup^0.5 steps^-0.5 = 0.20 of its peak rate, and peak rate times width is
512^0.5 4000^-0.5 = 0.358. With P the parameters of base at its true sizes and the training.tokens of a step as given:

    steps  = 40 seen P / training.tokens            warmup = 0.04 steps
    factor = (512 / d_model)^0.5 (warmup / 4000)^0.5
    pairs, or share of the text: so that 2.0 P target pieces (end tokens counted) are left to train on

`seen` scales the budget openly: 0.25 trains for a quarter of the steps, on the same text. Rows follow base: they get
its text, its steps (times 3 for `big`) and its rate. The result is an experiment in plain numbers like any other, which
is what is kept and hashed; `hold` is a way to write it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lightning_tfm.config import Data, Experiment
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.model.size import count_parameters
from lightning_tfm.registry import CORPORA

HOLD, SEEN = "miniature.hold", "miniature.seen"
KINDS = ("ratios",)
FOLLOW = (
    ("training", "steps"),
    ("training", "warmup"),
    ("training", "lr_factor"),
    ("data", "pairs"),
    ("data", "share"),
    ("miniature", "steps"),
)
"""sections and fields that are derived: HOLD discards what files set before it"""
UNIQUE, EPOCHS, WARMUP = 2.0, 20.0, 0.04
"""of the paper: different target pieces a parameter, times that each is trained on, share of the steps"""
D_MODEL, WARM = 512, 4000
"""of the paper's base, whose peak rate times width is held"""
NEAR = 0.005
"""remaining relative error of the text's size"""
TRIES = 6
PAIR = 12.0
"""target pieces of a generated pair, as a first guess"""

Count = Callable[[Data], tuple[int, int]]
"""a text -> (target pieces to train on, end tokens counted; pieces of its vocabulary)"""


@dataclass(frozen=True)
class BudgetRequest:
    """What was requested."""

    seen: float = 1.0
    where: str = ""
    given: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """of FOLLOW, what the command line gives, and files after HOLD, with their places"""

    @classmethod
    def of(cls, requested: dict[str, tuple[Any, str]], given: dict[str, tuple[Any, str]]) -> "BudgetRequest | None":
        """From HOLD and SEEN with their places in files, and what is `given`. Raises UserError."""
        kind, where = requested.get(HOLD, (None, ""))
        seen, there = requested.get(SEEN, (1.0, ""))
        if kind is not None and kind not in KINDS:
            raise UserError(f"{where}: {HOLD}={kind!r}: {nearest(str(kind), KINDS)}")
        if isinstance(seen, bool) or not isinstance(seen, int | float) or not 0 < seen < math.inf:
            raise UserError(f"{there}: {SEEN}={seen!r}: expected a number above 0, 1 for the paper's budget")
        if kind is None and SEEN in requested:
            raise UserError(f"{there}: {SEEN}={seen}: scales the budget of {HOLD}=ratios: set that, too")
        return None if kind is None else cls(float(seen), where, given)


@dataclass(frozen=True)
class Regime:
    """An experiment with its ratios held, and the results."""

    base: Experiment
    parameters: int
    pieces: int
    """different ones, target side"""
    seen: float

    @property
    def lines(self) -> list[str]:
        """What was derived, and from what."""
        t, d = self.base.training, self.base.data
        unique, trained = self.pieces / self.parameters, t.steps * t.tokens / self.parameters
        warm = t.warmup / t.steps
        text = f"{d.pairs:,} pairs" if _is_generated(d) else f"data.share {d.share:g}"
        scaled = "" if self.seen == 1 else f", {self.seen:g} of the paper's budget"
        return [
            f"ratios held at {self.parameters:,} parameters of base: {text}, {self.pieces:,} target tokens; "
            f"{t.steps:,} steps, warm-up {t.warmup}, lr_factor {t.lr_factor:g}",
            f"{unique:.2f} unique and {trained:.1f} training target tokens per parameter, {trained / unique:.1f} epochs"
            f"{scaled}; warm-up {100 * warm:.1f} % of the steps, rate at the end {math.sqrt(warm):.2f} of its peak",
        ]


def hold(base: Experiment, held: BudgetRequest, count: Count) -> Regime:
    """`base` with its text, steps, warm-up and rate by the paper's ratios.

    Raises UserError where a value that follows is given otherwise, or where the text is too short.
    """
    where = held.where
    if base.training.schedule != "inverse_sqrt":
        raise UserError(
            f"{where}: {HOLD}=ratios holds the decay of training.schedule=inverse_sqrt, not of {base.training.schedule}"
        )
    data, pieces, P = _text(base, count, where)
    exact = base.scaled()
    steps = max(1, round(UNIQUE * EPOCHS * held.seen * P / base.training.tokens))
    warmup = max(1, round(WARMUP * steps))
    factor = float(f"{math.sqrt(D_MODEL / exact.model.d_model * warmup / WARM):.3g}")
    training = replace(base.training, steps=steps, warmup=warmup, lr_factor=factor)
    experiment = replace(base, data=data, training=training, miniature=replace(base.miniature, steps=1))
    _check_given(experiment, held)
    return Regime(experiment, P, pieces, held.seen)


def _text(base: Experiment, count: Count, where: str) -> tuple[Data, int, int]:
    """(the text, its target pieces, parameters of base over its vocabulary)."""
    generated = _is_generated(base.data)
    P = parameters(base, base.data.vocab_size)
    size = max(1, round(UNIQUE * P / PAIR)) if generated else 1.0
    for _ in range(TRIES):
        data = replace(base.data, pairs=int(size)) if generated else replace(base.data, share=size)
        pieces, V = count(data)
        P = parameters(base, V)
        if not generated and size == 1.0 and pieces < UNIQUE * P * (1 - NEAR):
            raise UserError(_too_short(base, pieces, V, where))
        if abs(pieces / (UNIQUE * P) - 1) <= NEAR:
            break
        wanted = size * UNIQUE * P / max(pieces, 1)
        size = max(1, round(wanted)) if generated else min(1.0, float(f"{wanted:.4g}"))
    return data, pieces, P


def parameters(base: Experiment, V: int) -> int:
    """Of base at its true sizes, over a vocabulary of V pieces."""
    return count_parameters(base.scaled().model, V)["total"]


def _too_short(base: Experiment, pieces: int, V: int, where: str) -> str:
    need = UNIQUE * parameters(base, V)
    why = (
        f"{where}: {HOLD}=ratios: the data have {pieces:,} target tokens, and {need:,.0f} are asked for ({UNIQUE} per "
    )
    why += f"parameter of base at miniature.width={base.miniature.width} and {V:,} tokens of vocabulary)"
    for width in range(base.miniature.width + 1, base.model.d_model + 1):
        try:
            fed = UNIQUE * parameters(replace(base, miniature=replace(base.miniature, width=width)), V) <= pieces
        except UserError:  # sizes that it does not divide
            continue
        if fed:
            return f"{why}: it is enough for miniature.width={width}; or use a longer text"
    return f"{why}: it is too short for any width; use a longer text or a smaller data.vocab_size"


def _is_generated(data: Data) -> bool:
    return data.corpus in CORPORA and CORPORA[data.corpus].generated


def _check_given(experiment: Experiment, held: BudgetRequest) -> None:
    """Raise UserError where a derived number was given, and differs."""
    for key, (given, where) in held.given.items():
        section, _, name = key.partition(".")
        follows = getattr(getattr(experiment, section), name)
        if given != follows:
            raise UserError(f"{where}: {HOLD}=ratios derives {key} ({follows:g}): leave {key}={given:g} out")
