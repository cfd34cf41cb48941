"""Where every cell comes from, and where its translations differ most from those of base, or another reference."""

import json
import shlex
from functools import cache
from typing import Any

import numpy as np

from lightning_tfm.config import Experiment, to_dict
from lightning_tfm.report.records import Cells, FilledCell, read_lines
from lightning_tfm.sums import DamagedFile, intact

LONGEST = 400
"""characters of a sentence that a page shows"""
EXAMPLES = 3


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


def facts(cell: FilledCell) -> dict[str, str]:
    """What the page says of one run, in order."""
    record = cell.record
    git, hardware, data = record.git, record.hardware, record.data
    machine = [hardware.cpu, *hardware.gpus]
    machine.append(f"{_known(hardware.processes)} process(es) of {_known(hardware.threads)} thread(s)")
    found = {
        "run": cell.folder.name,
        "seed": str(cell.seed),
        "commit": "not from a checkout" if git is None else git.commit + " (changed)" * git.changed,
        "dev": f"perplexity {cell.ppl:.4f}, BLEU {cell.bleu:.2f}, {cell.dev.weights} weights",
        "BLEU signature": cell.dev.signature,
        "training text and tokenizer": f"{data.train[:16]}, {data.tokenizer[:16]}",
        "dev text": data.dev[:16],
        "hardware": ", ".join(part for part in machine if part),
        "seconds": f"{record.seconds.total:,.0f}, attempt {_known(record.attempts)}",
        "versions": ", ".join(f"{k} {v}" for k, v in record.versions.items()),
    }
    if record.inexact:
        found["inexact"] = "; ".join(record.inexact)
    return found


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


Example = list[tuple[str, str]]
"""(what it is, text), in order: the number of the line, source, reference, both translations"""


def examples(cells: Cells, base: str, to: str = "base") -> dict[str, list[Example]]:
    """row -> dev sentences whose translations differ most between it and the row `base`, half of them to each one's
    favour; `to`: that row in words.

    By smoothed sentence BLEU, averaged over seeds; the translations shown are those of each one's first seed that has
    them here (runs out of an archive have none).
    """
    theirs = _translated(cells, base) if cells.references else None
    if theirs is None:
        return {}
    quality, found = _quality(cells.of(base)), {}
    for row in cells.study.rows:
        translated = _translated(cells, row.name) if row.name != base else None
        if translated is not None:
            gap = _quality(cells.of(row.name)) - quality
            found[row.name] = [
                [
                    ("line", str(i + 1)),
                    ("source", clipped(cells.sources[i])),
                    ("reference", clipped(cells.references[i])),
                    (f"row {row.name}", clipped(translated[i])),
                    (f"row {base} ({'base' if to == 'base' else 'compared with'})", clipped(theirs[i])),
                ]
                for i in _far(gap)
            ]
    return found


def _far(gap: np.ndarray) -> list[int]:
    """The sentences of the lowest and the highest gap, [S] -> at most 2 * EXAMPLES."""
    order = np.argsort(gap, kind="stable")
    worst = [int(i) for i in order[:EXAMPLES] if gap[i] < 0]
    return worst + [int(i) for i in order[::-1][:EXAMPLES] if gap[i] > 0]


def _translated(cells: Cells, row: str) -> list[str] | None:
    """The translations of the row's first seed that has them here."""
    name = f"{cells.study.base.data.dev}.hyp.txt"
    paths = (cell.folder / "scores" / cell.dev.evaluation_hash[:16] / name for cell in cells.of(row))
    return next((read_lines(path) for path in paths if path.is_file()), None)


def _quality(runs: list[FilledCell]) -> np.ndarray:
    """Mean over seeds of a smoothed sentence BLEU (add-one from bigrams on, Lin and Och 2004), [S]."""
    total = np.zeros(len(runs[0].nll_S2))
    for cell in runs:
        assert cell.bleu_S10 is not None, "there are references"
        counts = cell.bleu_S10
        correct, proposed = counts[:, 2:6] + [0, 1, 1, 1], counts[:, 6:10] + [0, 1, 1, 1]
        brevity = np.exp(np.minimum(0, 1 - counts[:, 1] / np.maximum(counts[:, 0], 1)))
        total += brevity * np.exp(np.log(np.maximum(correct, 1e-3) / np.maximum(proposed, 1)).mean(1))
    return total / len(runs)


def clipped(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def collected(cell: FilledCell, name: str) -> Any:
    """What `report --collect` wrote into the run's folder, or None. Raises DamagedFile."""
    path = cell.folder / "report" / f"{name}.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DamagedFile(f"{path}: damaged ({error}): remove it; report --collect makes it again") from None
    if not intact(found):
        raise DamagedFile(f"{path}: damaged (its checksum does not match): remove it; report --collect makes it again")
    return found
