"""All positional schemes that ship, by name."""

from lightning_tfm.model.classes import find_class
from lightning_tfm.model.positions import (
    BiasScheme,
    EmbeddingScheme,
    Learned,
    NoPositions,
    PositionScheme,
    Rotary,
    RotationScheme,
    Sinusoidal,
)
from lightning_tfm.model.relative import ALiBi, Shaw

SCHEMES: dict[str, type[PositionScheme]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "none": NoPositions,
    "rotary": Rotary,
    "shaw": Shaw,
    "alibi": ALiBi,
}


def find_scheme(name: str) -> type[PositionScheme]:
    """The class of that name, or at that import path. Raises UserError naming the nearest valid name."""
    return find_class("model.positions", name, SCHEMES, (EmbeddingScheme, RotationScheme, BiasScheme))
