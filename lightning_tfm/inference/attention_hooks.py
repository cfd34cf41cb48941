"""All attention of a model, one after the other, and what it compares, looked at for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.data.token_store import Split
from lightning_tfm.model.attention import Attention
from lightning_tfm.model.transformer import SequenceModel

KINDS = ("encoder", "decoder", "cross")
"""self-attention of both stacks, and the decoder's over the memory"""


class Place(NamedTuple):
    """Of an attention in a model."""

    kind: str
    layer: int
    module: Attention


class Look(NamedTuple):
    """What one attention compared: [B, H, T, S] each, `mask` and `bias` broadcast to that, None where there is none."""

    scores: Tensor | None
    """before the mask; None of what mixes other than by one softmax"""
    weights: Tensor
    mask: Tensor | None
    bias: Tensor | None


def attention_places(transformer: SequenceModel) -> list[Place]:
    """Every attention of a model, in the order of KINDS: the encoder's layers, the decoder's, then its cross-attention.
    Layers of other types have none. One stack is the decoder's."""
    stacks = (transformer.encoder, transformer.decoder, transformer.decoder)
    names = ("self_attention", "self_attention", "cross_attention")
    places = []
    for kind, layers, name in zip(KINDS, stacks, names, strict=True):
        for i, layer in enumerate(layers):
            module: Any = getattr(layer, name, None)
            if isinstance(module, Attention):
                places.append(Place(kind, i, module))
    return places


@contextmanager
def watch_attention(at: list[Place], note: Callable[[Place, Look], None]) -> Iterator[None]:
    """`note` is called with what each of these attentions compares, at each of its calls while the block runs. What is
    compared is not changed; dropout of weights comes after it."""
    for place in at:
        place.module.watch = partial(_notify, note, place)
    try:
        yield
    finally:
        for place in at:
            del place.module.watch


def _notify(note: Callable[[Place, Look], None], place: Place, *seen: Any) -> None:
    note(place, Look(*seen))


def some_lines(split: Split, most: int) -> list[Batch]:
    """At most `most` sentence pairs, evenly spread over the text, each by itself and so without padding."""
    lines = np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).round().astype(int))
    return [make_batch([split.source(i)], [split.target(i)], np.array([i])) for i in lines]
