"""`plan`: what a sweep would run, what is already finished, and what the rest would take. Trains nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from lightning_tfm.cli.arguments import make_parser, parse, parse_own, prints_config, progress_of
from lightning_tfm.cli.study_options import (
    add_options,
    add_scales,
    at_scale,
    check_table,
    each,
    name_at,
    read_sweep_file,
    scales_of,
)
from lightning_tfm.cli.terminal import fit_width
from lightning_tfm.cli.train.sweep import add_table_options, rows_and_seeds, table_from, tuning_from
from lightning_tfm.cli.train.tune import add_search_options, pruning, search_from
from lightning_tfm.config import from_record
from lightning_tfm.errors import NotHere, UserError
from lightning_tfm.gone import refuse
from lightning_tfm.plural_words import by_columns, plural, without_filler
from lightning_tfm.queue.resources import Resources, make_resources
from lightning_tfm.queue.row_tuning import variants
from lightning_tfm.runs.folder import RunFolder, read_json
from lightning_tfm.study.cell import PIECES, Cell, predicted_cost
from lightning_tfm.study.expressions import solved_lines
from lightning_tfm.study.rows import Fingerprints, RowData, apply, data_key
from lightning_tfm.study.search import Search
from lightning_tfm.study.sequential import check_fixed
from lightning_tfm.study.settings import Settings
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.study.study_file import folder_of, with_saved
from lightning_tfm.study.sweeps import SearchFile, Sweep
from lightning_tfm.watch.run_state import Runs, RunState
from lightning_tfm.watch.time_left import duration, seconds_at

OF_TABLES = {
    "only": " and has no rows",
    "scales": "; a scaling study compares rows",
    "tune": ", which finds its best value itself",
}
"""option -> why it is none of a search"""


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(
        verb, "What a sweep would run, what is already finished, and what the rest would take.", of_study=True
    )
    parser.add_argument("sweep", help="W&B sweep file of a table or a search, e.g. sweeps/table3.yaml")
    add_table_options(parser)
    parser.add_argument("--rate", type=float, default=0.0, help="FLOP/s of one run [measured from finished runs]")
    parser.add_argument("--pieces", type=int, default=PIECES, help="mean tokens of a sentence, on a side")
    add_scales(parser)
    add_search_options(parser)
    add_options(parser)
    options = parse_own(parser, argv)
    if options["rate"] < 0:
        raise UserError(f"--rate={options['rate']}: must not be negative")
    if options["pieces"] < 1:
        raise UserError(f"--pieces={options['pieces']}: must be at least 1")
    sweep, scales = read_sweep_file(options), list[int]()
    if isinstance(sweep, Sweep):
        check_table(options, sweep)
        scales = scales_of(options, sweep)
    elif options["seeds"]:
        refuse("tune --seeds")
    if len(scales) > 1:
        return each(main, verb, argv, scales)
    settings = parse(parser, [*sweep.arguments, *argv, *(at_scale(sweep, scales) if isinstance(sweep, Sweep) else ())])
    if prints_config(settings):
        return 0
    for line in settings.regime.lines if settings.regime else ():
        print(line)
    lacking: list[str] = []
    """what this machine does not have"""
    resources = _resources(settings, lacking)
    coming: list[float] = []
    endings: dict[str, str] = {}
    study: Study
    if isinstance(sweep, SearchFile):
        study, cells, coming, endings = _search(sweep, settings, resources, lacking)
    else:
        study, cells = _table(sweep, scales, settings, resources, lacking)
    pace = Pace(options["rate"]) if options["rate"] else pace_of(settings.out, options["pieces"])
    at_once = resources.workers * (resources.cluster.jobs if resources.cluster else 1)
    exact = study.base.scaled()
    factor = predicted_cost(exact, study.V, options["pieces"]) / predicted_cost(exact, study.V)
    cells, coming = [replace(cell, cost=cell.cost * factor) for cell in cells], [cost * factor for cost in coming]
    text = forecast(cells, settings.out, at_once, pace, coming, endings, study.prints != UNKNOWN)
    costs = f"costs: every step full, {options['pieces']} tokens per sentence, {study.V:,} tokens of vocabulary"
    print(fit_width(f"{text}\n{costs}", indent=15))
    if options["tune"]:
        print("--tune: the rows of the table are planned at base's value; a chosen one may be another run")
    if (cluster := resources.cluster) is not None:
        from lightning_tfm.queue.launch import job_arguments

        try:
            script = cluster.script(study.name, job_arguments(study.name, settings.out, resources), settings.out)
            print(f"each of {cluster.jobs} jobs:\n{script}" if cluster.jobs > 1 else f"each job:\n{script}")
        except UserError as error:
            lacking.append(str(error))
    for why in lacking:
        print(f"not on this machine, planned without it: {why}")
    return 0


def _resources(settings: Settings, lacking: list[str]) -> Resources:
    try:
        return make_resources(settings.verb, settings.hardware)
    except NotHere as error:
        lacking.append(str(error))
        return make_resources(settings.verb, settings.hardware, here=False)


def _search(
    file: SearchFile, settings: Settings, resources: Resources, lacking: list[str]
) -> tuple[Search, list[Cell], list[float], dict[str, str]]:
    """The search, and what `trials_of` says of it. Raises UserError."""
    for option, why in OF_TABLES.items():
        if (given := settings.verb[option]) is not None:
            raise UserError(f"--{option}={given}: {file.path} is a search{why}")
    search = search_from(settings, file, resources)

    from lightning_tfm.queue.prepare_data_rows import on_this_machine

    try:
        search = on_this_machine(search, settings.out, progress_of(search.name))
    except NotHere as error:
        lacking.append(str(error))
        search = replace(search, prints=UNKNOWN, V=search.base.data.vocab_size).with_sources()
    for line in pruning(search, file) if search.pruner.type != "none" else ():
        print(fit_width(line, indent=2))
    return search, *trials_of(search, settings.out, resources.storage)


def _table(
    sweep: Sweep, scales: Sequence[int], settings: Settings, resources: Resources, lacking: list[str]
) -> tuple[Ablation, list[Cell]]:
    """The table and its cells, behind those of its tuning. Raises UserError."""
    rows, seeds = rows_and_seeds(sweep, settings)
    for line in solved_lines(settings.base, rows):
        print(line)
    study = table_from(settings, name_at(settings.verb["name"] or sweep.name, scales), rows, seeds)
    tuning = tuning_from(settings, study)

    from lightning_tfm.queue.prepare_data_rows import on_this_machine

    try:
        study = on_this_machine(study, settings.out, progress_of(study.name))
        check_defined(study, settings.out, resources.storage, auto=settings.verb["seeds"] == "auto")
    except NotHere as error:
        lacking.append(str(error))
        study = _without_text(study)
    if tuning is None:
        return study, study.cells()
    tried = replace(study, name=f"{study.name}-tuning", rows=variants(tuning, study.rows), seeds=tuning.seeds)
    return study, tried.cells() + study.cells()


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


def _without_text(study: Ablation) -> Ablation:
    """The table where its text is elsewhere: its vocabularies have the most pieces allowed."""
    sizes = {data_key(row.change): apply(study.base, row).data.vocab_size for row in study.rows}
    data = {key: RowData(UNKNOWN, V, "") for key, V in sizes.items() if key}
    return replace(study, prints=UNKNOWN, V=study.base.data.vocab_size, data=data).with_sources()


def check_defined(study: Ablation, root: Path, storage: str, auto: bool) -> None:
    """Raise UserError where `sweep` would refuse: the study has another experiment, row or kind of seeds."""
    from lightning_tfm.queue.queue import another_experiment
    from lightning_tfm.queue.studies import has_queue

    with_saved(study, root)
    if not auto:
        check_fixed(study.name, root)
    folder = folder_of(root, study.name)
    for cell in study.cells() if has_queue(root, study.name, storage) else ():
        link = read_json(folder / "cells" / cell.row / f"{cell.seed}.json")
        if link and link["training_hash"] != cell.training_hash:
            raise UserError(another_experiment(study.name, cell, link["training_hash"]))


def trials_of(search: Search, root: Path, storage: str) -> tuple[list[Cell], list[float], dict[str, str]]:
    """The runs that a search has made, or will make if it is a grid; the predicted costs of those still to be proposed;
    and training hash -> how it ended, for trials that are not run again.

    What will be proposed is unknown: the costs are those of that many points drawn from the space. Raises UserError
    where `sweep` would refuse.
    """
    from lightning_tfm.queue.sampling import draw
    from lightning_tfm.queue.studies import has_queue, open_queue

    search = with_saved(search, root)
    states = open_queue(root, search.name, storage).states() if has_queue(root, search.name, storage) else []
    ended = [state for state in states if state.state in ("stopped early", "failed")]
    endings = {s.cell.training_hash: f"{s.state}: {s.reason}" for s in ended}
    cells = [state.cell for state in states if search.budget] or search.cells()
    drawn = draw(search, max(0, search.most - len(cells)))
    coming = [run.cost for change in drawn for run in search.cell(0, change).runs]
    return [run for cell in cells for run in cell.runs], coming, endings


def pace_of(root: Path, pieces: int = PIECES) -> Pace | None:
    """By the finished runs of a results folder, at this sentence length; None where there is none."""
    records = [run.record for run in Runs(root, curves=False).all().values() if run.record]
    times = [
        (predicted_cost(from_record(record.experiment), record.V, pieces), record.seconds.total)
        for record in records
        if record.seconds.total > 0 and record.V is not None
    ]
    return Pace(known=tuple(times)) if times else None


def forecast(
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
    resumed = f"resumes at step {run.kept} of {run.steps}" if run.trained else "to run"
    return 1 - run.trained, {"running": "running now", "damaged": run.words}.get(run.state, resumed)
