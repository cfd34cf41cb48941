"""`sweep`: all rows and seeds of a sweep file, several at once, then their table."""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import Settings, checked, make_parser, parse, printed
from lightning_tfm.cli.study import Crew, add_options, check_storage, is_search_file, make_crew, work
from lightning_tfm.errors import UserError
from lightning_tfm.study import definition
from lightning_tfm.study.rows import Fingerprints, Row, apply, find_row
from lightning_tfm.study.sweepfile import Sweep, read_sweep

if TYPE_CHECKING:
    from lightning_tfm.study.claim import Cell


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Run every row at every seed of a sweep file and print the table.")
    parser.add_argument("sweep", type=str, help="W&B sweep file, e.g. sweeps/table3.yaml")
    parser.add_argument("--name", type=str | None, default=None, help="name of the study [as in the file]")
    parser.add_argument("--seeds", type=str | None, default=None, help="seeds instead of the file's: 1,2,3 or 1-3")
    add_options(parser)
    for option in ("--sampler", "--trials"):
        parser.add_argument(option, type=str, default="", help="of a search, see: lightning-tfm tune --help")
    asked = parse(parser, argv).verb
    if is_search_file(asked["sweep"]):
        from lightning_tfm.cli import tune

        return tune.main(verb, argv)
    sweep = read_sweep(asked["sweep"])
    for option in ("sampler", "trials"):
        if asked[option]:
            raise UserError(f"--{option}={asked[option]}: {sweep.path} is a table: all its rows run, to their end")
    settings = parse(parser, [*sweep.arguments, *argv])
    if settings.verb["print_config"]:
        print(printed(settings), end="")
        return 0
    rows, seeds = asked_cells(sweep, settings)
    crew = make_crew(settings.verb, settings.hardware)
    name = settings.verb["name"] or sweep.name
    check_storage(crew.storage, definition.file_of(settings.out, name).parent)
    return _run(settings, name, rows, seeds, crew)


def asked_cells(sweep: Sweep, settings: Settings) -> tuple[list[Row], list[int]]:
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


def defined(
    settings: Settings, name: str, rows: list[Row], seeds: list[int]
) -> tuple[definition.Definition, "list[Cell]"]:
    """The study and its cells, the data prepared. Raises UserError."""
    from lightning_tfm.data.prepare import prepare

    base = settings.base
    prepared = prepare(base.data, settings.out)
    prints = Fingerprints(prepared.train_fingerprint, prepared.fingerprint(base.data.dev))
    study = definition.Definition(name, base, rows, seeds, prints, prepared.tokenizer.V, prepared.folder.name)
    return study, study.cells()


def _run(settings: Settings, name: str, rows: list[Row], seeds: list[int], crew: Crew) -> int:
    from lightning_tfm.report.records import write
    from lightning_tfm.report.render import to_text

    root = settings.out
    asked, cells = defined(settings, name, rows, seeds)
    study = definition.save(asked, root)
    try:
        states = work(study, cells, root, crew, start=True)
    finally:
        built = write(study, root)
    print(to_text(built, shutil.get_terminal_size((80, 24)).columns), end="")
    print(f"{definition.file_of(root, name).parent}/table.md, .csv, .json", file=sys.stderr)
    reported = _report(name, root)
    return 1 if not reported or any(state.state == "failed" for state in states) else 0


def _report(name: str, root: Path) -> bool:
    """Write the study's report.html and name it; where that fails, say why. The runs and the table are safe by then."""
    from lightning_tfm.report.build import make
    from lightning_tfm.study.files import write_atomic

    path = definition.file_of(root, name).parent / "report.html"
    try:
        write_atomic(path, make(name, root).render("html").encode())
    except Exception as error:  # whatever it is, it must not look like a failed training
        again = f"lightning-tfm report {name} --out {root}"
        print(f"{path} could not be written: {type(error).__name__}: {error}; again: {again}", file=sys.stderr)
        return False
    print(path)
    return True
