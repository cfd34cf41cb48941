"""Work on a saved study until nothing is left, then show what it found: what `sweep`, `tune` and `resume` share."""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.output import write_page
from lightning_tfm.cli.study_options import remember
from lightning_tfm.cli.terminal import forest_text
from lightning_tfm.queue.resources import Resources
from lightning_tfm.runs.outcome import say
from lightning_tfm.study.search import Search
from lightning_tfm.study.sequential import read_looks, seeds_of
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.study.study_file import folder_of, load_as

if TYPE_CHECKING:
    from lightning_tfm.report.study_report import Report
    from lightning_tfm.study.cell import Cell
    from lightning_tfm.watch.study_state import CellState


def carry_out(
    study: Study, root: Path, resources: Resources, options: Mapping[str, Any], cells: "Sequence[Cell]"
) -> int:
    """Train what a saved study has left, print and write what it shows; the exit code. Raises as `work`.

    `options`: those of the workers, `max_runs` and `reference`; `cells`: what to train of a table with fixed seeds.
    """
    remember(options, resources.hardware, root, study.name)
    print(f"{study.name} -> {folder_of(root, study.name)}", file=sys.stderr, flush=True)
    if isinstance(study, Search):
        states, written = _search(study, root, resources)
    else:
        assert isinstance(study, Ablation)
        states, written = _table(study, root, resources, options, cells)
    if options.get("smoke") and states is not None:
        command = shlex.join(word for word in sys.argv[1:] if word != "--smoke")
        print(f"smoke test: after ten steps scores mean nothing; for the study itself: lightning-tfm {command}")
    return 1 if not written or any(state.state == "failed" for state in states or ()) else 0


def _search(search: Search, root: Path, resources: Resources) -> "tuple[list[CellState] | None, bool]":
    from lightning_tfm.queue.launch import work
    from lightning_tfm.queue.sampling import warmup_line
    from lightning_tfm.queue.search_results import report
    from lightning_tfm.queue.studies import has_queue, open_queue
    from lightning_tfm.report.search_report import make

    if has_queue(root, search.name, resources.storage):
        if line := warmup_line(search, open_queue(root, search.name, resources.storage)):
            say(line)
    try:
        states = work(search, search.cells(), root, resources, start=True)
    finally:
        text = report(search, root, resources.storage)
    if states is None:
        return None, True
    print(text, end="")
    return states, write_page(search.name, root, lambda: make(search.name, root))


def _table(
    study: Ablation, root: Path, resources: Resources, options: Mapping[str, Any], cells: "Sequence[Cell]"
) -> "tuple[list[CellState] | None, bool]":
    # what follows takes seconds to load
    from lightning_tfm.queue import rounds
    from lightning_tfm.queue.launch import work
    from lightning_tfm.report.records import read_cells, with_sentences
    from lightning_tfm.report.study_report import look, page_name, reference_row, render_table, report_of, write_table

    name, folder = study.name, folder_of(root, study.name)
    course = read_looks(folder)
    try:
        if course is not None:
            seeds = seeds_of(course, study, folder)
            states = rounds.rounds(course, study, seeds, options.get("max_runs"), root, resources, look)
        else:
            states = work(study, cells, root, resources, start=True)
    finally:
        records = read_cells(load_as(Ablation, root, name), root)
        table = write_table(records)
    if states is None:
        return None, True
    means = render_table(table, "text", shutil.get_terminal_size((80, 24)).columns)
    several = any(row.n > 1 for row in table.rows)  # with single runs there is nothing to test
    print("" if several else means, end="")
    print(f"{folder}/table.md, .csv, .json", file=sys.stderr)
    made: list[Report] = []
    tested = cache(lambda: with_sentences(records))

    def report() -> "Report":
        made.append(_print_report(report_of(tested()), several, smoke=bool(options.get("smoke"))))
        return made[0]

    reported = write_page(name, root, report)
    print(means if several and not made else "", end="")
    if made and resources.wandb != "off":
        from lightning_tfm.cli.show.wandb import verdicts_of
        from lightning_tfm.queue.wandb_mirror import send_verdicts

        send_verdicts(folder, resources.wandb, name, verdicts_of(made[0]), say)
    if (row := options.get("reference")) is not None:
        against = reference_row(records.study, row)
        reported &= write_page(name, root, lambda: _print_table(report_of(tested(), against)), page_name(row))
    return states, reported


def _print_table(made: "Report") -> "Report":
    from lightning_tfm.report.study_report import render_table

    print(render_table(made.summary, "text", shutil.get_terminal_size((80, 24)).columns), end="")
    return made


def _print_report(made: "Report", several: bool, smoke: bool) -> "Report":
    """The report, its table with differences and verdicts printed where rows have `several` runs; what that says unless
    it is of a smoke test."""
    from lightning_tfm.report.analyses import factors
    from lightning_tfm.report.charts.study_forest import forest_of
    from lightning_tfm.report.wording.notes import to_words

    if several:
        _print_table(made)
    if smoke:
        return made
    width = shutil.get_terminal_size((80, 24)).columns
    grid = None if several else made.summary.of(factors.ANALYSIS)
    print("".join(f"{line}\n" for line in factors.notes(grid, made.summary)) if grid else "", end="")
    parts = to_words(made.summary, width), forest_text(forest_of(made.summary), width)
    print("\n".join(filter(None, parts)), end="")
    return made
