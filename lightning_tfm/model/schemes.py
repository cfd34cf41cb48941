"""All positional schemes that ship, by name."""

from lightning_tfm.model.classes import find_class
from lightning_tfm.model.positions import (
    BiasScheme,
    EmbeddingScheme,
    Learned,
    LearnedScaled,
    NoPositions,
    PositionScheme,
    Rotary,
    RotationScheme,
    Sinusoidal,
)
from lightning_tfm.model.relative import T5, ALiBi, Fire, Kerple, Shaw, ShawValues

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
