"""`sweep --seeds auto`: seeds in rounds, more of them where a verdict is still open.

The study's looks.json says how far it has got: a request is written before it runs, every look before what
follows from it. So the same command resumes after any stop, and two machines with the same records decide the same.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural
from lightning_tfm.queue.launch import announce, work
from lightning_tfm.queue.resources import Resources
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Row
from lightning_tfm.study.sequential import Course, Options, following_seeds, looks_to_json, plan_of, read_looks
from lightning_tfm.study.study import LOOKS, Ablation
from lightning_tfm.study.study_file import file_of, folder_of, load_as, save
from lightning_tfm.watch.study_state import CellState

Look = Callable[[Course, Ablation, Path, Sequence[int]], tuple[Course, str]]
"""a look at a study's runs (report/study_report.py:look): the course after it, and what it found in words"""


def begin(requested: Ablation, options: Options, root: Path) -> Ablation:
    """Write down the study and its course; returns the study. Raises UserError for another kind of study.

    `requested` holds the seeds of the sweep file.
    """
    path = file_of(root, requested.name)
    before = read_looks(path.parent)
    plan = plan_of(options, before, path.parent / LOOKS)
    seeds = following_seeds(requested.seeds, plan.budget)
    names = [row.name for row in requested.rows]
    if before is not None:
        taken = before.asked or before.looks[-1].seeds
        if set(taken) != set(names):
            raise UserError(f"{path.parent / LOOKS}: the study has the rows {', '.join(taken)}, and they are fixed now")
        if not {seed for row in taken.values() for seed in row} <= set(seeds):
            raise UserError(f"{path.parent / LOOKS}: the study uses seeds other than {', '.join(map(str, seeds))}")
        return _save(replace(before, seeds=tuple(seeds)), requested, seeds, root)
    there = load_as(Ablation, root, requested.name) if path.is_file() else None
    if there is not None and there.hidden:
        why = "it has hidden rows, which no look would count"
        raise UserError(f"{path}: {why}; --seeds auto needs a separate study: --name")
    if there is not None and set(there.seeds) - set(seeds[: plan.first]):
        raise UserError(
            f"{path}: its seeds were fixed beforehand, so its interim analyses were not counted; "
            "--seeds auto needs a separate study: --name"
        )
    return _save(Course(plan, [], {name: seeds[: plan.first] for name in names}, tuple(seeds)), requested, seeds, root)


def rounds(
    course: Course,
    requested: Ablation,
    seeds: Sequence[int],
    most: int | None,
    root: Path,
    resources: Resources,
    look: Look,
) -> list[CellState] | None:
    """Runs and looks in turn until no verdict is open or the seeds are used up; states of all cells, None as `work`."""
    announce(requested, root, resources, more=course.asked is not None)
    again = True
    while course.asked is not None:
        study = _save(course, requested, seeds, root)
        cells = _cells(study, course.asked)
        if most is not None and len(cells) > most:
            need = plural(len(cells), "run")
            print(f"{study.name}: the next interim analysis needs {need}, --max-runs={most}: stopped", file=sys.stderr)
            break
        if work(study, cells, root, resources, start=True, again=again) is None:
            return None
        again = False
        course, words = look(course, study, root, seeds)
        print(f"{study.name}: {words}", file=sys.stderr)
        _save(course, requested, seeds, root)
    return announce(requested, root, resources, more=False)


def _save(course: Course, requested: Ablation, seeds: Sequence[int], root: Path) -> Ablation:
    """Write study.json with the seeds taken so far, then looks.json."""
    wanted = course.asked or course.looks[-1].seeds
    taken = [seed for seed in seeds if any(seed in row for row in wanted.values())]
    study = save(replace(requested, seeds=taken), root)
    write_atomic(folder_of(root, study.name) / LOOKS, to_json(looks_to_json(course)))
    return study


def _cells(study: Ablation, wanted: dict[str, list[int]]) -> list[Cell]:
    rows: dict[str, Row] = {row.name: row for row in study.rows}
    return [study.cell(rows[name], seed) for name, taken in wanted.items() for seed in taken]
