"""A study's records as they lie on disk, for the table; and the table's files."""

import json
from pathlib import Path
from typing import Any

from lightning_tfm.config import evaluation_hash, training_hash
from lightning_tfm.report import render, table
from lightning_tfm.study.definition import Definition, file_of
from lightning_tfm.study.files import write_atomic
from lightning_tfm.study.folder import RunFolder
from lightning_tfm.study.rows import run_identity


def collect(study: Definition, root: Path) -> dict[tuple[str, int], dict[str, Any] | str]:
    """(row, seed) -> the record of the run that belongs there, or in a word why there is none."""
    found: dict[tuple[str, int], dict[str, Any] | str] = {}
    for row in study.rows:
        for seed in study.seeds:
            name = training_hash(run_identity(study.base, row, seed, study.prints.train))
            found[row.name, seed] = _record(study, RunFolder(root, name))
    return found


def _record(study: Definition, folder: RunFolder) -> dict[str, Any] | str:
    record = folder.read_result()
    if record is None:
        return _why_not(folder)
    # scored later under other options: the study's evaluation decides which score counts
    name = evaluation_hash(study.base, study.prints.dev)
    later = folder.scores(name) / f"{study.base.data.dev}.json"
    if later.is_file():
        record["scores"]["dev"] = json.loads(later.read_bytes())
    return record


def _why_not(folder: RunFolder) -> str:
    outcome, progress = folder.read_outcome(), folder.read_progress()
    at = f" at step {progress['step']} of {progress['steps']}" if progress else ""
    if folder.owner() is not None:
        return f"running{at}"
    if outcome is not None and outcome["outcome"] != "interrupted":
        return f"{outcome['outcome']}{at}: {outcome['reason']}"
    return f"interrupted{at}" if progress else "not run yet"


def write(study: Definition, root: Path) -> table.Table:
    """Build the study's table and write table.md, table.csv and table.json beside study.json."""
    built = table.build(study, collect(study, root))
    folder = file_of(root, study.name).parent
    for name, text in (
        ("table.md", render.to_markdown(built)),
        ("table.csv", table.to_csv(built)),
        ("table.json", table.to_json(built)),
    ):
        write_atomic(folder / name, text.encode())
    return built
