"""Where every cell comes from, and where its translations differ most from those of base, or another reference."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from lightning_tfm.metrics import BLEU, in_words
from lightning_tfm.report.pages.shared import excerpt
from lightning_tfm.report.records import Cells, FilledCell, read_lines
from lightning_tfm.runs.record import Segment

Link = Callable[[Path], str]
"""a run's folder -> its address as seen from the page, empty where it has none"""
EXAMPLES = 3


def run_facts(cell: FilledCell) -> dict[str, str]:
    """What the page says about one run, in order."""
    record = cell.record
    git, data = record.git, record.data
    parts = record.ran or [Segment(last=record.steps or 0, hardware=record.hardware, versions=record.versions)]
    found = {
        "run": cell.folder.name,
        "seed": str(cell.seed),
        "commit": "not from a checkout" if git is None else git.commit + " (changed)" * git.changed,
        "dev": f"{in_words(cell.dev)}, {cell.dev.weights} weights",
        **({"BLEU signature": cell.dev.signature} if cell.dev.signature else {}),
        "training data and tokenizer": f"{data.train[:16]}, {data.tokenizer[:16]}",
        "dev set": data.dev[:16],
        "hardware": _by_steps(parts, [_machine(part) for part in parts]),
        "seconds": f"{record.seconds.total:,.0f}, attempt {_count_or_unknown(record.attempts)}",
        "versions": _by_steps(parts, [", ".join(f"{k} {v}" for k, v in part.versions.items()) for part in parts]),
    }
    if record.inexact:
        found["inexact"] = "; ".join(record.inexact)
    return found


def shared(runs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The facts that all of several runs have alike."""
    first = runs[0] if len(runs) > 1 else {}
    return {key: value for key, value in first.items() if all(run.get(key) == value for run in runs)}


def _machine(part: Segment) -> str:
    hardware = part.hardware
    processes = (
        f"{_count_or_unknown(hardware.processes)} process(es) of {_count_or_unknown(hardware.threads)} thread(s)"
    )
    return ", ".join(text for text in (hardware.cpu, *hardware.gpus, processes) if text)


def _by_steps(parts: list[Segment], said: list[str]) -> str:
    """What holds of a run's parts: once where it is the same of all, else with the steps that each made."""
    found: list[tuple[int, int, str]] = []
    for part, text in zip(parts, said, strict=True):
        text = text or "not recorded"
        if found and found[-1][2] == text:
            found[-1] = (found[-1][0], part.last, text)
        elif part.last >= part.first or not found:
            found.append((part.first, part.last, text))
    if len(found) == 1:
        return found[0][2]
    return "; ".join(f"steps {first}\u2013{last}: {text}" for first, last, text in found)


def _count_or_unknown(count: int | None) -> str:
    return "?" if count is None else str(count)


Example = list[tuple[str, str]]
"""(what it is, text), in order: the number of the line, source, reference, both translations"""


def examples(cells: Cells, base: str, to: str = "base") -> dict[str, list[Example]]:
    """row -> dev sentences whose translations differ most between it and the row `base`, half of them to each one's
    favour; `to`: that row in words.

    By smoothed sentence BLEU, averaged over seeds; the translations shown are those of each one's first seed that has
    them here (runs out of an archive have none).
    """
    theirs = translated(cells, base) if cells.references else None
    if theirs is None:
        return {}
    of_base, found = quality(cells.of(base)), {}
    for row in cells.study.rows:
        ours = translated(cells, row.name) if row.name != base else None
        if ours is not None:
            gap = quality(cells.of(row.name)) - of_base
            found[row.name] = [
                [
                    ("line", str(i + 1)),
                    ("source", excerpt(cells.sources[i])),
                    ("reference", excerpt(cells.references[i])),
                    (f"row {row.name}", excerpt(ours[i])),
                    (f"row {base} ({'base' if to == 'base' else 'compared with'})", excerpt(theirs[i])),
                ]
                for i in _far(gap)
            ]
    return found


def _far(gap: np.ndarray) -> list[int]:
    """The sentences of the lowest and the highest gap, [S] -> at most 2 * EXAMPLES."""
    order = np.argsort(gap, kind="stable")
    worst = [int(i) for i in order[:EXAMPLES] if gap[i] < 0]
    return worst + [int(i) for i in order[::-1][:EXAMPLES] if gap[i] > 0]


def translated(cells: Cells, row: str) -> list[str] | None:
    """The translations of the row's first seed that has them here."""
    name = f"{cells.study.base.data.dev}.hyp.txt"
    paths = (cell.folder / "scores" / cell.dev.evaluation_hash[:16] / name for cell in cells.of(row))
    return next((read_lines(path) for path in paths if path.is_file()), None)


def quality(runs: list[FilledCell]) -> np.ndarray:
    """Mean over seeds of a smoothed sentence BLEU (add-one from bigrams on, Lin and Och 2004), [S]."""
    total = np.zeros(runs[0].sentences)
    for cell in runs:
        counts = cell.sums[BLEU.name]
        correct, proposed = counts[:, 2:6] + [0, 1, 1, 1], counts[:, 6:10] + [0, 1, 1, 1]
        brevity = np.exp(np.minimum(0, 1 - counts[:, 1] / np.maximum(counts[:, 0], 1)))
        total += brevity * np.exp(np.log(np.maximum(correct, 1e-3) / np.maximum(proposed, 1)).mean(1))
    return total / len(runs)


def nowhere(run: Path) -> str:
    """Of a page that may be read anywhere."""
    return ""


def beside(page: Path, root: Path) -> Link:
    """Relative addresses, for a page that is in the results folder `root` beside the runs; else none."""
    folder = page.resolve().parent
    if root.resolve() not in (folder, *folder.parents):
        return nowhere

    def link(run: Path) -> str:
        there = run.resolve()
        return f"{Path(os.path.relpath(there, folder)).as_posix()}/" if there.is_dir() else ""

    return link
