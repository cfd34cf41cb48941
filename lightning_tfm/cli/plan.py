"""`plan`: what a sweep would run, what is already finished, and what the rest would take. Trains nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import make_parser, only_printed, parse, parse_own
from lightning_tfm.cli.study import add_options, check_seed, is_search_file, make_resources
from lightning_tfm.cli.sweep import ONLY, add_auto_options, asked_cells, check_fixed, defined
from lightning_tfm.cli.tune import add_search_options, asked_search, with_data
from lightning_tfm.config import Experiment, from_dict
from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.study.study import Ablation, folder_of, joined, predicted_cost
from lightning_tfm.study.sweeps import SearchFile, read_search, read_sweep

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
        from lightning_tfm.queue.progress import seconds_at

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
    add_auto_options(parser)
    add_search_options(parser)
    add_options(parser)
    asked = parse_own(parser, argv)
    if asked["rate"] < 0:
        raise UserError(f"--rate={asked['rate']}: must not be negative")
    searched = is_search_file(asked["sweep"])
    sweep = read_search(asked["sweep"]) if searched else read_sweep(asked["sweep"])
    check_seed(asked, sweep)
    settings = parse(parser, [*sweep.arguments, *argv])
    if only_printed(settings):
        return 0
    resources = make_resources(settings.verb, settings.hardware)
    coming: list[float] = []
    endings: dict[str, str] = {}
    if isinstance(sweep, SearchFile):
        if asked["only"] is not None:
            raise UserError(f"--only={asked['only']}: {sweep.path} is a search and has no rows")
        search = with_data(asked_search(settings, sweep, resources), settings.out)
        trials, coming, endings = trials_of(search, settings.out, resources.storage)
        cells = [run for trial in trials for run in trial.runs]
    else:
        for option in ("sampler", "trials"):
            if asked[option]:
                raise UserError(f"--{option}={asked[option]}: {sweep.path} is a table: all its rows run, to their end")
        rows, seeds = asked_cells(sweep, settings)
        study, cells = defined(settings, asked["name"] or sweep.name, rows, seeds)
        check_table(study, cells, settings.out, resources.storage, auto=asked["seeds"] == "auto")
    pace = Pace(asked["rate"]) if asked["rate"] else measured(settings.out)
    print(text(cells, settings.out, resources.workers, pace, coming, endings))
    return 0


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
    found = []
    for path in sorted((root / "runs").glob("*/result.json")):
        record = RunFolder(root, path.parent.name).read_result()
        if record is not None and record.seconds.total > 0 and record.V is not None:
            cost = predicted_cost(from_dict(Experiment, record.experiment), record.V)
            found.append((cost, record.seconds.total))
    return Pace(known=tuple(found)) if found else None


def text(
    cells: "list[Cell]",
    root: Path,
    workers: int,
    pace: Pace | None,
    coming: Sequence[float] = (),
    endings: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """One line for each cell, then the sum. `coming`, `endings`: see `trials_of`."""
    from lightning_tfm.queue.view import clock

    lines, ahead, whole, there, ended = [], [], 0.0, 0, 0
    firsts: dict[str, Cell] = {}
    for cell in cells:
        left, where = _standing(RunFolder(root, cell.training_hash), endings.get(cell.training_hash))
        first = firsts.setdefault(cell.training_hash, cell)
        if first is not cell:  # trained once, for both
            lines.append(f"{cell.row:14} seed {cell.seed:<4} {cell.training_hash[:16]} the run of {first.row}")
            continue
        there += where == THERE
        ended += left == 0 and where != THERE
        ahead.append(cell.cost * left)
        whole += cell.cost
        time = f"{clock(pace.seconds(cell.cost * left)):>9}" if pace and left else ""
        what = f"{cell.row:14} seed {cell.seed:<4} {cell.training_hash[:16]}"
        lines.append(f"{what} {cell.cost:9.2e} FLOP {time:9} {where}".rstrip())
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


def _standing(folder: RunFolder, ending: str | None) -> tuple[float, str]:
    """The share of a run that is left, and where it stands in words; `ending`: how it ended for good."""
    if folder.finished():
        return 0.0, THERE
    if ending is not None:
        return 0.0, ending
    progress, kept = folder.read_progress(), sorted(folder.checkpoints.glob("step-*.ckpt"))
    if folder.owner() is not None:
        return 1.0, "running now"
    if kept and progress:
        step = int(kept[-1].stem.removeprefix("step-"))
        return 1 - step / progress.steps, f"resumes at step {step} of {progress.steps}"
    return 1.0, "to run"
