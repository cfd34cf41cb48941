"""The paper's own tables beside ours: parameter counts, and Table 2 (BLEU on newstest2014, training cost) with our
finished runs. No training, no torch. The figures of Table 2 are in table2.json, each with its source.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment
from lightning_tfm.model.size import count_parameters
from lightning_tfm.report.blocks import Block, Notes, Table, columns
from lightning_tfm.report.serialize import to_json
from lightning_tfm.runs.folder import RunFolder, run_folders
from lightning_tfm.runs.record import Missing, Score, read_record, read_score
from lightning_tfm.study.rows import Row, apply

# --- parameter counts ---


def parameter_counts(base: Experiment, V: int, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Of every row over `base` at the paper's scale with a vocabulary of `V` pieces what is printed (millions), what is
    computed, and whether this rounds to that; None where nothing is printed."""
    counts = []
    for row in rows:
        printed, computed = row.paper.params, count_parameters(apply(base, row).model, V)["total"]
        agrees = None if printed is None else math.floor(computed / 1e6 + 0.5) == printed
        counts.append({"row": row.name, "printed": printed, "computed": computed, "agrees": agrees})
    return counts


def count_blocks(counts: list[dict[str, Any]], V: int) -> list[Block]:
    rows = [
        [
            c["row"],
            "" if c["printed"] is None else f"{c['printed']} M",
            f"{c['computed'] / 1e6:.2f} M",
            AGREES[c["agrees"]],
        ]
        for c in counts
    ]
    missed = ", ".join(c["row"] for c in counts if c["agrees"] is False)
    of_printed = f"{_agreeing(counts)} of {sum(c['printed'] is not None for c in counts)} published counts"
    note = f"{of_printed} with {V:,} tokens" + f"; not: {missed}" * bool(missed)
    return [
        Table("", columns("row", "printed", "computed", "rounds to it", words=["rounds to it"]), rows),
        Notes([note]),
    ]


AGREES = {True: "yes", False: "no", None: ""}


def counts_json(counts: list[dict[str, Any]], V: int) -> str:
    return to_json({"rows": counts, "agree": _agreeing(counts)}, V=V)


def _agreeing(counts: list[dict[str, Any]]) -> int:
    return sum(c["agrees"] is True for c in counts)


# --- Table 2 ---

FACTS = Path(__file__).with_name("table2.json")
PAIRS = ("en-de", "en-fr")
SET = "newstest2014"


@dataclass(frozen=True)
class System:
    """One system on one or both pairs."""

    name: str
    source: str
    """who measured it; the name of the run's folder for ours"""
    bleu: dict[str, float]
    """pair -> BLEU as the paper measures it (bleu.py:paper_bleu)"""
    flops: dict[str, float]
    """pair -> training cost as the paper estimates it: seconds of training × devices × their rate; none of ours"""
    sacrebleu: dict[str, float] | None = None
    """None for the paper's rows"""
    counted: float | None = None
    """training FLOPs by formula (model/size.py); None for the paper's rows"""


def table2_lines(root: Path) -> list[System]:
    """The paper's rows, then those of finished runs under `root` that were scored on newstest2014 in full."""
    facts = json.loads(FACTS.read_bytes())
    return [System(**row) for row in facts["rows"]] + [line for path in run_folders(root) for line in _ours(root, path)]


def _ours(root: Path, path: Path) -> Iterator[System]:
    folder = RunFolder(root, path.name)
    record = read_record(folder.result)
    if isinstance(record, Missing):
        return
    data: dict[str, Any] = record.experiment.get("data", {})
    pair = f"{data.get('source')}-{data.get('target')}"
    if pair not in PAIRS or not str(data.get("corpus")).startswith("wmt1"):  # a text of that name may be anybody's
        return
    cell = folder.read_called()
    name_of_cell = f"{cell.row}, seed {cell.seed}" if cell else "run"
    for file in sorted(path.glob(f"scores/*/{SET}.json")):
        score = read_score(file)
        if isinstance(score, Score):
            name = f"{name_of_cell}, {score.weights} weights"
            paper = score.measures.get("paper_bleu")
            bleu = {pair: paper.value} if paper else {}
            yield System(name, path.name, bleu, {}, {pair: score.bleu or 0.0}, record.flops)


def table2_blocks(systems: list[System]) -> list[Block]:
    """The paper's rows, below a rule ours."""
    ours = next((i for i, line in enumerate(systems) if line.sacrebleu is not None), len(systems))
    heads = columns("", *PAIRS, "sacreBLEU", "FLOPs", "counted")
    return [Table("", heads, [_cells(line) for line in systems], frozenset({ours})), Notes(_notes(systems, ours))]


def table2_json(systems: list[System]) -> str:
    return to_json({"set": SET, "rows": systems}, schema=1)


def _cells(line: System) -> list[str]:
    costs = dict.fromkeys(f"{line.flops[pair]:.1e}" for pair in PAIRS if pair in line.flops)
    digits = "g" if line.sacrebleu is None else ".2f"
    sacre = "".join(f"{value:.2f}" for value in (line.sacrebleu or {}).values())
    counted = "" if line.counted is None else f"{line.counted:.1e}"
    return [
        line.name,
        *(f"{line.bleu[pair]:{digits}}" if pair in line.bleu else "" for pair in PAIRS),
        sacre,
        " / ".join(costs),
        counted,
    ]


def _notes(systems: list[System], ours: int) -> list[str]:
    notes = [
        "BLEU on newstest2014, tokenised, hyphens split for ours and the paper's own two",
        "FLOPs: time × devices × their rate, en-de / en-fr; counted: by formula",
    ]
    if ours == len(systems):
        notes.append("no finished run here was scored on it: lightning-tfm test RUN --set newstest2014")
    elif any(not line.bleu for line in systems[ours:]):
        notes.append("without a tokenised BLEU: lightning-tfm test RUN --set newstest2014 adds it")
    return notes
