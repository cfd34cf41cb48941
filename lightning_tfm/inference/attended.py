"""All attention of a model, one after the other, and how its comparisons are watched or changed for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.data.store import Split
from lightning_tfm.model.attention import Attention
from lightning_tfm.model.transformer import Transformer

KINDS = ("encoder", "decoder", "cross")
"""self-attention of both stacks, and the decoder's over the memory"""
Compare = Callable[..., torch.Tensor]
"""`Attention.compare`"""


class Place(NamedTuple):
    """Of an attention in a model."""

    kind: str
    layer: int
    module: Attention


def places(transformer: Transformer) -> list[Place]:
    """In the order of KINDS; layers of other types have none. One stack is the decoder's."""
    stacks = (transformer.encoder, transformer.decoder, transformer.decoder)
    names = ("self_attention", "self_attention", "cross_attention")
    found = []
    for kind, layers, name in zip(KINDS, stacks, names, strict=True):
        for i, layer in enumerate(layers):
            module: Any = getattr(layer, name, None)
            if isinstance(module, Attention):
                found.append(Place(kind, i, module))
    return found


@contextmanager
def comparing(changed: list[tuple[Attention, Compare]]) -> Iterator[None]:
    """These attentions compare by other functions while the block runs."""
    for module, compare in changed:
        module.compare = compare  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module, _ in changed:
            del module.compare


def some_lines(split: Split, most: int) -> list[Batch]:
    """At most `most` sentence pairs, evenly spread over the text, each by itself and so without padding."""
    lines = np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).round().astype(int))
    return [make_batch([split.source(i)], [split.target(i)], np.array([i])) for i in lines]
