"""Where every cell comes from, and where its translations differ most from base's."""

import json
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lightning_tfm.config import Experiment, to_dict
from lightning_tfm.report.cells import Cell, Cells, read_lines
from lightning_tfm.study.rows import apply

LONGEST = 400
"""characters of a sentence that a page shows"""
EXAMPLES = 3


def command(cells: Cells, cell: Cell) -> str:
    """A command line that repeats the run of a cell."""
    row = next(row for row in cells.study.rows if row.name == cell.row)
    return fit_command(apply(cells.study.base, row, cell.seed))


def fit_command(e: Experiment) -> str:
    """A command line that trains `e`: every field that differs from the defaults, at its true size."""
    exact, default = to_dict(e.scaled()), _defaults()
    parts = [
        f"--{section}.{key}={_value(value)}"
        for section, keys in exact.items()
        for key, value in keys.items()
        if value != default[section][key]
    ]
    return " ".join(["lightning-tfm", "fit", *map(shlex.quote, parts)])


@cache
def _defaults() -> dict[str, Any]:
    return to_dict(Experiment())


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def facts(cells: Cells, cell: Cell) -> dict[str, str]:
    """What the page says of one run, in order."""
    record: Mapping[str, Any] = cell.record
    git, hardware, data = record.get("git"), record.get("hardware") or {}, record.get("data") or {}
    machine = [str(hardware.get("cpu", "")), *map(str, hardware.get("gpus") or [])]
    machine.append(f"{hardware.get('processes', '?')} process(es) of {hardware.get('threads', '?')} thread(s)")
    found = {
        "run": cell.folder.name,
        "seed": str(cell.seed),
        "commit": "not from a checkout" if not git else str(git["commit"]) + (" (changed)" if git["changed"] else ""),
        "dev": f"perplexity {cell.ppl:.4f}, BLEU {cell.bleu:.2f}, {cell.dev['weights']} weights",
        "BLEU signature": str(cell.dev["signature"]),
        "training text and tokenizer": f"{str(data.get('train', ''))[:16]}, {str(data.get('tokenizer', ''))[:16]}",
        "dev text": str(data.get("dev", ""))[:16],
        "hardware": ", ".join(part for part in machine if part),
        "seconds": f"{record['seconds']['total']:,.0f}, attempt {record.get('attempts', '?')}",
        "versions": ", ".join(f"{k} {v}" for k, v in (record.get("versions") or {}).items()),
    }
    if record.get("inexact"):
        found["inexact"] = "; ".join(map(str, record["inexact"]))
    return found


def examples(cells: Cells, row: str, base: str) -> list[dict[str, str]]:
    """Dev sentences whose translations differ most between this row and base, half of them to each one's favour.

    By smoothed sentence BLEU, averaged over seeds; the translations shown are those of each one's first seed that has
    them here (runs out of an archive have none).
    """
    mine, theirs = cells.of(row), cells.of(base)
    shown = [next((c for c in runs if _translations(cells, c).is_file()), None) for runs in (mine, theirs)]
    if shown[0] is None or shown[1] is None or not cells.references or row == base:
        return []
    gap = _quality(mine) - _quality(theirs)
    order = np.argsort(gap, kind="stable")
    worst = [int(i) for i in order[:EXAMPLES] if gap[i] < 0]
    best = [int(i) for i in order[::-1][:EXAMPLES] if gap[i] > 0]
    texts = [read_lines(_translations(cells, cell)) for cell in (shown[0], shown[1])]
    return [
        {
            "line": str(i + 1),
            "source": clipped(cells.sources[i]),
            "reference": clipped(cells.references[i]),
            row: clipped(texts[0][i]),
            f"{base} (base)": clipped(texts[1][i]),
        }
        for i in [*worst, *best]
    ]


def _quality(runs: list[Cell]) -> np.ndarray:
    """Mean over seeds of a smoothed sentence BLEU (add-one from bigrams on, Lin and Och 2004), [S]."""
    total = np.zeros(len(runs[0].nll_S2))
    for cell in runs:
        assert cell.bleu_S10 is not None, "there are references"
        counts = cell.bleu_S10
        correct, proposed = counts[:, 2:6] + [0, 1, 1, 1], counts[:, 6:10] + [0, 1, 1, 1]
        brevity = np.exp(np.minimum(0, 1 - counts[:, 1] / np.maximum(counts[:, 0], 1)))
        total += brevity * np.exp(np.log(np.maximum(correct, 1e-3) / np.maximum(proposed, 1)).mean(1))
    return total / len(runs)


def _translations(cells: Cells, cell: Cell) -> Path:
    return cell.folder / "scores" / cell.dev["evaluation_hash"][:16] / f"{cells.study.base.data.dev}.hyp.txt"


def clipped(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def collected(cell: Cell, name: str) -> Any:
    """What `report --collect` wrote into the run's folder, or None."""
    try:
        return json.loads((cell.folder / "report" / f"{name}.json").read_bytes())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
