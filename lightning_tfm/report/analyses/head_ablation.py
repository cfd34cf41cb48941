"""What `inspect` found of a run, as text and pictures: what each head is worth, score and seconds by beam."""

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from lightning_tfm.metrics import chief
from lightning_tfm.plural_words import interval, signed
from lightning_tfm.report.blocks import Block, Figures, Fold, Notes, Section, Table, columns
from lightning_tfm.report.charts.grid import grid
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Summary

CALLED = {
    "encoder": "the encoder's self-attention",
    "decoder": "the decoder's self-attention",
    "cross": "cross-attention",
}
Record = Mapping[str, Any]


def find(cells: Cells, report: Summary) -> list[Block] | None:
    """Of all finished runs that `inspect` looked at."""
    blocks: list[Block] = []
    for row in cells.study.rows:
        for cell in cells.of(row.name):
            heads, beams = map(cell.collected, ("heads", "beams"))
            title = f"{row.label or row.name}, seed {cell.seed}"
            if heads:
                pictures = [(picture, f"{kind}; orange: worse without it.") for kind, picture in head_pictures(heads)]
                blocks.append(Figures(pictures, f"{title}: one head's output at zero, nothing trained", small=True))
                about = "Intervals over sentences, marginal, not corrected for the number of heads."
                every = head_blocks(heads, most=len(list(each(heads))))
                blocks.append(Fold(f"Every head, with {chief(heads).label}", [*every, Notes([about])]))
            if beams:
                blocks += beam_blocks(beams, f"{title}: ")
    return blocks or None


def each(record: Record) -> Iterator[tuple[str, int, int, Record]]:
    """(kind, layer, head, what it is worth), layers and heads from 1, the most valuable first."""
    every = [
        (kind, i + 1, j + 1, head)
        for kind, layers in record["heads"].items()
        for i, layer in enumerate(layers)
        for j, head in enumerate(layer)
    ]
    yield from sorted(every, key=lambda head: -head[3]["nll"])


def head_blocks(record: Record, most: int = 8) -> list[Block]:
    """The most and the least valuable heads."""
    ordered = list(each(record))
    metric = chief(record)
    score = f"{metric.label} {record[metric.name]:.2f}"
    whole = f"all heads: NLL {record['nll']:.4f} per token, {score}, beam {record['beam']}"
    few = len(ordered) <= 2 * most
    rows = [
        [
            f"{kind}, layer {layer}, head {head}",
            signed(worth["nll"], 4),
            interval(worth["low"], worth["high"], lambda end: signed(end, 4)),
            signed(worth[metric.name], 2),
        ]
        for kind, layer, head, worth in (ordered if few else [*ordered[:most], *ordered[-most:]])
    ]
    useless = sum(worth["low"] <= 0 <= worth["high"] for *_, worth in ordered)
    notes = [f"{useless} of {len(ordered)} heads: the interval of the difference in NLL includes zero"]
    notes += [] if few else [f"{len(ordered) - 2 * most} more between them: report/heads.json"]
    title = f"One head ablated, {record['lines']} lines of the dev set; {whole}"
    heads = columns("head", "NLL per token", "95 %", metric.label)
    return [Table(title, heads, rows, frozenset() if few else frozenset({most})), Notes(notes)]


def beam_blocks(record: Record, of: str = "") -> list[Block]:
    """Score, seconds and length by the width of the beam; `of`: before the title."""
    beams, metric = record["beams"], chief(record["beams"][0])
    rows = [[str(b["beam"]), f"{b[metric.name]:.2f}", f"{b['seconds']:.1f}", f"{b['length']:.3f}"] for b in beams]
    title = f"{of}{record['lines']} lines of the dev set, alpha {record['alpha']:g}, threads: {record['threads']}"
    return [Table(title, columns("beam", metric.label, "seconds", "tokens / reference"), rows)]


def head_pictures(record: Record) -> list[tuple[str, Markup]]:
    """(kind, picture) of the change in nll, layer by head."""
    pictures = []
    for kind, layers in record["heads"].items():
        if layers:
            values = [[head["nll"] for head in layer] for layer in layers]
            down, across = ({i: str(i + 1) for i in range(n)} for n in (len(values), len(values[0])))
            title = f"NLL per token with one head ablated, {CALLED[kind]}"
            pictures.append((CALLED[kind], grid(title, values, down, across, ("layer", "head"))))
    return pictures


ANALYSIS = Analysis(
    key="heads",
    find=find,
    sections=lambda blocks, report: [Section("heads", "Heads and beams", blocks, after="architecture")],
    json=False,
)
