"""`sweep`: all rows and seeds of a sweep file, several at once, then their table."""

import os
import re
import shutil
import sys
from collections.abc import Sequence

from lightning_tfm.cli.arguments import Settings, checked, make_parser, parse, printed
from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.study.rows import Fingerprints, Row, apply, find_row, run_identity
from lightning_tfm.study.sweepfile import Sweep, read_sweep


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Run every row at every seed of a sweep file and print the table.")
    parser.add_argument("sweep", type=str, help="W&B sweep file, e.g. sweeps/table3.yaml")
    parser.add_argument("--name", type=str | None, default=None, help="name of the study [as in the file]")
    parser.add_argument("--seeds", type=str | None, default=None, help="seeds instead of the file's: 1,2,3 or 1-3")
    parser.add_argument("--workers", type=int, default=0, help="runs at once; 0: one for each CPU, or GPU")
    parser.add_argument(
        "--storage", type=str, default="", help="postgresql+psycopg://… [a journal in the study's folder]"
    )
    sweep = read_sweep(parse(parser, argv).verb["sweep"])
    settings = parse(parser, [*sweep.arguments, *argv])
    if settings.verb["print_config"]:
        print(printed(settings), end="")
        return 0
    rows, seeds = _cells(sweep, settings)
    return _run(settings, settings.verb["name"] or sweep.name, rows, seeds)


def _cells(sweep: Sweep, settings: Settings) -> tuple[list[Row], list[int]]:
    """Rows and seeds to run, every one checked at its true sizes. Raises UserError."""
    if settings.row is not None:
        raise UserError(f"row '{settings.row.name}': the rows of a study are those of {sweep.path}; one row alone: fit")
    rows = [find_row(settings.rows, name) for name in sweep.rows]
    seeds = _numbers(settings.verb["seeds"]) if settings.verb["seeds"] else sweep.seeds
    seeds = seeds or [settings.base.training.seed]
    for row in rows:
        for seed in seeds:
            checked(apply(settings.base, row, seed), f"row '{row.name}'")
    return rows, seeds


def _numbers(text: str) -> list[int]:
    """1,2,3 or 1-3 or a mixture."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise UserError(f"--seeds={text}: expected numbers such as 1,2,3 or 1-5")
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    if len(set(found)) < len(found) or not found:
        raise UserError(f"--seeds={text}: a seed stands there twice, or a range is empty")
    return found


def _run(settings: Settings, name: str, rows: list[Row], seeds: list[int]) -> int:
    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.report.records import write
    from lightning_tfm.report.render import to_text
    from lightning_tfm.study import definition

    base, root = settings.base, settings.out
    definition.file_of(root, name)
    prepared = prepare(base.data, root)
    prints = Fingerprints(prepared.train_fingerprint, prepared.fingerprint(base.data.dev))
    V = prepared.tokenizer.V
    asked = definition.Definition(name, base, rows, seeds, prints, V, prepared.folder.name)
    cells = asked.cells()
    study = definition.save(asked, root)
    plans = {
        cell.training_hash: (apply(base, row, seed).scaled(), run_identity(base, row, seed, prints.train))
        for (row, seed), cell in zip(((row, seed) for row in rows for seed in seeds), cells, strict=True)
    }
    workers, threads = _workers(settings.verb["workers"], settings.hardware)

    from lightning_tfm.study.execute import make_train
    from lightning_tfm.study.launch import run_study

    train = make_train(plans, settings.hardware, root)
    try:
        states = run_study(name, cells, root, train, workers, threads, settings.verb["storage"])
    finally:
        built = write(study, root)
    print(to_text(built, shutil.get_terminal_size((80, 24)).columns), end="")
    print(f"{definition.file_of(root, name).parent}/table.md, .csv, .json", file=sys.stderr)
    return 1 if any(state.state == "failed" for state in states) else 0


def _workers(asked: int, hardware: Hardware) -> tuple[int, int]:
    """Runs at once, and CPU threads of each: one-thread runs side by side beat one run with many threads."""
    if asked < 0:
        raise UserError(f"--workers={asked}: must not be negative")
    cpus = len(os.sched_getaffinity(0))
    each = max(1, hardware.threads) * hardware.devices
    workers = asked or max(1, cpus // each)
    return workers, hardware.threads or max(1, cpus // (workers * hardware.devices))
