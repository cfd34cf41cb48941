"""Table 2 of the paper, BLEU on newstest2014 and training cost, with our finished runs below it, from their records.

The paper's figures are in table2.json, each with its source.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.report.blocks import Block, Notes, Table, columns
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.folders import run_folders
from lightning_tfm.runs.record import Missing, Score, read_record, read_score

FACTS = Path(__file__).with_name("table2.json")
PAIRS = ("en-de", "en-fr")
SET = "newstest2014"


@dataclass(frozen=True)
class Line:
    """One system on one or both pairs."""

    name: str
    source: str
    """who measured it; the name of the run's folder for ours"""
    bleu: dict[str, float]
    """pair -> BLEU as the paper measures it (inference/paper_bleu.py)"""
    flops: dict[str, float]
    """pair -> training cost as the paper estimates it: seconds of training × devices × their rate; none of ours"""
    sacrebleu: dict[str, float] | None = None
    """None for the paper's rows"""
    counted: float | None = None
    """training FLOPs by formula (model/size.py); None for the paper's rows"""


def lines(root: Path) -> list[Line]:
    """The paper's rows, then those of finished runs under `root` that were scored on newstest2014 in full."""
    facts = json.loads(FACTS.read_bytes())
    return [Line(**row) for row in facts["rows"]] + [line for path in run_folders(root) for line in _ours(root, path)]


def _ours(root: Path, path: Path) -> Iterator[Line]:
    folder = RunFolder(root, path.name)
    record = read_record(folder.result)
    if isinstance(record, Missing):
        return
    data: dict[str, Any] = record.experiment.get("data", {})
    pair = f"{data.get('source')}-{data.get('target')}"
    if pair not in PAIRS or not str(data.get("corpus")).startswith("wmt1"):  # a text of that name may be anybody's
        return
    asked = folder.read_called()
    called = f"{asked.row}, seed {asked.seed}" if asked else "run"
    for file in sorted(path.glob(f"scores/*/{SET}.json")):
        score = read_score(file)
        if isinstance(score, Score):
            name = f"{called}, {score.weights} weights"
            paper = score.measures.get("paper_bleu")
            found = {pair: paper.value} if paper else {}
            yield Line(name, path.name, found, {}, {pair: score.bleu or 0.0}, record.flops)


def blocks(found: list[Line]) -> list[Block]:
    """The paper's rows, below a rule ours."""
    ours = next((i for i, line in enumerate(found) if line.sacrebleu is not None), len(found))
    heads = columns("", *PAIRS, "sacreBLEU", "FLOPs", "counted")
    return [Table("", heads, [_cells(line) for line in found], frozenset({ours})), Notes(_notes(found, ours))]


def to_json(found: list[Line]) -> str:
    return json.dumps({"schema": 1, "set": SET, "rows": [asdict(line) for line in found]}, indent=1) + "\n"


def _cells(line: Line) -> list[str]:
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


def _notes(found: list[Line], ours: int) -> list[str]:
    notes = [
        "BLEU on newstest2014, tokenised, hyphens split for ours and the paper's own two",
        "FLOPs: time × devices × their rate, en-de / en-fr; counted: by formula",
    ]
    if ours == len(found):
        notes.append("no finished run here was scored on it: lightning-tfm test RUN --set newstest2014")
    elif any(not line.bleu for line in found[ours:]):
        notes.append("without a tokenised BLEU: lightning-tfm test RUN --set newstest2014 adds it")
    return notes
