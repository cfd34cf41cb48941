"""A study's records as they lie on disk, for the table."""

from dataclasses import replace
from pathlib import Path

from lightning_tfm.config import evaluation_hash, training_hash
from lightning_tfm.report.cells import Found
from lightning_tfm.report.sequential import Course, read_looks
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import Missing, RunRecord, read, read_score
from lightning_tfm.study.rows import run_identity
from lightning_tfm.study.study import Ablation, folder_of


def collect(study: Ablation, root: Path) -> Found:
    """(row, seed) -> the record of the run that belongs there, or why there is none."""
    return collect_seen(study, root, read_looks(folder_of(root, study.name)))


def collect_seen(study: Ablation, root: Path, course: Course | None) -> Found:
    """`collect` of a study on this course."""
    found: Found = {}
    for row in study.rows:
        for seed in study.seeds:
            hidden = course.shown(row.name, seed) if course else None
            if hidden is not None:
                found[row.name, seed] = Missing(hidden)
                continue
            name = training_hash(run_identity(study.base, row, seed, study.prints.train))
            found[row.name, seed] = _record(study, RunFolder(root, name))
    return found


def _record(study: Ablation, folder: RunFolder) -> RunRecord | Missing:
    found = read(folder.result)
    if isinstance(found, Missing):
        return found if folder.result.exists() else Missing(_why_not(folder))
    # scored later under other options: the study's evaluation decides which score counts
    name = evaluation_hash(study.base, study.prints.dev)
    later = folder.scores(name) / f"{study.base.data.dev}.json"
    if not later.is_file():
        return found
    score = read_score(later)
    return score if isinstance(score, Missing) else replace(found, scores=found.scores | {"dev": score})


def _why_not(folder: RunFolder) -> str:
    outcome, progress = folder.read_outcome(), folder.read_progress()
    at = f" at step {progress['step']} of {progress['steps']}" if progress else ""
    if folder.owner() is not None:
        return f"running{at}"
    if outcome is not None and outcome["outcome"] != "interrupted":
        return f"{outcome['outcome']}{at}: {outcome['reason']}"
    return f"interrupted{at}" if progress else "not run yet"
