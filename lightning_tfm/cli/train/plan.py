"""`plan`: what a sweep would run, what is already finished, and what the rest would take. Trains nothing."""

from collections.abc import Sequence
from dataclasses import replace

from lightning_tfm.cli.arguments import make_parser, parse, parse_own, prints_config, progress_of
from lightning_tfm.cli.study_options import (
    add_options,
    add_scales,
    at_scale,
    check_seed,
    each,
    name_at,
    read_sweep_file,
    scales_of,
)
from lightning_tfm.cli.terminal import fit_width
from lightning_tfm.cli.train.sweep import add_table_options, rows_and_seeds, table_from, tuning_from
from lightning_tfm.cli.train.tune import add_search_options, pruning, search_from
from lightning_tfm.errors import NotHere, UserError
from lightning_tfm.gone import refuse
from lightning_tfm.queue.resources import Resources, make_resources
from lightning_tfm.queue.row_tuning import variants
from lightning_tfm.study.cell import PIECES
from lightning_tfm.study.expressions import solved_lines
from lightning_tfm.study.settings import Settings
from lightning_tfm.study.study import Study
from lightning_tfm.study.sweeps import SearchFile, Sweep


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
    sweep = read_sweep_file(options)
    if isinstance(sweep, Sweep):
        check_seed(options, sweep)
    elif options["seeds"]:
        refuse("tune --seeds")
    scales = [] if isinstance(sweep, SearchFile) else scales_of(options, sweep)
    if len(scales) > 1:
        return each(main, verb, argv, scales)
    settings = parse(
        parser, [*sweep.arguments, *argv, *([] if isinstance(sweep, SearchFile) else at_scale(sweep, scales))]
    )
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
        if options["only"] is not None:
            raise UserError(f"--only={options['only']}: {sweep.path} is a search and has no rows")
        if options["scales"]:
            raise UserError(f"--scales={options['scales']}: {sweep.path} is a search; a scaling study compares rows")
        if options["tune"]:
            raise UserError(f"--tune={options['tune']}: {sweep.path} is a search, which finds its best value itself")
        study = search_from(settings, sweep, resources)
        from lightning_tfm.queue import time_estimate
        from lightning_tfm.queue.prepare_data_rows import on_this_machine

        try:
            study = on_this_machine(study, settings.out, progress_of(study.name))
        except NotHere as error:
            lacking.append(str(error))
            study = replace(study, prints=time_estimate.UNKNOWN, V=study.base.data.vocab_size).with_sources()
        for line in pruning(study, sweep) if study.pruner.type != "none" else ():
            print(fit_width(line, indent=2))
        trials, coming, endings = time_estimate.trials_of(study, settings.out, resources.storage)
        cells = [run for trial in trials for run in trial.runs]
    else:
        for option in ("sampler", "trials"):
            if options[option]:
                raise UserError(
                    f"--{option}={options[option]}: {sweep.path} is a table: all its rows run, to their end"
                )
        rows, seeds = rows_and_seeds(sweep, settings)
        for line in solved_lines(settings.base, rows):
            print(line)
        study = table_from(settings, name_at(options["name"] or sweep.name, scales), rows, seeds)
        tuning = tuning_from(settings, study)

        from lightning_tfm.queue import time_estimate
        from lightning_tfm.queue.prepare_data_rows import on_this_machine

        try:
            study = on_this_machine(study, settings.out, progress_of(study.name))
            cells = study.cells()
            time_estimate.check_table(study, cells, settings.out, resources.storage, auto=options["seeds"] == "auto")
        except NotHere as error:
            lacking.append(str(error))
            study = time_estimate.without_text(study)
            cells = study.cells()
        if tuning is not None:
            tried = replace(study, name=f"{study.name}-tuning", rows=variants(tuning, study.rows), seeds=tuning.seeds)
            cells = tried.cells() + cells
    pace = time_estimate.Pace(options["rate"]) if options["rate"] else time_estimate.pace_of(settings.out)
    at_once = resources.workers * (resources.cluster.jobs if resources.cluster else 1)
    factor = time_estimate.longer(study.base.scaled(), study.V, options["pieces"])
    cells, coming = [replace(cell, cost=cell.cost * factor) for cell in cells], [cost * factor for cost in coming]
    forecast = time_estimate.text(
        cells, settings.out, at_once, pace, coming, endings, study.prints != time_estimate.UNKNOWN
    )
    costs = f"costs: every step full, {options['pieces']} tokens per sentence, {study.V:,} tokens of vocabulary"
    print(fit_width(f"{forecast}\n{costs}", indent=15))
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
