"""How rows tell positions, drawn from what `report --collect` wrote: position x channel, or by distance."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.report.blocks import Block, Figures, Notes, Section
from lightning_tfm.report.charts.grid import grid, some
from lightning_tfm.report.pages import provenance
from lightning_tfm.report.records import Cells
from lightning_tfm.study.rows import apply

SHOWS = {
    "embedding": "what is added to the embeddings",
    "rotation": "the product of a unit vector with itself turned by a distance",
    "bias": "what is added to the scores, mean over the queries of the dev set",
}


def section(cells: Cells) -> Section:
    """Of rows with another scheme than those before them, by the first seed that has it; empty if none has."""
    found: list[Block] = []
    seen: set[Any] = set()
    for row in cells.study.rows:
        model = apply(cells.study.base, row).model
        runs = ((cell.seed, provenance.collected(cell, "positions")) for cell in cells.of(row.name))
        for seed, record in [(seed, record) for seed, record in runs if record and record["stacks"]][:1]:
            if (model.positions, model.clip) not in seen:
                seen.add((model.positions, model.clip))
                kind = next(iter(record["stacks"].values()))["kind"]
                title = f"{model.positions}, row {row.name}, seed {seed}: {SHOWS[kind]}"
                found.append(Figures(_pictures(row.name, model.h, record), title, small=True))
    colours = "Orange: above zero; blue: below; the stronger the colour, the larger the number."
    notes = [Notes([colours, "What is learned is that of the last weights."])] * bool(found)
    return Section("positions", "How positions are encoded", [*found, *notes])


def before_training(name: str, model: Model, record: Mapping[str, Any]) -> Markup:
    """The encoder's, of a model that is not trained. Raises UserError where there is nothing to draw."""
    if not record["stacks"]:
        raise UserError(f"{name}: model.positions={model.positions}: no positions are given to this model")
    one = record["stacks"]["encoder"]
    return _picture(f"{model.positions} positions of {name}: {SHOWS[one['kind']].partition(',')[0]}", model.h, one)


def _pictures(row: str, h: int, record: Mapping[str, Any]) -> list[tuple[Markup, str]]:
    """Each with the name of its stack."""
    stacks = record["stacks"]
    alike = len(stacks) == 2 and stacks["encoder"] == stacks["decoder"]
    named = {"both stacks": stacks["encoder"]} if alike else stacks
    return [(_picture(f"{record['positions']} of row {row}, {name}", h, one), name) for name, one in named.items()]


def _picture(title: str, h: int, one: Mapping[str, Any]) -> Markup:
    values = one["values"]
    rows, columns = len(values), len(values[0])
    if one["kind"] == "embedding":
        channels = {i: str(int(words) * one["step"]) for i, words in some(columns).items()}
        return grid(title, values, some(rows), channels, ("position", "channel"))
    if one["kind"] == "rotation":
        return grid(title, values, some(rows), some(columns), ("channel", "distance"))
    layers = {i: f"layer {1 + i // h}" for i in range(0, rows, h)}
    distances = some(columns, one["first"], 13)
    return grid(title, values, layers, distances, ("heads", "key's position minus the query's"))
