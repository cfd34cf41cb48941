"""`plan`: what a sweep would run, what is already finished, and what the rest would take. Trains nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import make_parser, only_printed, parse, parse_own
from lightning_tfm.cli.study import add_options, check_seed, is_search_file, make_resources, numbers
from lightning_tfm.cli.sweep import ONLY, add_auto_options, asked_cells, check_fixed, defined
from lightning_tfm.cli.tune import add_search_options, asked_search, with_data
from lightning_tfm.cli.tuned import TUNE_SEEDS, add_tune_options, asked_tuning, variants
from lightning_tfm.config import Experiment, from_dict
from lightning_tfm.errors import NotHere, UserError
from lightning_tfm.queue.resources import Resources
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.study.row_data import RowData, data_key
from lightning_tfm.study.rows import Fingerprints, Row, apply
from lightning_tfm.study.settings import Settings
from lightning_tfm.study.study import PIECES, Ablation, Study, folder_of, joined, predicted_cost
from lightning_tfm.study.sweeps import SearchFile, read_search, read_sweep
from lightning_tfm.watch.run_state import Runs, RunState
from lightning_tfm.watch.time_left import seconds_at

if TYPE_CHECKING:
    from lightning_tfm.study.cell import Cell
    from lightning_tfm.study.study import Search


THERE = "finished"
"""what is said of a finished run"""


@dataclass(frozen=True)
class Pace:
    """What a run takes, scoring included: by a rate that is stated, or as finished runs took."""

    rate: float = 0.0
    """FLOP/s of one run; 0 where none is stated"""
    known: tuple[tuple[float, float], ...] = ()
    """predicted FLOPs and seconds of finished runs"""

    def seconds(self, cost: float) -> float:
        """Of what is left of a run; 0 where nothing is."""
        if not cost:
            return 0.0
        return cost / self.rate if self.rate else seconds_at(cost, self.known)

    def __str__(self) -> str:
        runs = f"{len(self.known)} finished run{'s' * (len(self.known) != 1)}"
        return f"at {self.rate:.2e} FLOP/s each, as stated" if self.rate else f"as {runs} here took"


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "What a sweep would run, what is already finished, and what the rest would take.")
    parser.add_argument("sweep", help="W&B sweep file of a table or a search, e.g. sweeps/table3.yaml")
    parser.add_argument("--name", help="name of the study [as in the file]")
    parser.add_argument("--seeds", help="seeds instead of the file's: 1,2,3 or 1-3")
    parser.add_argument("--only", metavar="ROW,…", help=ONLY)
    parser.add_argument("--rate", type=float, default=0.0, help="FLOP/s of one run [measured from finished runs]")
    parser.add_argument("--pieces", type=int, default=PIECES, help="mean pieces of a sentence, on a side")
    add_auto_options(parser)
    add_tune_options(parser)
    add_search_options(parser)
    add_options(parser)
    asked = parse_own(parser, argv)
    if asked["rate"] < 0:
        raise UserError(f"--rate={asked['rate']}: must not be negative")
    if asked["pieces"] < 1:
        raise UserError(f"--pieces={asked['pieces']}: must be at least 1")
    searched = is_search_file(asked["sweep"])
    sweep = read_search(asked["sweep"]) if searched else read_sweep(asked["sweep"])
    check_seed(asked, sweep)
    settings = parse(parser, [*sweep.arguments, *argv])
    if only_printed(settings):
        return 0
    lacking: list[str] = []
    """what this machine does not have"""
    resources = _resources(settings, lacking)
    coming: list[float] = []
    endings: dict[str, str] = {}
    study: Study
    if isinstance(sweep, SearchFile):
        if asked["only"] is not None:
            raise UserError(f"--only={asked['only']}: {sweep.path} is a search and has no rows")
        if asked["tune"]:
            raise UserError(f"--tune={asked['tune']}: {sweep.path} is a search, which finds its best value itself")
        study = asked_search(settings, sweep, resources)
        try:
            study = with_data(study, settings.out)
        except NotHere as error:
            lacking.append(str(error))
            study = replace(study, prints=UNKNOWN, V=study.base.data.vocab_size).with_sources()
        trials, coming, endings = trials_of(study, settings.out, resources.storage)
        cells = [run for trial in trials for run in trial.runs]
    else:
        for option in ("sampler", "trials"):
            if asked[option]:
                raise UserError(f"--{option}={asked[option]}: {sweep.path} is a table: all its rows run, to their end")
        rows, seeds = asked_cells(sweep, settings)
        name = asked["name"] or sweep.name
        try:
            study, cells = defined(settings, name, rows, seeds)
            check_table(study, cells, settings.out, resources.storage, auto=asked["seeds"] == "auto")
        except NotHere as error:
            lacking.append(str(error))
            study = _without_text(settings, name, rows, seeds)
            cells = study.cells()
        if asked["tune"]:
            tuning = asked_tuning(asked["tune"], numbers(asked["tune_seeds"] or TUNE_SEEDS, "--tune-seeds"), study)
            tried = replace(study, name=f"{name}-tuning", rows=variants(tuning, study.rows), seeds=tuning.seeds)
            cells = tried.cells() + cells
    pace = Pace(asked["rate"]) if asked["rate"] else measured(settings.out)
    at_once = resources.workers * (resources.slurm.jobs if resources.slurm else 1)
    longer = _longer(study.base.scaled(), study.V, asked["pieces"])
    cells, coming = [replace(cell, cost=cell.cost * longer) for cell in cells], [cost * longer for cost in coming]
    print(text(cells, settings.out, at_once, pace, coming, endings, study.prints != UNKNOWN))
    print(f"costs: every step full, {asked['pieces']} pieces a sentence, {study.V:,} pieces of vocabulary")
    if asked["tune"]:
        print("--tune: the rows of the table are planned at base's value; a chosen one may be another run")
    for why in lacking:
        print(f"not on this machine, planned without it: {why}")
    return 0


UNKNOWN = Fingerprints("", "")
"""of a text that is not here; no run has the name that follows from it"""


def _resources(settings: Settings, lacking: list[str]) -> Resources:
    try:
        return make_resources(settings.verb, settings.hardware)
    except NotHere as error:
        lacking.append(str(error))
        return make_resources(settings.verb, settings.hardware, here=False)


def _without_text(settings: Settings, name: str, rows: list[Row], seeds: list[int]) -> Ablation:
    """The table whose text is elsewhere: its vocabularies have as many pieces as they may."""
    changed = {data_key(row.change): apply(settings.base, row).data.vocab_size for row in rows}
    data = {key: RowData(UNKNOWN, V, "") for key, V in changed.items() if key}
    V = settings.base.data.vocab_size
    study = Ablation(name=name, base=settings.base, rows=rows, seeds=seeds, prints=UNKNOWN, V=V, store="", data=data)
    return study.with_sources()


def _longer(exact: Experiment, V: int, pieces: int) -> float:
    """How much more a run costs with sentences of `pieces` than as predicted."""
    return predicted_cost(exact, V, pieces) / predicted_cost(exact, V)


def check_table(study: Ablation, cells: "list[Cell]", root: Path, storage: str, auto: bool) -> None:
    """Raise UserError where `sweep` would refuse: the study has another experiment, row or kind of seeds."""
    from lightning_tfm.queue.open import has_queue
    from lightning_tfm.queue.queue import another_experiment, linked

    joined(study, root)
    if not auto:
        check_fixed(study.name, root)
    folder = folder_of(root, study.name)
    for cell in cells if has_queue(root, study.name, storage) else ():
        there = linked(folder, cell)
        if there not in (None, cell.training_hash):
            raise UserError(another_experiment(study.name, cell, there))


def trials_of(search: "Search", root: Path, storage: str) -> tuple[list["Cell"], list[float], dict[str, str]]:
    """The runs that a search has made, or will make if it is a grid; the predicted costs of those to be proposed; and
    training hash -> how it ended, for trials that are not run again.

    What will be proposed is not known: the costs are those of as many points drawn from the space. Raises UserError
    where `sweep` would refuse.
    """
    from lightning_tfm.queue.open import has_queue, open_queue
    from lightning_tfm.queue.sampling import draw

    search = joined(search, root)
    states = open_queue(root, search.name, storage).states() if has_queue(root, search.name, storage) else []
    words = {"pruned": "stopped early", "failed": "failed"}
    ended = [state for state in states if state.state in words]
    endings = {run: f"{words[s.state]}: {s.reason}" for s in ended for _, run in s.cell.more}
    endings |= {s.cell.training_hash: f"{words[s.state]}: {s.reason}" for s in ended}
    if not search.budget:
        return search.cells(), [], endings
    cells = [state.cell for state in states] or search.cells()
    drawn = draw(search, max(0, search.budget - len(cells)))
    return cells, [run.cost for change in drawn for run in search.cell(0, change).runs], endings


def measured(root: Path) -> Pace | None:
    """By the finished runs of a results folder; None where there is none."""
    records = [run.record for run in Runs(root, curves=False).all().values() if run.record]
    found = [
        (predicted_cost(from_dict(Experiment, record.experiment), record.V), record.seconds.total)
        for record in records
        if record.seconds.total > 0 and record.V is not None
    ]
    return Pace(known=tuple(found)) if found else None


def text(
    cells: "list[Cell]",
    root: Path,
    workers: int,
    pace: Pace | None,
    coming: Sequence[float] = (),
    endings: Mapping[str, str] = MappingProxyType({}),
    named: bool = True,
) -> str:
    """One line for each cell, then the sum. `coming`, `endings`: see `trials_of`; `named`: whether hashes are known."""
    from lightning_tfm.queue.view import clock

    lines, ahead, whole, there, ended = [], [], 0.0, 0, 0
    firsts: dict[str, Cell] = {}
    for cell in cells:
        left, where = _standing(RunFolder(root, cell.training_hash), endings.get(cell.training_hash))
        first = firsts.setdefault(cell.training_hash, cell)
        if first is not cell:  # trained once, for both
            lines.append(f"{_what(cell, named)} the run of {first.row}")
            continue
        there += where == THERE
        ended += left == 0 and where != THERE
        ahead.append(cell.cost * left)
        whole += cell.cost
        time = f"{clock(pace.seconds(cell.cost * left)):>9}" if pace and left else ""
        lines.append(f"{_what(cell, named)} {cell.cost:9.2e} FLOP {time:9} {where}".rstrip())
    if coming:
        mean = sum(coming) / len(coming)
        lines.append(
            f"{len(coming)} more to be proposed: {min(coming):.2e} to {max(coming):.2e} FLOP each, {mean:.2e} on "
            "average, as drawn from the space; what is stopped early takes less"
        )
    ahead, whole, runs = [*ahead, *coming], whole + sum(coming), len(firsts) + len(coming)
    no_more = f", {ended} stopped early or failed" * bool(ended)
    lines.append(
        f"{runs} runs: {there} finished, {runs - there - ended} to run{no_more}; {sum(ahead):.2e} of {whole:.2e} FLOP"
    )
    if pace is None:
        lines.append(
            "time unknown: no finished run here to estimate it from; train the smallest row, or state --rate FLOP/s"
        )
    elif sum(ahead):
        times = [pace.seconds(cost) for cost in ahead]
        lines.append(f"about {clock(max([*times, sum(times) / workers]))} with {workers} at once, {pace}")
    return "\n".join(lines)


def _what(cell: "Cell", named: bool) -> str:
    return f"{cell.row:14} seed {cell.seed:<4}" + f" {cell.training_hash[:16]}" * named


def _standing(folder: RunFolder, ending: str | None) -> tuple[float, str]:
    """The share of a run that is left, and where it stands in words; `ending`: how it ended for good."""
    run = RunState.of(folder.path)
    if run.record is not None:
        return 0.0, THERE
    if ending is not None:
        return 0.0, ending
    if run.state in ("running", "damaged"):
        return 1.0, "running now" if run.state == "running" else run.words
    return 1 - run.trained, f"resumes at step {run.kept} of {run.steps}" if run.trained else "to run"
