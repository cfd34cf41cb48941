"""What heads look at (inference/syntax.py), as text and pictures: how often at the parent, the phrase head, the aligned
word; which heads do so beyond both nulls; and how often heads of a layer agree."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from lightning_tfm.plural_words import signed
from lightning_tfm.report.blocks import Block, Figures, Fold, Notes, Table, columns
from lightning_tfm.report.charts.grid import grid
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA

NAMES = {
    ("encoder", "parent"): "encoder: the parent",
    ("encoder", "head"): "encoder: the phrase head",
    ("decoder", "parent"): "decoder: the parent",
    ("decoder", "head"): "decoder: the phrase head",
    ("cross", "aligned"): "cross-attention: the aligned word",
}
Record = Mapping[str, Any]


def blocks(record: Record, title: str) -> list[Block]:
    """Of one run; empty where nothing was measured."""
    if not record["relations"]:
        return []
    adjusted, best, every = _adjusted(record), [], []
    for one, p_LH in zip(record["relations"], adjusted, strict=True):
        name, distance = NAMES[one["kind"], one["relation"]], one["distance"]
        heads = [
            [*_at(i, j, head), f"{p_LH[i][j]:.3f}"] for i, x in enumerate(one["layers"]) for j, head in enumerate(x)
        ]
        shares = [head["share"] for layer in one["layers"] for head in layer]
        fixed = f"{100 * distance['share']:.1f} ({signed(distance['words'], 0)})"
        found = f"{(p_LH < ALPHA).sum()} of {p_LH.size}"
        best.append([name, f"{one['words']:,}", fixed, found, *heads[int(np.argmax(shares))]])
        every += [[name, *head] for head in heads]
    head = ("layer, head", "share, %", "exchanged", "untrained", "p")
    strongest = f"{title}: the word with a head's strongest weight"
    shown = columns("relation", "words", "best distance", "found", *head, words=["found", "layer, head"])
    agreement = [
        [kind, str(i + 1), f"{100 * one['trained']:.1f}", f"{100 * one['untrained']:.1f}"]
        for kind, layers in record["agreement"].items()
        for i, one in enumerate(layers)
    ]
    alike = Table(
        f"{title}: words at which two heads of a layer agree, %",
        columns("of", "layer", "trained", "untrained"),
        agreement,
    )
    return [
        Figures([(picture, name) for name, picture in _pictures(record)], f"{title}: what heads look at", small=True),
        Table(strongest, shown, best),
        *([alike] if agreement else []),
        Notes(_notes(record)),
        Fold(
            "Every head", [Table(f"{strongest}, every head", columns("relation", *head, words=["layer, head"]), every)]
        ),
    ]


def _adjusted(record: Record) -> list[np.ndarray]:
    """The larger p of each head, corrected over all heads and relations of the run: [relation][layer, head]."""
    p = [
        np.array([[max(h["p_order"], h["p_untrained"]) for h in layer] for layer in one["layers"]])
        for one in record["relations"]
    ]
    flat = benjamini_hochberg(np.concatenate([x.ravel() for x in p]))
    return [
        part.reshape(x.shape) for part, x in zip(np.split(flat, np.cumsum([x.size for x in p])[:-1]), p, strict=True)
    ]


def _at(layer: int, head: int, one: Record) -> list[str]:
    return [f"{layer + 1}, {head + 1}", *(f"{100 * one[name]:.1f}" for name in ("share", "order", "untrained"))]


def _pictures(record: Record) -> list[tuple[str, Markup]]:
    found = []
    for one in record["relations"]:
        name = NAMES[one["kind"], one["relation"]]
        values = [[100 * head["share"] for head in layer] for layer in one["layers"]]
        down, across = ({i: str(i + 1) for i in range(n)} for n in (len(values), len(values[0])))
        found.append((name, grid(f"Share of words, {name}", values, down, across, ("layer", "head"))))
    return found


def _notes(record: Record) -> list[str]:
    return [
        f"{record['sentences']} sentences of the dev set, whose trees and alignments are known, as they are drawn "
        "from them; each relation's line shows its best head",
        "a word has the sum of its tokens' weights, as a query their mean; in the decoder and in cross-attention the "
        "queries are the steps that predict the word",
        f"exchanged: with the gold of other sentences of as many words, mean; untrained: {record['untrained']} heads "
        "of that layer in models with other seeds, mean; best distance: what one fixed distance would give",
        "p: the larger of both nulls', corrected over all heads and relations (Benjamini and Hochberg); found: below "
        f"{ALPHA:g}. It is one run: other seeds put other heads in other places",
    ]
