"""`sweep --tune KEY=V1,V2,…`: every row at its own best value, chosen at seeds other than the reported ones.

A table of rows that share one setting can be said to compare how well that setting suits each. Here a separate study,
NAME-tuning, trains every row at every value and tuning seed; each row, base among them, takes the value of the least
mean dev PPL. A row's change then holds its value where it is not base's.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.config import override
from lightning_tfm.errors import UserError
from lightning_tfm.queue.resources import Resources
from lightning_tfm.registry import OWN_WEIGHTS
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.own_class_check import check_classes_work
from lightning_tfm.runs.record import RunRecord
from lightning_tfm.runs.rescored import read_under_evaluation
from lightning_tfm.schema import infinite_as_text
from lightning_tfm.study.preflight import check_trainable
from lightning_tfm.study.row_tuning import FILE, TunedRow, TuningSummary, at_edge, read_tuning
from lightning_tfm.study.rows import Row, apply
from lightning_tfm.study.settings import check_experiment
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of, save, with_saved
from lightning_tfm.yaml_files import read_word

TUNE_SEEDS = "1001-1003"


@dataclass(frozen=True)
class Tuning:
    """What is tuned."""

    key: str
    values: list[Any]
    seeds: list[int]


def tuning_of(text: str, seeds: list[int], study: Ablation, reported: Sequence[int]) -> Tuning:
    """What --tune requests for `study`, every row checked at every value; its text is not needed yet.

    `reported`: the seeds of its table. Raises UserError.
    """
    key, equals, listed = text.partition("=")
    values = [read_word(object, value) for value in listed.split(",")] if listed else []
    if not equals or len(values) < 2:
        raise UserError(f"--tune={text}: expected a field and two values at least, e.g. training.lr_factor=0.5,1,2")
    if len({repr(value) for value in values}) < len(values):
        raise UserError(f"--tune={text}: a value appears twice")
    if key.partition(".")[0] not in ("model", "training") or key == "training.seed":
        raise UserError(f"--tune={text}: {key} is the same for all rows of a table; tune a field of model or training")
    for value in values:
        override(study.base, {key: value}, "--tune")
    if both := sorted(set(seeds) & set(reported)):
        raise UserError(
            f"--tune-seeds: seed {both[0]} is also reported: a value chosen by a run flatters that run; choose "
            "other seeds"
        )
    if all(row.change for row in study.rows):
        raise UserError(f"--tune={text}: base is not among the rows, so there is nothing to compare tuned rows with")
    tuning, exact = Tuning(key, values, seeds), []
    for row in variants(tuning, study.rows):
        experiment = apply(study.base, row, seeds[0])
        exact.append(check_experiment(experiment, f"--tune={text}: row '{row.name}'"))
        check_trainable(experiment, f"--tune={text}: row '{row.name}'")
    if key in OWN_WEIGHTS:
        check_classes_work(exact)
    return tuning


def variants(tuning: Tuning, rows: Sequence[Row]) -> list[Row]:
    """The rows of the tuning study: each at each value. Raises UserError where a row changes the field itself."""
    tried = []
    for row in rows:
        if tuning.key in row.change:
            raise UserError(f"row '{row.name}' changes {tuning.key} itself: it cannot be tuned as well")
        for value in tuning.values:
            name = f"{row.name}, {tuning.key.partition('.')[2]}={value}".replace("/", "-")
            tried.append(replace(row.declared, name=name, change=row.declared.change | {tuning.key: value}))
    return tried


def with_best_values(study: Ablation, tuning: Tuning, root: Path, resources: Resources) -> Ablation | None:
    """`study` with every row at its best value, tried in a separate study. None, UserError, SystemExit as `work`."""
    from lightning_tfm.queue.launch import work

    folder = folder_of(root, study.name)
    before = read_tuning(folder)
    kept = {row.row: row for row in before.rows} if before else {}  # of rows that are not asked for, as by --only
    if before and _tried(before) != _tried(tuning) and (other := kept.keys() - {row.name for row in study.rows}):
        key, values, seeds = _tried(before)
        raise UserError(
            f"{folder / FILE}: {', '.join(sorted(other))} took the best {key} of {', '.join(values)} at seed "
            f"{', '.join(map(str, seeds))}: tune the same for these rows, or give this study its own name with --name"
        )
    tried = replace(study, name=f"{study.name}-tuning", rows=variants(tuning, study.rows), seeds=tuning.seeds)
    tried = tried.with_sources()
    every = save(tried, root)
    states = work(tried, tried.cells(), root, resources, start=True)
    if states is None:
        return None
    if lost := [f"{s.cell.row}/{s.cell.seed}" for s in states if s.state != "finished"]:
        raise UserError(f"study '{tried.name}': {', '.join(lost)} did not finish, so no value can be chosen")
    choices = [best_value(tried, tuning, row, root) for row in study.rows]
    for line in words(tuning, choices, len(states)):
        print(line, file=sys.stderr)
    chosen = with_choices(study, tuning.key, {choice.row: choice.value for choice in choices})
    with_saved(chosen, root)  # else the record would speak of a table that has other values
    folder.mkdir(parents=True, exist_ok=True)
    record = {"key": tuning.key, "values": tuning.values, "seeds": tuning.seeds, "study": tried.name}
    of_row = kept | {choice.row: choice for choice in choices}
    rows = [{"row": c.row, "value": c.value, "ppl": c.ppl} for c in of_row.values()]
    write_atomic(folder / FILE, to_json(infinite_as_text(record | {"cost": _cost(every, root), "rows": rows})))
    return chosen


def _tried(of: Tuning | TuningSummary) -> tuple[str, list[str], list[int]]:
    return of.key, [*map(str, of.values)], of.seeds


def with_choices(study: Ablation, key: str, chosen: dict[str, Any]) -> Ablation:
    """`study` over a base with its own value, the rows' changes holding theirs where they differ from it."""
    base_row = next(row for row in study.rows if not row.change)
    of_base = chosen[base_row.name]
    rows = [
        row if chosen[row.name] == of_base else replace(row, change=row.change | {key: chosen[row.name]})
        for row in (row.declared for row in study.rows)
    ]
    return replace(study, base=override(study.base, {key: of_base}, "--tune"), rows=rows)


def _cost(tried: Ablation, root: Path) -> dict[str, float]:
    """Runs, seconds and FLOPs that trying every value took; runs that several rows share count once."""
    read = [RunFolder(root, run).read_result() for run in {cell.training_hash for cell in tried.cells()}]
    records = [record for record in read if record is not None]
    seconds = round(sum(record.seconds.total for record in records), 3)
    return {"runs": len(records), "seconds": seconds, "flops": sum(record.flops for record in records)}


def best_value(tried: Ablation, tuning: Tuning, row: Row, root: Path) -> TunedRow:
    """The row's value with the lowest mean dev PPL. Raises UserError where a run was not scored as the study scores."""
    means: dict[str, float] = {}
    for value, variant in zip(tuning.values, variants(tuning, [row]), strict=True):
        folders = [RunFolder(root, tried.cell(variant, seed).training_hash) for seed in tuning.seeds]
        evaluation = tried.evaluation_of(variant)
        records = [read_under_evaluation(folder, evaluation, tried.base.data.dev) for folder in folders]
        told = [record.scores["dev"].ppl for record in records if isinstance(record, RunRecord)]
        if len(told) < len(folders):
            raise UserError(f"study '{tried.name}': a run of {variant.name} is not scored as the table will be")
        means[str(value)] = mean(told)
    best = min(tuning.values, key=lambda value: means[str(value)])
    return TunedRow(row.name, best, means)


def words(tuning: Tuning, choices: Sequence[TunedRow], runs: int) -> list[str]:
    """What was chosen, and what the choice cost."""
    seeds = ", ".join(map(str, tuning.seeds))
    lines = [f"{tuning.key}: the best of {len(tuning.values)} for every row, by dev PPL at seed {seeds} ({runs} runs)"]
    for choice in choices:
        tried = ", ".join(f"{value}: {ppl:.3f}" for value, ppl in choice.ppl.items())
        edge = " (at the edge of what was tried)" if at_edge(choice.value, tuning.values) else ""
        lines.append(f"  {choice.row}: {choice.value}{edge}; {tried}")
    return lines
