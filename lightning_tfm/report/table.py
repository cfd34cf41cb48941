"""Records -> the table, beside the paper's numbers. A pure function: the same records give the same bytes."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from lightning_tfm.config import Experiment, Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import count_parameters
from lightning_tfm.report.cells import Found, fitting
from lightning_tfm.runs.record import Missing, RunRecord
from lightning_tfm.study.definition import Definition
from lightning_tfm.study.rows import Row, apply

COLUMNS = {
    "N": ("model", "N"),
    "d_model": ("model", "d_model"),
    "d_ff": ("model", "d_ff"),
    "h": ("model", "h"),
    "d_k": ("model", "d_k"),
    "d_v": ("model", "d_v"),
    "P_drop": ("model", "P_drop"),
    "eps_ls": ("training", "eps_ls"),
    "positions": ("model", "positions"),
    "train steps": ("training", "steps"),
}
"""the paper's columns, and where an experiment holds them"""


@dataclass(frozen=True)
class Score:
    """One seed's numbers."""

    seed: int
    ppl: float
    bleu: float


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    row: Row
    values: dict[str, Any]
    """by column, at the sizes that were trained"""
    blank: frozenset[str]
    """columns equal to base, which the paper leaves blank"""
    parameters: int | None
    body: int | None
    """parameters without tables of positions, by the sizes"""
    scores: list[Score]
    missing: dict[int, str]
    """seed -> why its cell is empty"""


@dataclass(frozen=True)
class Table:
    """All rows, and what they have in common."""

    name: str
    lines: list[Line]
    seeds: list[int]
    scale: str
    """how the miniature divides the paper, empty at full size"""
    signature: str
    """of the BLEU scores, empty while there is none"""
    agreement: Mapping[str, Any] | None = None
    """with the paper (report/agreement.py); None while unknown"""
    last_eighth: Mapping[str, Any] | None = None
    """base's fall over the end of its training; None while unknown"""


def build(study: Definition, found: Found) -> Table:
    """The study's table. `found`: see records.collect."""
    plain = Row("", "", {}, study.rows[0].paper, "")
    base = _values(apply(study.base, plain).scaled("base"))
    lines = [_line(study, row, base, found) for row in study.rows]
    records = [r for r in found.values() if isinstance(r, RunRecord) and "dev" in r.scores]
    signatures = sorted({r.scores["dev"].signature for r in records})
    m = study.base.miniature
    parts = [f"{name} ÷ {by}" for name, by in (("width", m.width), ("depth", m.depth), ("steps", m.steps)) if by != 1]
    return Table(study.name, lines, study.seeds, ", ".join(parts), "; ".join(signatures))


def _line(study: Definition, row: Row, base: dict[str, Any], found: Found) -> Line:
    exact = apply(study.base, row).scaled(f"row '{row.name}'")
    values = _values(exact)
    blank = frozenset(name for name in values if values[name] == base[name] and row.change)
    scores, missing, counts = [], {}, set()
    for seed in study.seeds:
        record = fitting(found.get((row.name, seed), Missing("not asked for")), study, row, seed)
        if isinstance(record, Missing):
            missing[seed] = record.reason
            continue
        dev = record.scores["dev"]
        scores.append(Score(seed, dev.ppl, dev.bleu))
        counts.add(record.parameters.total)
    parameters = counts.pop() if len(counts) == 1 else _counted(exact.model, study.V)
    body = _counted(replace(exact.model, positions="none"), study.V)
    return Line(row, values, blank, parameters, body, scores, missing)


def _values(exact: Experiment) -> dict[str, Any]:
    return {name: getattr(getattr(exact, section), field) for name, (section, field) in COLUMNS.items()}


def _counted(model: Model, V: int) -> int | None:
    try:
        return count_parameters(model, V)["total"]
    except UserError:  # a scheme of the user's own, before its first record
        return None


def spread(values: list[float]) -> tuple[float | None, float | None]:
    """Mean, and standard deviation (n-1) from two values on."""
    return (mean(values) if values else None, stdev(values) if len(values) > 1 else None)


def to_json(table: Table) -> str:
    """Everything, at full precision."""
    lines = [_plain(line) for line in table.lines]
    head = {"schema": 1, "study": table.name, "scale": table.scale, "signature": table.signature, "seeds": table.seeds}
    whole = {"agreement": table.agreement, "last eighth": table.last_eighth}
    return json.dumps(head | whole | {"rows": lines}, indent=1) + "\n"


def _plain(line: Line) -> dict[str, Any]:
    ppl, bleu = spread([s.ppl for s in line.scores]), spread([s.bleu for s in line.scores])
    return {
        "group": line.row.group,
        "row": line.row.name,
        **line.values,
        "equal to base": sorted(line.blank),
        "parameters": line.parameters,
        "n": len(line.scores),
        "dev PPL": {"mean": ppl[0], "sd": ppl[1], "by seed": {str(s.seed): s.ppl for s in line.scores}},
        "dev BLEU": {"mean": bleu[0], "sd": bleu[1], "by seed": {str(s.seed): s.bleu for s in line.scores}},
        "missing": {str(seed): why for seed, why in line.missing.items()},
        "paper": {"PPL": line.row.paper.ppl, "BLEU": line.row.paper.bleu, "params (million)": line.row.paper.params},
    }


def to_csv(table: Table) -> str:
    """One line for each row, blanks filled in, full precision."""
    head = ["group", "row", *COLUMNS, "parameters", "n", "dev PPL", "sd", "dev BLEU", "sd", "paper PPL", "paper BLEU"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, "paper params (million)", "missing"])
    for line in table.lines:
        ppl, bleu = spread([s.ppl for s in line.scores]), spread([s.bleu for s in line.scores])
        paper = line.row.paper
        missing = "; ".join(f"seed {seed}: {why}" for seed, why in line.missing.items())
        values = [*line.values.values(), line.parameters, len(line.scores), *ppl, *bleu]
        writer.writerow([line.row.group, line.row.name, *values, paper.ppl, paper.bleu, paper.params, missing])
    return out.getvalue()
