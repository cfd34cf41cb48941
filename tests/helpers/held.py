"""A positional scheme that holds a training back until a file appears: a test has the time it needs on any machine."""

import os
import time
from pathlib import Path

from lightning_tfm.model.positions import EmbeddingScheme, Sinusoidal

VARIABLE = "HELD_UNTIL"
"""environment variable with the path of that file"""
NAME = f"{__name__}.Held"
SECONDS = float(os.environ.get("HELD_SECONDS", "0.02"))
"""for each of the two embeddings of a step; long ones need few steps, which are computed when they are let go"""


class Held(EmbeddingScheme):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.sinusoidal = Sinusoidal(sizes)

    def embed(self, x_BTD, scale, start):
        if self.training and not Path(os.environ[VARIABLE]).exists():
            time.sleep(SECONDS)
        return self.sinusoidal.embed(x_BTD, scale, start)
