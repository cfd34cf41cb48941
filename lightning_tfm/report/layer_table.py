"""Table 1 of the paper beside what was measured of it: as text, JSON and a figure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from lightning_tfm.measure.record import PAPER, RECURRENT, Exponent, LayerMeasures, LayerTable, Printed, crossing
from lightning_tfm.report.svg import bottom_axis, figure, label, left_axis, points, spanning, tag

UNPRINTED = Printed("", "", "")
COLOURS = ("#0b6bcb", "#8250df", "#bc4c00", "#9a6700", "#1a7f37", "#0f766e", "#bf3989", "#57606a")
STYLE = """text{font:12px system-ui,sans-serif;fill:#24292f}.tick,.title{fill:#57606a}.axis{stroke:#24292f}
.grid{stroke:#d0d7de;stroke-width:.6}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.tick,.title{fill:#9ea7b3}
.axis{stroke:#e6edf3}.grid{stroke:#3d444d}}"""


def to_json(table: LayerTable) -> str:
    plain = asdict(table)
    for row, found in zip(plain["rows"], table.rows, strict=True):
        row["paper"] = asdict(PAPER.get(found.layer, UNPRINTED))
        row["self_attention_costs_more_from"] = dict(zip(("seconds", "operations"), dearer(table, found), strict=True))
    return json.dumps(plain, indent=1) + "\n"


def to_text(table: LayerTable) -> str:
    """At most 80 columns."""
    sizes = f"d_model {table.d_model}, h {table.h}, k {table.kernel}, r {table.neighbourhood}"
    parts = [f"Table 1 of the paper, measured on one layer of the encoder\n{sizes}; {table.machine}"]
    parts += ["\n".join(part) for part in (_operations(table), _seconds(table), _crossings(table), _paths(table))]
    return "\n\n".join(parts) + f"\n\nmeasured in {table.took:.0f} s\n"


def _operations(table: LayerTable) -> Iterator[str]:
    yield "Operations: exponents of n, d, k or r, fitted to torch's count (± 95 %)"
    yield f"{'':12}{'paper':13}{'between positions':21}whole layer"
    for row in table.rows:
        between = " ".join(f"{name}{e.value:.2f}" for name, e in row.between.items())
        whole = " ".join(f"{name}{_banded(e)}" for name, e in row.whole.items())
        yield f"{_name(row):12}{_paper(row).operations:13}{between:21}{whole}".rstrip()
    yield "between positions: without the matrices that act on every position by itself"


def _seconds(table: LayerTable) -> Iterator[str]:
    lengths = sorted(table.rows[0].seconds)
    yield "Milliseconds of one pass over one text of n positions, the least of several"
    yield f"{'n':12}" + "".join(f"{n:>8}" for n in lengths)
    for row in table.rows:
        yield f"{_name(row):12}" + "".join(f"{_ms(row.seconds[n]):>8}" for n in lengths)


def _crossings(table: LayerTable) -> Iterator[str]:
    yield f"Self-attention costs more from n =   (paper: than recurrent from n = d = {table.d_model})"
    yield f"{'than':12}{'in time':>10}{'in operations':>16}"
    for row in table.rows:
        if row.layer != "attention":
            by_time, by_count = (_from(n) for n in dearer(table, row))
            yield f"{_name(row):12}{by_time:>10}{by_count:>16}"


def _paths(table: LayerTable) -> Iterator[str]:
    lengths = sorted(table.rows[0].chain)
    heads = "".join(f"{n:>6}" for n in lengths)
    yield "Operators in a chain, each waiting for the one before; layers until all see all"
    yield f"{'n':12}{'paper':8}{heads}    {'paper':9}{heads}"
    for row in table.rows:
        paper, chain = _paper(row), "".join(f"{row.chain[n]:>6}" for n in lengths)
        layers = "".join(f"{row.layers[n] or '-':>6}" for n in lengths)
        cells = " (n cells)" if row.layer in RECURRENT else ""
        yield f"{_name(row):12}{paper.sequential:8}{chain}    {paper.path:9}{layers}{cells}"
    yield "Cells are counted one by one. What runs is a fused operator, which hides its n"
    yield "steps but does not skip them: see its milliseconds at small n."


def dearer(table: LayerTable, row: LayerMeasures) -> tuple[float | None, float | None]:
    """The length from which on self-attention takes more seconds, and more operations, than `row` (`crossing`)."""
    base = next((other for other in table.rows if other.layer == "attention"), None)
    if base is None or row is base:
        return None, None
    return crossing(base.seconds, row.seconds), crossing(_counts(base.flops), _counts(row.flops))


def _counts(flops: Mapping[int, int]) -> dict[int, float]:
    return {n: float(count) for n, count in flops.items()}


def _name(row: LayerMeasures) -> str:
    return row.layer.rpartition(".")[2][:11]


def _paper(row: LayerMeasures) -> Printed:
    return PAPER.get(row.layer, UNPRINTED)


def _banded(e: Exponent) -> str:
    return f"{e.value:.2f}±{(e.high - e.low) / 2:.2f}".replace("±0.", "±.")


def _ms(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def _from(n: float | None) -> str:
    return "never here" if n is None else "always" if n == 0 else f"{n:.0f}"


def to_svg(table: LayerTable) -> str:
    """Seconds over lengths, a line for each type, and where n is d."""
    width, height, right = 640, 400, 520
    every = [s for row in table.rows for s in row.seconds.values()]
    lengths = sorted(table.rows[0].seconds)
    across, up = spanning(lengths, 60, right, log=True, margin=0), spanning(every, height - 50, 30, log=True)
    parts = [tag("style", STYLE), bottom_axis(across, height - 50, 30, "positions of the text, n")]
    parts.append(left_axis(up, 60, right, "seconds of one layer"))
    if lengths[0] < table.d_model < lengths[-1]:
        x = across(table.d_model)
        parts.append(tag("line", x1=x, x2=x, y1=30.0, y2=height - 50.0, class_="axis", stroke_dasharray="4 3"))
        parts.append(label(x, 24, f"n = d = {table.d_model}", "middle"))
    ends = sorted((up(row.seconds[lengths[-1]]), i) for i, row in enumerate(table.rows))
    lowest = 0.0
    for y, i in ends:
        row, colour = table.rows[i], COLOURS[i % len(COLOURS)]
        path = points([(across(n), up(row.seconds[n])) for n in lengths])
        parts.append(tag("polyline", points=path, fill="none", stroke=colour, stroke_width=2))
        lowest = max(y, lowest + 15)
        parts.append(tag("circle", cx=right + 12.0, cy=lowest, r=4, fill=colour))
        parts.append(label(right + 20, lowest + 4, _name(row)))
    drawn = figure(width, height, "Seconds of one layer over the length of the text, by type", "".join(parts))
    return str(drawn).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"
