"""Table 1 of the paper beside what was measured of it: as text, JSON and for a page (layer_figure.py draws it)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.measure.record import PAPER, Exponent, LayerMeasures, LayerTable, Printed, crossing
from lightning_tfm.parts import LAYERS

FILE = "layers.json"
"""in the folder of a study whose report shows the table"""
UNPRINTED = Printed("", "", "")


def to_json(table: LayerTable) -> str:
    plain = asdict(table)
    for row, found in zip(plain["rows"], table.rows, strict=True):
        row["paper"] = asdict(PAPER.get(found.layer, UNPRINTED))
        row["self_attention_costs_more_from"] = dict(zip(("seconds", "operations"), dearer(table, found), strict=True))
    return json.dumps(plain, indent=1) + "\n"


def read(path: Path) -> LayerTable | None:
    """What `to_json` wrote; None where there is no such file. Raises UserError where it is no such table."""
    if not path.is_file():
        return None
    try:
        plain = json.loads(path.read_bytes())
        rows = [_row(row) for row in plain["rows"]]
        facts = {f.name: plain[f.name] for f in fields(LayerTable)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: damaged ({error!r}): remove it; lightning-tfm layers makes it again") from None
    return LayerTable(**(facts | {"rows": rows}))


def _row(plain: dict[str, Any]) -> LayerMeasures:
    fits = [{name: Exponent(**e) for name, e in plain[which].items()} for which in ("between", "whole")]
    over = [{int(n): x for n, x in plain[which].items()} for which in ("flops", "seconds", "chain", "layers")]
    return LayerMeasures(plain["layer"], plain["parameters"], fits[0], fits[1], *over)


@dataclass(frozen=True)
class Line:
    """One type as a page shows it: the paper's orders, and what was measured in their place."""

    name: str
    paper: Printed
    between: str
    whole: str
    chain: str
    layers: str
    dearer: tuple[str, str]
    """from which n on self-attention takes more seconds, more operations"""
    ms: list[str]


def lines(table: LayerTable) -> list[Line]:
    found = []
    for row in table.rows:
        self_attention, (by_time, by_count) = row.layer == "attention", dearer(table, row)
        found.append(
            Line(
                short(row),
                _paper(row),
                ", ".join(f"{name} {_banded(e)}" for name, e in row.between.items()),
                ", ".join(f"{name} {_banded(e)}" for name, e in row.whole.items()),
                " / ".join(str(row.chain[n]) for n in sorted(row.chain)),
                " / ".join(str(row.layers[n] or "more") for n in sorted(row.layers)),
                ("", "") if self_attention else (_from(by_time, min(row.seconds)), _from(by_count, min(row.flops))),
                [_ms(row.seconds[n]) for n in sorted(row.seconds)],
            )
        )
    return found


def to_text(table: LayerTable) -> str:
    """At most 80 columns."""
    sizes = f"d_model {table.d_model}, h {table.h}, k {table.kernel}, r {table.neighbourhood}"
    parts = [f"Table 1 of the paper, measured on one layer of the encoder\n{sizes}; {table.machine}"]
    parts += ["\n".join(part) for part in (_operations(table), _seconds(table), _crossings(table), _paths(table))]
    return "\n\n".join(parts) + f"\n\nmeasured in {table.took:.0f} s\n"


def _operations(table: LayerTable) -> Iterator[str]:
    yield "Operations: exponents of n, d, k or r, fitted to torch's count (± misfit)"
    yield f"{'':12}{'paper':15}{'between positions':21}whole layer"
    for row in table.rows:
        between = " ".join(f"{name}{e.value:.2f}" for name, e in row.between.items())
        whole = " ".join(f"{name}{_banded(e)}" for name, e in row.whole.items())
        yield f"{short(row):12}{_paper(row).operations:15}{between:21}{whole}".rstrip()
    yield "between positions: without the matrices that act on every position by itself"
    yield "misfit: two standard errors; a count has no noise, but may be no single power"


def _seconds(table: LayerTable) -> Iterator[str]:
    lengths = sorted(table.rows[0].seconds)
    yield "Milliseconds of one pass over one text of n positions, the least of several"
    yield f"{'n':12}" + "".join(f"{n:>8}" for n in lengths)
    for row in table.rows:
        yield f"{short(row):12}" + "".join(f"{_ms(row.seconds[n]):>8}" for n in lengths)


def _crossings(table: LayerTable) -> Iterator[str]:
    yield f"Self-attention costs more from n =   (paper: than recurrent from n = d = {table.d_model})"
    yield f"{'than':12}{'in time':>10}{'in operations':>16}   of whole layers"
    for row in table.rows:
        if row.layer != "attention":
            by_time, by_count = dearer(table, row)
            words = _from(by_time, min(row.seconds)), _from(by_count, min(row.flops))
            yield f"{short(row):12}{words[0]:>10}{words[1]:>16}"
    yield "The paper's n = d compares n² d with n d²: between positions, no constants."


def _paths(table: LayerTable) -> Iterator[str]:
    lengths = sorted(table.rows[0].chain)
    heads = "".join(f"{n:>6}" for n in lengths)
    yield "Operators in a chain, each waiting for the one before; layers until all see all"
    yield f"{'n':12}{'paper':8}{heads}    {'paper':9}{heads}"
    for row in table.rows:
        paper, chain = _paper(row), "".join(f"{row.chain[n]:>6}" for n in lengths)
        layers = "".join(f"{row.layers[n] or '-':>6}" for n in lengths)
        cells = " (n cells)" if LAYERS.traits(row.layer).recurrent else ""
        yield f"{short(row):12}{paper.sequential:8}{chain}    {paper.path:9}{layers}{cells}"
    yield "Cells are counted one by one. What runs is a fused operator, which hides its n"
    yield "steps but does not skip them: see its milliseconds at small n. A product over n"
    yield "keys is one operator. *: the paper's text; its table has log_k n (dilated)."


def dearer(table: LayerTable, row: LayerMeasures) -> tuple[float | None, float | None]:
    """The length from which on self-attention takes more seconds, and more operations, than `row` (`crossing`)."""
    base = next((other for other in table.rows if other.layer == "attention"), None)
    if base is None or row is base:
        return None, None
    return crossing(base.seconds, row.seconds), crossing(_counts(base.flops), _counts(row.flops))


def _counts(flops: Mapping[int, int]) -> dict[int, float]:
    return {n: float(count) for n, count in flops.items()}


def short(row: LayerMeasures) -> str:
    return row.layer.rpartition(".")[2][:11]


def _paper(row: LayerMeasures) -> Printed:
    return PAPER.get(row.layer, UNPRINTED)


def _banded(e: Exponent) -> str:
    return f"{e.value:.2f}±{(e.high - e.low) / 2:.2f}".replace("±0.", "±.")


def _ms(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def _from(n: float | None, first: int) -> str:
    """`first`: the shortest length measured."""
    return "never here" if n is None else f"below {first}" if n == 0 else f"{n:.0f}"
