"""A study's records as they lie on disk, for the table; and the table's files."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_tfm.config import evaluation_hash, training_hash
from lightning_tfm.durable import write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.report import agreement, render, table
from lightning_tfm.report.cells import read_validations
from lightning_tfm.report.sequential import Course, read_looks
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.study.rows import run_identity
from lightning_tfm.study.study import Ablation, folder_of


def collect(study: Ablation, root: Path) -> dict[tuple[str, int], dict[str, Any] | str]:
    """(row, seed) -> the record of the run that belongs there, or in a word why there is none."""
    return collect_seen(study, root, read_looks(folder_of(root, study.name)))


def collect_seen(study: Ablation, root: Path, course: Course | None) -> dict[tuple[str, int], dict[str, Any] | str]:
    """`collect` of a study on this course."""
    found: dict[tuple[str, int], dict[str, Any] | str] = {}
    for row in study.rows:
        for seed in study.seeds:
            hidden = course.shown(row.name, seed) if course else None
            if hidden is not None:
                found[row.name, seed] = hidden
                continue
            name = training_hash(run_identity(study.base, row, seed, study.prints.train))
            found[row.name, seed] = _record(study, RunFolder(root, name))
    return found


def _record(study: Ablation, folder: RunFolder) -> dict[str, Any] | str:
    """One malformed record spoils its own cell, never the study."""
    try:
        record = folder.read_result()
        if record is None:
            return _why_not(folder)
        if record["status"] != "finished":
            return str(record["status"])
        # scored later under other options: the study's evaluation decides which score counts
        name = evaluation_hash(study.base, study.prints.dev)
        later = folder.scores(name) / f"{study.base.data.dev}.json"
        if later.is_file():
            record["scores"]["dev"] = json.loads(later.read_bytes())
        flaw = _flaw(record)
    except (UserError, OSError, ValueError, RecursionError, OverflowError) as error:
        return f"its record cannot be read: {error}"
    except (KeyError, TypeError, AttributeError) as error:
        return f"its record is not whole ({type(error).__name__}: {error})"
    return record if flaw is None else f"its record is not whole: {flaw}"


PARTS = ("identity", "scores", "parameters", "seconds")
"""objects that every finished record holds"""
DETAILS = ("data", "hardware", "versions", "git")
"""objects that may be absent: they are shown, nothing is computed from them"""


def _flaw(record: dict[str, Any]) -> str | None:
    """What the table and the report would stumble over, or None. Raises KeyError, TypeError for what is missing."""
    for key in (*PARTS, *DETAILS):
        if not isinstance(record[key] if key in PARTS else record.get(key) or {}, dict):
            return f"{key} is not an object"
    if not isinstance(record["training_hash"], str):
        return "training_hash is not text"
    if record.get("git"):
        _ = record["git"]["commit"], record["git"]["changed"]
    numbers = {"parameters": record["parameters"]["total"], "flops": record["flops"]}
    numbers["seconds"] = record["seconds"]["total"]
    if "dev" in record["scores"]:
        dev = record["scores"]["dev"]
        for key in ("signature", "evaluation_hash", "weights"):
            if not isinstance(dev[key], str):
                return f"the dev {key} is not text"
        numbers |= {f"dev {key}": dev[key] for key in ("ppl", "bleu", "nll", "tokens")}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(float(value)):
            return f"its {key} is {str(value)[:80]}"
    return None


def _why_not(folder: RunFolder) -> str:
    outcome, progress = folder.read_outcome(), folder.read_progress()
    at = f" at step {progress['step']} of {progress['steps']}" if progress else ""
    if folder.owner() is not None:
        return f"running{at}"
    if outcome is not None and outcome["outcome"] != "interrupted":
        return f"{outcome['outcome']}{at}: {outcome['reason']}"
    return f"interrupted{at}" if progress else "not run yet"


def write(study: Ablation, root: Path) -> table.Table:
    """Build the study's table and write table.md, table.csv and table.json beside study.json."""
    found = collect(study, root)
    built = table.build(study, found)
    scored = {(line.row.name, score.seed) for line in built.lines for score in line.scores}
    runs = {key: RunFolder(root, run["training_hash"]) for key, run in found.items() if not isinstance(run, str)}
    curves = {key: read_validations(runs[key].path) for key in scored}
    whole, last_eighth = agreement.of_table(built, curves)
    built = replace(built, agreement=whole, last_eighth=last_eighth)
    folder = folder_of(root, study.name)
    for name, text in (
        ("table.md", render.to_markdown(built)),
        ("table.csv", table.to_csv(built)),
        ("table.json", table.to_json(built)),
    ):
        write_atomic(folder / name, text.encode())
    return built
