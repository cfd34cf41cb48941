"""`sweep`: all rows and seeds of a sweep file, several at once, then their table."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace

from lightning_tfm.cli.arguments import Parser, make_parser, parse, parse_own, prints_config, progress_of, settings_from
from lightning_tfm.cli.output import say_hidden
from lightning_tfm.cli.study_options import (
    add_options,
    add_scales,
    at_scale,
    check_precisions,
    check_start,
    check_table,
    each,
    name_at,
    numbers,
    read_sweep_file,
    resumable,
    scales_of,
)
from lightning_tfm.cli.train.carry_out import carry_out
from lightning_tfm.config import override
from lightning_tfm.errors import UserError
from lightning_tfm.queue.resources import Resources, make_resources
from lightning_tfm.queue.row_tuning import TUNE_SEEDS, Tuning, tuning_of, with_best_values
from lightning_tfm.runs.outcome import say
from lightning_tfm.runs.own_class_check import check_classes_work
from lightning_tfm.study.command import with_out
from lightning_tfm.study.expressions import solved_lines
from lightning_tfm.study.preflight import check_trainable
from lightning_tfm.study.rows import Fingerprints, Row, apply, base_of, find_row, near_rows
from lightning_tfm.study.sequential import BUDGET, FIRST, check_fixed, reported_seeds
from lightning_tfm.study.settings import SHORTENED, Settings, check_experiment, smoke_folder, smoke_row
from lightning_tfm.study.study import Ablation, check_reference, without_hidden
from lightning_tfm.study.study_file import file_of, folder_of, load_as, save
from lightning_tfm.study.sweeps import SearchFile, Sweep

ONLY = "only these of the file's rows, and base; the others may be added later"


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Run every row at every seed of a sweep file and print the table.", of_study=True)
    parser.add_argument("sweep", help="W&B sweep file, e.g. sweeps/table3.yaml")
    add_table_options(parser)
    parser.add_argument("--reference", metavar="ROW", help="end with the differences to this row, too")
    add_scales(parser)
    add_options(parser)
    for option in ("--sampler", "--trials"):
        parser.add_argument(option, default="", help=argparse.SUPPRESS)  # of a search
    options = parse_own(parser, argv)
    sweep = read_sweep_file(options)
    if isinstance(sweep, SearchFile):
        from lightning_tfm.cli.train import tune

        return tune.main(verb, argv, sweep)
    check_table(options, sweep)
    scales = scales_of(options, sweep)
    if len(scales) > 1:
        return _ladder(
            verb, argv, options["name"] or sweep.name, scales, settings_from(parser, [*sweep.arguments, *argv])
        )
    settings = parse(parser, [*sweep.arguments, *argv, *at_scale(sweep, scales)])
    if prints_config(settings):
        return 0
    for line in settings.regime.lines if settings.regime else ():
        print(line, file=sys.stderr)
    if sweep.metric != Sweep.metric:
        about = "is only for W&B; the table tests all that its runs are scored by regardless"
        print(f"{sweep.path}: metric {sweep.metric} {about}", file=sys.stderr)
    rows, seeds = rows_and_seeds(sweep, settings)
    for line in solved_lines(settings.base, rows):
        print(line, file=sys.stderr)
    check_reference(settings.verb["reference"], rows)
    resources = make_resources(settings.verb, settings.hardware)
    precision = settings.base.training.precision
    check_precisions((row.change.get("training.precision", precision) for row in rows), resources)
    study = table_from(settings, name_at(options["name"] or sweep.name, scales), rows, seeds)
    tuning = tuning_from(settings, study)
    check_start(resources, folder_of(settings.out, study.name))
    with resumable(settings.out, study.name, verb, argv, jobs=resources.cluster is not None):
        return _run(settings, sweep, study, tuning, resources)


def _ladder(verb: str, argv: Sequence[str], name: str, scales: Sequence[int], settings: Settings) -> int:
    """The study at each scale, the smallest model first, then all of them side by side."""
    from lightning_tfm.cli.show import compare

    code = each(main, verb, argv, scales)
    if settings.verb["print_config"]:
        return code
    studies = [name_at(name, [scale]) for scale in scales]
    out = smoke_folder(settings.out) if settings.verb["smoke"] else settings.out
    return max(code, compare.main("scaling", [*studies, f"--out={out}"]))


AUTO = ("first_seeds", "max_seeds", "max_runs")


def add_table_options(parser: Parser) -> None:
    """Which cells; what is not given of --seeds auto stays as the study began, or as study/sequential.py has it."""
    parser.add_argument("--name", help="name of the study [as in the file]")
    parser.add_argument("--seeds", help="seeds instead of the file's: 1,2,3 or 1-3, or auto")
    parser.add_argument("--only", metavar="ROW,…", help=ONLY)
    parser.add_argument(
        "--tune", help="KEY=V1,V2,…: tune KEY separately for every row, e.g. training.lr_factor=0.5,1,2"
    )
    group = parser.add_argument_group("seeds", "For --seeds auto, which adds seeds to undecided rows, and --tune.")
    group.add_argument("--first-seeds", type=int, help=f"--seeds auto: seeds of every row to begin with [{FIRST}]")
    group.add_argument(
        "--max-seeds", type=int, help=f"--seeds auto: most seeds for a row that stays undecided [{BUDGET}]"
    )
    group.add_argument("--max-runs", type=int, help="--seeds auto: stop before more runs than this in all")
    text = f"--tune: seeds to choose the value at, separate from the table's [{TUNE_SEEDS}]"
    group.add_argument("--tune-seeds", help=text)


def rows_and_seeds(sweep: Sweep, settings: Settings) -> tuple[list[Row], list[int]]:
    """Rows, laid on base, and seeds to run, every one checked at its true sizes. Raises UserError."""
    if settings.row is not None:
        raise UserError(f"row '{settings.row.name}': a study takes its rows from {sweep.path}; for one row use fit")
    rows = [find_row(settings.rows, name) for name in sweep.rows]
    if settings.verb["only"] is not None:
        rows = only(sweep, rows, settings.verb["only"])
    rows = sweep.factor_rows(rows)
    if base_of(rows) is None:
        say(f"{sweep.path}: none of its rows is base, so nothing is compared with it: add base to them")
    if settings.verb["smoke"]:
        rows = [smoke_row(row, settings.base) for row in rows]
    text = settings.verb["seeds"]
    for option in AUTO if text != "auto" else ():
        if settings.verb[option] is not None:
            raise UserError(f"--{option.replace('_', '-')}={settings.verb[option]}: only with --seeds auto")
    seeds = sweep.seeds if text in (None, "auto") else numbers(text)
    seeds = seeds or [settings.base.training.seed]
    for seed in seeds:
        override(settings.base, {"training.seed": seed}, f"seed {seed}")
    rows = [row.on(settings.base) for row in rows]
    exact = []
    for row in rows:
        experiment = apply(settings.base, row, seeds[0])
        exact.append(check_experiment(experiment, f"row '{row.name}'"))
        check_trainable(experiment, f"row '{row.name}'")
    check_classes_work(exact)
    return rows, seeds


def only(sweep: Sweep, rows: list[Row], text: str) -> list[Row]:
    """Those `rows` of the file that --only names, and base, in the file's order. Raises UserError."""
    names = text.split(",")
    if unknown := [name for name in names if name not in sweep.rows]:
        why = near_rows(unknown[0], sweep.rows) if sweep.rows else "it varies fields and names no rows"
        raise UserError(f"--only={text}: {sweep.path} has no row '{unknown[0]}': {why}")
    return [row for row in rows if row.name in (*names, base_of(rows))]


def table_from(settings: Settings, name: str, rows: list[Row], seeds: list[int]) -> Ablation:
    """The requested study; its text is not prepared yet. Raises UserError."""
    if file_of(settings.out, name).is_file():
        rows = without_hidden(rows, load_as(Ablation, settings.out, name))
    return Ablation(name=name, base=settings.base, rows=rows, seeds=seeds, prints=Fingerprints("", ""), V=1, store="")


def tuning_from(settings: Settings, study: Ablation) -> Tuning | None:
    """What --tune requests for a study, checked. Raises UserError."""
    options, root = settings.verb, settings.out
    if not options["tune"]:
        if options["tune_seeds"] is not None:
            raise UserError(f"--tune-seeds={options['tune_seeds']}: only with --tune")
        return None
    if options["smoke"] and (key := options["tune"].partition("=")[0]) in SHORTENED:
        raise UserError(f"--tune={options['tune']}: {key} is the same for all of a smoke test: leave --tune out")
    seeds = numbers(options["tune_seeds"] or TUNE_SEEDS, "--tune-seeds")
    before = load_as(Ablation, root, study.name).seeds if file_of(root, study.name).is_file() else []
    reported = reported_seeds(study, options, root) if options["seeds"] == "auto" else study.seeds
    return tuning_of(options["tune"], seeds, study, [*reported, *before])


def _run(settings: Settings, sweep: Sweep, study: Ablation, tuning: Tuning | None, resources: Resources) -> int:
    from lightning_tfm.queue.prepare_data_rows import on_this_machine

    root, options = settings.out, settings.verb
    study = replace(study, title=sweep.title, question=sweep.question)
    study = on_this_machine(study, root, progress_of(study.name))
    if tuning is not None:
        if (chosen := with_best_values(study, tuning, root, resources)) is None:
            return 0
        study = chosen
    for row, same in study.twins().items():
        print(f"{row} is {same}: one run for both at each seed, and not a comparison", file=sys.stderr)
    cells = study.cells()  # what is asked for; the saved study may hold further rows and seeds
    if options["seeds"] == "auto":
        from lightning_tfm.queue import rounds

        study = rounds.begin(study, options, root)
    else:
        check_fixed(study.name, root)
        study = save(study, root)
    say_kept(study, sweep, settings)
    return carry_out(study, root, resources, options, cells)


def say_kept(study: Ablation, sweep: Sweep, settings: Settings) -> None:
    """Name the rows that a table keeps though its sweep file lacks them, and those that are hidden."""
    named = {row.name for row in sweep.factor_rows([find_row(settings.rows, row) for row in sweep.rows])}
    if unnamed := [row.name for row in study.rows if row.name not in named]:
        hide = with_out(f"lightning-tfm study hide {study.name} {shlex.quote(unnamed[0])}", settings.out)
        them = "them" if unnamed[1:] else "it"
        say(f"{study.name}: kept, though {sweep.path} does not name {them}: {', '.join(unnamed)} ({hide})")
    say_hidden(study, settings.out)
