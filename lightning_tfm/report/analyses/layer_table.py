"""Table 1 of the paper beside what was measured of it: operations and seconds of one layer over the length of the
text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lightning_tfm.measure.layer_table import PAPER, Exponent, LayerMeasures, LayerTable, Printed, crossing
from lightning_tfm.model.config import Model
from lightning_tfm.registry import LAYERS, may_act
from lightning_tfm.report.blocks import NOTHING, Block, Figures, Fold, Notes, Section, Table, Text, columns
from lightning_tfm.report.charts.chart import Axis, Chart, Point, Rule, Series, both, draw
from lightning_tfm.report.charts.svg import spanning, standalone_column
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Summary
from lightning_tfm.schema import read_kept
from lightning_tfm.study.study_file import folder_of

FILE = "layers.json"
"""in the folder of a study whose report shows the table"""
UNPRINTED = Printed("", "", "")


def to_json(table: LayerTable) -> str:
    plain = asdict(table)
    for row, costs in zip(plain["rows"], table.rows, strict=True):
        row["paper"] = asdict(PAPER.get(costs.layer, UNPRINTED))
        row["self_attention_costs_more_from"] = dict(zip(("seconds", "operations"), dearer(table, costs), strict=True))
    return json.dumps(plain, indent=1) + "\n"


def read_layer_table(path: Path) -> LayerTable | None:
    """What `to_json` wrote; None if there is no such file. Raises UserError if it is not such a table."""
    return read_kept(LayerTable, path, "a table of layers: remove it; lightning-tfm layers makes it again")


Costs = tuple[LayerTable, list[tuple[str, str]]]
"""What was measured, and of each row of a study its layer type and sizes"""


def find(cells: Cells, report: Summary) -> Costs | None:
    table = read_layer_table(folder_of(cells.root, report.study) / FILE)
    rows = [(row.label or row.name, _layer(cells.study.exact(row).model)) for row in cells.study.rows]
    return None if table is None else (table, rows)


def _layer(m: Model) -> str:
    sizes = {"neighbourhood": f", r {m.neighbourhood}", "kernel": f", k {m.kernel}"}
    reach = "".join(text for field, text in sizes.items() if may_act(LAYERS, m.layer, field))
    equal = ", as many parameters as self-attention" if m.layer_width == "parameters" else ""
    return f"{m.layer}{reach}, d {m.d_model}{equal}"


def sections(costs: Costs, report: Summary) -> list[Section]:
    """The pictures, which answer Table 1, and the numbers."""
    table, rows = costs
    which = Table("", columns("row", "layer", words=["layer"]), rows)
    about = "Ring: self-attention begins to cost more than the layer of that line."
    drawn = Figures([(both(chart(table, what)), about) for what in COSTS])
    numbers = [*blocks(table), Fold("Which rows have which layers", [which])]
    return [
        Section("layers", "What layer types cost", [drawn, Text(_paths(table))], after="forest"),
        Section("costs", "What layer types cost, in numbers", numbers, after="table"),
    ]


def dearer_from(table: LayerTable) -> str:
    """From which length on self-attention takes longer than the first and the last other layer, in a sentence; empty
    where it was not measured beside another."""
    others = [row for row in table.rows if row.layer != "attention"]
    if not 0 < len(others) < len(table.rows):
        return ""
    lengths = sorted((n, row.short) for row in others if (n := dearer(table, row)[0]) is not None)
    parts = [f"{name} {f'from n = {n:,.0f}' if n else 'at every n measured'}" for n, name in lengths]
    never = ", ".join(row.short for row in others if dearer(table, row)[0] is None)
    ends = [*parts[:1], *parts[1:][-1:], *[f"{never} at no n measured"] * bool(never)]
    return f"A layer of self-attention takes longer than {', than '.join(ends)}."


def _paths(table: LayerTable) -> list[str]:
    """How long the longest chains of operators are, and how many layers until every position sees every other."""
    n = max(table.rows[0].chain)
    chains = ", ".join(f"{row.short} {row.chain[n]:,}" for row in table.rows)
    layers = ", ".join(f"{row.short} {row.layers[n] or NOTHING}" for row in table.rows)
    return [f"At n = {n}, operators that wait for one another: {chains}; layers until all positions see all: {layers}."]


def blocks(table: LayerTable) -> list[Block]:
    """What was measured, beside the paper's orders."""
    lengths, shapes = sorted(table.rows[0].seconds), sorted(table.rows[0].chain)
    sizes = f"d_model {table.d_model}, h {table.h}, k {table.kernel}, r {table.neighbourhood}"
    where, words = f"{table.machine}; {table.took:.0f} s", ["paper", "between positions", "whole layer"]
    return [
        Text([f"Table 1 of the paper, measured on one layer of the encoder: {sizes}; {where}"]),
        Table(
            "Operations: exponents of n, d, k or r, fitted to torch's count (± misfit)",
            columns("layer", *words, words=words),
            [[row.short, _paper(row).operations, _powers(row.between), _powers(row.whole)] for row in table.rows],
        ),
        Notes(
            [
                "between positions: without the matrices that act on single positions",
                "misfit: two standard errors; a count has no noise, but may be no single power",
            ]
        ),
        Table(
            "Milliseconds of one pass over one text of n positions, the least of several",
            columns("n", *map(str, lengths)),
            [[row.short, *(_ms(row.seconds[n]) for n in lengths)] for row in table.rows],
        ),
        Table(
            f"Self-attention costs more from n (paper: than recurrent from n = d = {table.d_model})",
            columns("than", "in time", "in operations"),
            [
                [row.short, *map(_from, dearer(table, row), (min(row.seconds), min(row.flops)))]
                for row in table.rows
                if row.layer != "attention"
            ],
        ),
        Notes(["of whole layers; the paper's n = d compares n² d with n d²: between positions, no constants"]),
        Table(
            "Operators in a chain, each waiting for the one before; layers until all see all",
            columns("n", "paper", *map(str, shapes), "paper ", *map(str, shapes)),
            [_path(row, shapes) for row in table.rows],
        ),
        Notes(
            [
                "Cells are counted one by one. What runs is a fused operator, which hides its n steps but does not "
                "skip them: see its milliseconds at small n. A product over n keys is one operator.",
                "*: the paper's text; its table has log_k n (dilated).",
            ]
        ),
    ]


def _powers(exponents: Mapping[str, Exponent]) -> str:
    fitted = (f"{name}{e.value:.2f}±{(e.high - e.low) / 2:.2f}" for name, e in exponents.items())
    return " ".join(fitted).replace("±0.", "±.")


def _path(row: LayerMeasures, shapes: Sequence[int]) -> list[str]:
    paper, cells = _paper(row), " cells" * LAYERS.traits(row.layer).recurrent
    layers = [str(row.layers[n] or "-") for n in shapes]
    return [row.short, paper.sequential + cells, *(str(row.chain[n]) for n in shapes), paper.path, *layers]


def dearer(table: LayerTable, row: LayerMeasures) -> tuple[float | None, float | None]:
    """The length from which on self-attention takes more seconds, and more operations, than `row` (`crossing`)."""
    base = next((other for other in table.rows if other.layer == "attention"), None)
    if base is None or row is base:
        return None, None
    return crossing(base.seconds, row.seconds), crossing(base.flops, row.flops)


def _paper(row: LayerMeasures) -> Printed:
    return PAPER.get(row.layer, UNPRINTED)


def _ms(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def _from(n: float | None, first: int) -> str:
    """`first`: the shortest length measured."""
    return "never here" if n is None else f"below {first}" if n == 0 else f"{n:.0f}"


# --- pictures ---

COSTS = {"FLOPs of one layer": "flops", "seconds of one layer": "seconds"}
"""what a picture shows -> field of a layer's measures"""


def to_svg(table: LayerTable) -> str:
    """Both pictures, one below the other, as a separate file."""
    title = "Operations and seconds of one layer over the length of the text, by type"
    return standalone_column(title, [(what, draw(chart(table, what))) for what in COSTS])


def chart(table: LayerTable, what: str) -> Chart:
    """A line for each layer type, a ring where self-attention begins to cost more, and where n is d."""
    costs: list[Mapping[int, float]] = [getattr(row, COSTS[what]) for row in table.rows]
    base = next((c for row, c in zip(table.rows, costs, strict=True) if row.layer == "attention"), None)
    lengths, series = sorted(costs[0]), []
    for i, (row, cost) in enumerate(zip(table.rows, costs, strict=True)):
        line = [Point(n, cost[n], f"{row.short}, n = {n:,}: {cost[n]:.3g}") for n in lengths]
        series.append(Series(row.short, line, f"g{i % 8}", row.short, marked=True, r=3.0, of="line"))
        met = crossing(base, cost) if base is not None and cost is not base else None
        if met:
            words = f"self-attention costs more than {row.short} from n = {met:,.0f}"
            ring = [Point(met, _cost_between(cost, met), words)]
            series.append(Series(f"{row.short}, met", ring, f"g{i % 8}", line=False, hollow=True, r=5.5, of="line"))
    return Chart(
        f"{what} over the length of the text, by type",
        Axis("positions of the text, n", log=True, margin=0),
        Axis(what, log=True),
        series,
        (640, 380),
        [Rule(x=table.d_model, words=[f"n = d = {table.d_model}"])] * (lengths[0] < table.d_model < lengths[-1]),
    )


def _cost_between(costs: Mapping[int, float], n: float) -> float:
    """The cost at a length between two measured ones, by straight logarithms."""
    left, right = max(m for m in costs if m <= n), min(m for m in costs if m >= n)
    if left == right:
        return costs[left]
    scale = spanning([left, right], 0.0, 1.0, log=True, margin=0)
    return float(costs[left] * (costs[right] / costs[left]) ** scale(n))


ANALYSIS = Analysis(
    key="layers",
    find=find,
    sections=sections,
    closing=lambda costs, report: list(filter(None, [dearer_from(costs[0])])),
    json=False,
)
