"""All positional schemes that ship, by name."""

from lightning_tfm.model.classes import find_class
from lightning_tfm.model.positions import (
    BiasScheme,
    EmbeddingScheme,
    Learned,
    NoPositions,
    PositionScheme,
    PositionSizes,
    Rotary,
    RotationScheme,
    Sinusoidal,
)
from lightning_tfm.model.relative import T5, ALiBi, Fire, Kerple, Shaw, ShawValues


class LearnedScaled(Learned):
    """Learned vectors that begin at the sinusoids' size, N(0, 1/2), an rms of 0.71; `learned`'s at N(0, 1/d_model).

    Beside it `learned` differs from the sinusoids in size and scheme, this one in the scheme alone.
    """

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.table_TD.initial_std = 0.5**0.5  # type: ignore[attr-defined]


SCHEMES: dict[str, type[PositionScheme]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "learned_scaled": LearnedScaled,
    "none": NoPositions,
    "rotary": Rotary,
    "shaw": Shaw,
    "shaw_values": ShawValues,
    "t5": T5,
    "alibi": ALiBi,
    "kerple": Kerple,
    "fire": Fire,
}


def find_scheme(name: str) -> type[PositionScheme]:
    """The class of that name, or at that import path. Raises UserError naming the nearest valid name."""
    return find_class("model.positions", name, SCHEMES, (EmbeddingScheme, RotationScheme, BiasScheme))
