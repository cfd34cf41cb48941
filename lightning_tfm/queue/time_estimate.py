"""What a study would still take, before it runs: which runs exist, and what the others cost (`plan`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from lightning_tfm.config import Experiment, from_record
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import by_columns, plural, without_filler
from lightning_tfm.queue.queue import another_experiment
from lightning_tfm.queue.sampling import draw
from lightning_tfm.queue.studies import has_queue, open_queue
from lightning_tfm.runs.folder import RunFolder, read_json
from lightning_tfm.study.cell import Cell, predicted_cost
from lightning_tfm.study.rows import Fingerprints, RowData, apply, data_key
from lightning_tfm.study.search import Search
from lightning_tfm.study.sequential import check_fixed
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of, with_saved
from lightning_tfm.watch.run_state import Runs, RunState
from lightning_tfm.watch.time_left import duration, seconds_at

THERE = "finished"
"""the text for a finished run"""


@dataclass(frozen=True)
class Pace:
    """What a run takes, scoring included: by a given rate, or as finished runs took."""

    rate: float = 0.0
    """FLOP/s of one run; 0 where none is given"""
    known: tuple[tuple[float, float], ...] = ()
    """predicted FLOPs and seconds of finished runs"""

    def seconds(self, cost: float) -> float:
        """Of what is left of a run; 0 where nothing is."""
        if not cost:
            return 0.0
        return cost / self.rate if self.rate else seconds_at(cost, self.known)

    def __str__(self) -> str:
        runs = plural(len(self.known), "finished run")
        return f"at {self.rate:.2e} FLOP/s each, as stated" if self.rate else f"as {runs} here took"


UNKNOWN = Fingerprints("", "")
"""of a text that is not here; no run has the resulting name"""


def without_text(study: Ablation) -> Ablation:
    """The table where its text is elsewhere: its vocabularies have the most pieces allowed."""
    sizes = {data_key(row.change): apply(study.base, row).data.vocab_size for row in study.rows}
    data = {key: RowData(UNKNOWN, V, "") for key, V in sizes.items() if key}
    return replace(study, prints=UNKNOWN, V=study.base.data.vocab_size, data=data).with_sources()


def longer(exact: Experiment, V: int, pieces: int) -> float:
    """How much more a run costs with sentences of `pieces` than as predicted."""
    return predicted_cost(exact, V, pieces) / predicted_cost(exact, V)


def check_table(study: Ablation, cells: list[Cell], root: Path, storage: str, auto: bool) -> None:
    """Raise UserError where `sweep` would refuse: the study has another experiment, row or kind of seeds."""
    with_saved(study, root)
    if not auto:
        check_fixed(study.name, root)
    folder = folder_of(root, study.name)
    for cell in cells if has_queue(root, study.name, storage) else ():
        link = read_json(folder / "cells" / cell.row / f"{cell.seed}.json")
        if link and link["training_hash"] != cell.training_hash:
            raise UserError(another_experiment(study.name, cell, link["training_hash"]))


def trials_of(search: Search, root: Path, storage: str) -> tuple[list[Cell], list[float], dict[str, str]]:
    """The runs that a search has made, or will make if it is a grid; the predicted costs of those still to be proposed;
    and training hash -> how it ended, for trials that are not run again.

    What will be proposed is unknown: the costs are those of that many points drawn from the space. Raises UserError
    where `sweep` would refuse.
    """
    search = with_saved(search, root)
    states = open_queue(root, search.name, storage).states() if has_queue(root, search.name, storage) else []
    ended = [state for state in states if state.state in ("stopped early", "failed")]
    endings = {s.cell.training_hash: f"{s.state}: {s.reason}" for s in ended}
    if not search.budget:
        return search.cells(), [], endings
    cells = [state.cell for state in states] or search.cells()
    drawn = draw(search, max(0, search.budget - len(cells)))
    return cells, [run.cost for change in drawn for run in search.cell(0, change).runs], endings


def pace_of(root: Path) -> Pace | None:
    """By the finished runs of a results folder; None where there is none."""
    records = [run.record for run in Runs(root, curves=False).all().values() if run.record]
    times = [
        (predicted_cost(from_record(record.experiment), record.V), record.seconds.total)
        for record in records
        if record.seconds.total > 0 and record.V is not None
    ]
    return Pace(known=tuple(times)) if times else None


def text(
    cells: list[Cell],
    root: Path,
    workers: int,
    pace: Pace | None,
    coming: Sequence[float] = (),
    endings: Mapping[str, str] = MappingProxyType({}),
    named: bool = True,
) -> str:
    """One line for each cell, then the sum. `coming`, `endings`: see `trials_of`; `named`: whether hashes are known."""
    lines, ahead, whole, there, ended = [], [], 0.0, 0, 0
    firsts: dict[str, Cell] = {}
    for cell in cells:
        left, where = _standing(RunFolder(root, cell.training_hash), endings.get(cell.training_hash))
        first = firsts.setdefault(cell.training_hash, cell)
        if first is not cell:  # trained once, for both
            lines.append(f"{_what(cell, named)} the run of {first.row}")
            continue
        there += where == THERE
        ended += cell.training_hash in endings and where != THERE
        ahead.append(cell.cost * left)
        whole += cell.cost
        time = f"{duration(pace.seconds(cell.cost * left)):>9}" if pace and left else ""
        lines.append(f"{_what(cell, named)} {cell.cost:9.2e} FLOP {time:9} {where}".rstrip())
    if coming:
        mean = sum(coming) / len(coming)
        lines.append(
            f"{len(coming)} more to be proposed: {min(coming):.2e} to {max(coming):.2e} FLOP each, {mean:.2e} on "
            "average, as drawn from the space; what is stopped early takes less"
        )
    ahead, whole, runs = [*ahead, *coming], whole + sum(coming), len(firsts) + len(coming)
    no_more = f", {ended} stopped early or failed" * bool(ended)
    done = f"{there} finished, {runs - there - ended} to run{no_more}"
    lines.append(f"{plural(runs, 'run')}: {done}; {sum(ahead):.2e} of {whole:.2e} FLOP")
    if pace is None:
        lines.append(
            "time unknown: no finished run here to estimate it from; train the smallest row, or state --rate FLOP/s"
        )
    elif sum(ahead):
        times = [pace.seconds(cost) for cost in ahead]
        lines.append(f"about {duration(max([*times, sum(times) / workers]))} with {workers} at once, {pace}")
    return "\n".join(lines)


def _what(cell: Cell, named: bool) -> str:
    name = without_filler(f"{by_columns(cell.row):14}")
    return f"{name} seed {cell.seed:<4}" + f" {cell.training_hash[:16]}" * named


def _standing(folder: RunFolder, ending: str | None) -> tuple[float, str]:
    """The share of a run that is left, and its state in words; `ending`: how it ended for good."""
    run = RunState.of(folder.path)
    if run.record is not None:
        return 0.0, THERE
    if ending is not None:
        return 0.0, ending
    if run.state in ("running", "damaged"):
        return 1.0, "running now" if run.state == "running" else run.words
    return 1 - run.trained, f"resumes at step {run.kept} of {run.steps}" if run.trained else "to run"
