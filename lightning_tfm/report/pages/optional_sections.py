"""What a page shows beside the table where its rows ask for it: costs of layers, softmaxes, heads."""

from dataclasses import dataclass, replace

from markupsafe import Markup

from lightning_tfm.config import Experiment
from lightning_tfm.registry import LAYERS, may_act
from lightning_tfm.report.analyses import (
    architecture,
    head_ablation,
    layer_table,
    length_extrapolation_text,
    softmax,
)
from lightning_tfm.report.blocks import Section
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables.columns import labels
from lightning_tfm.study.rows import Row, apply
from lightning_tfm.study.study import Ablation

MOST = 20
"""rows whose architecture a page shows beside base's"""


@dataclass(frozen=True)
class Drawn:
    """The architecture of a row."""

    row: str
    called: str
    picture: Markup


@dataclass(frozen=True)
class Extras:
    """None or empty where there is nothing to show."""

    architecture: list[Drawn]
    """that of base first, then those that differ from it in a box"""
    left_out: int
    """rows whose pictures differ and had no room"""

    sections: list[Section]
    """what records of weights show"""


def extras(cells: Cells, found: Summary) -> Extras:
    """Raises UserError where a record is damaged."""
    layers = layer_table.sections(found.layers, _types(cells))
    softmaxes = softmax.section(found.softmax, labels(found.rows))
    sections = [*layers, softmaxes, head_ablation.section(cells)]
    return Extras(*_architectures(cells), [*sections, length_extrapolation_text.section(found.beyond, found.rows)])


def _architectures(cells: Cells) -> tuple[list[Drawn], int]:
    study = cells.study
    first = next((row for row in study.rows if row.name == cells.study.base_row), study.rows[0])
    base = _true(study, first)
    drawn, left_out = [Drawn(first.name, first.name, architecture.architecture(base, first.name))], 0
    for row in study.rows:
        ours = _true(study, row)
        if row is first or architecture.drawn_alike(ours, base):
            continue
        if len(drawn) > MOST:
            left_out += 1
            continue
        drawn.append(Drawn(row.name, row.label or row.name, architecture.architecture(ours, row.name, base)))
    return drawn, left_out


def _true(study: Ablation, row: Row) -> Experiment:
    """At its true sizes, with as many pieces as there are."""
    e = apply(study.base, row).scaled(row.name)
    V = study.data_of(row).V
    return replace(e, data=replace(e.data, vocab_size=V))


def _types(cells: Cells) -> list[tuple[str, str]]:
    found = []
    for row in cells.study.rows:
        m = apply(cells.study.base, row).scaled(row.name).model
        sizes = {"neighbourhood": f", r {m.neighbourhood}", "kernel": f", k {m.kernel}"}
        reach = "".join(text for field, text in sizes.items() if may_act(LAYERS, m.layer, field))
        equal = ", as many parameters as self-attention" if m.layer_width == "parameters" else ""
        found.append((row.name, f"{m.layer}{reach}, d {m.d_model}{equal}"))
    return found
