"""What a run costs, only from its sizes."""

from lightning_tfm.config import Experiment
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.parts import LAYERS

PIECES = 25
"""of a sentence, on a side, if sentence lengths are unknown"""

SOLVE = "solve"
"""key of a value that makes a row cost as much as base (study/solve.py)"""


def predicted_cost(exact: Experiment, V: int, length: int = PIECES) -> float:
    """Training FLOPs of a run if every step is full and a sentence has `length` pieces on a side, to order runs by."""
    tokens = exact.training.tokens
    compared = LAYERS.traits(exact.model.layer).pairs
    near = tokens * compared(exact.model, length) // length
    pairs = AttentionPairs(near, near, tokens * length, 2 * length * length)
    if exact.model.one_stack:
        pairs = AttentionPairs(0, tokens * compared(exact.model, 2 * length) // length, 0, 4 * length * length)
    return float(exact.training.steps * training_flops(exact.model, V, tokens, tokens, pairs))
