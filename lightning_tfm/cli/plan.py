"""`plan`: what a sweep would run, what is there already, and what it would take. Trains nothing."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import make_parser, parse
from lightning_tfm.cli.study import add_options, make_crew
from lightning_tfm.cli.sweep import asked_cells, defined
from lightning_tfm.config import Experiment, from_dict
from lightning_tfm.errors import UserError
from lightning_tfm.study.definition import predicted_cost
from lightning_tfm.study.folder import RunFolder
from lightning_tfm.study.sweepfile import read_sweep

if TYPE_CHECKING:
    from lightning_tfm.study.claim import Cell


@dataclass(frozen=True)
class Rate:
    """Predicted FLOPs that one run works off in a second, scoring included, and where that number comes from."""

    value: float
    source: str


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "What a sweep would run, what is there, and what it would take.")
    parser.add_argument("sweep", type=str, help="W&B sweep file of a table, e.g. sweeps/table3.yaml")
    parser.add_argument("--name", type=str | None, default=None, help="name of the study [as in the file]")
    parser.add_argument("--seeds", type=str | None, default=None, help="seeds instead of the file's: 1,2,3 or 1-3")
    parser.add_argument("--rate", type=float, default=0.0, help="FLOP/s of one run [measured from finished runs]")
    add_options(parser)
    sweep = read_sweep(parse(parser, argv).verb["sweep"])
    settings = parse(parser, [*sweep.arguments, *argv])
    if settings.verb["rate"] < 0:
        raise UserError(f"--rate={settings.verb['rate']}: must not be negative")
    rows, seeds = asked_cells(sweep, settings)
    crew = make_crew(settings.verb, settings.hardware)
    _, cells = defined(settings, settings.verb["name"] or sweep.name, rows, seeds)
    asked = settings.verb["rate"]
    rate = Rate(asked, "as stated") if asked else measured_rate(settings.out)
    print(text(cells, settings.out, crew.workers, rate))
    return 0


def measured_rate(root: Path) -> Rate | None:
    """The median over the finished runs of a results folder; None where there is none."""
    found = []
    for path in sorted((root / "runs").glob("*/result.json")):
        record = RunFolder(root, path.parent.name).read_result()
        if record is not None and record["seconds"]["total"] > 0:
            cost = predicted_cost(from_dict(Experiment, record["experiment"]), record["V"])
            found.append(cost / record["seconds"]["total"])
    return Rate(statistics.median(found), f"median of {len(found)} finished runs here") if found else None


def text(cells: "list[Cell]", root: Path, workers: int, rate: Rate | None) -> str:
    """One line for each cell, then the sum."""
    from lightning_tfm.study.progress import clock

    lines, ahead, whole, there = [], [], 0.0, 0
    for cell in cells:
        folder = RunFolder(root, cell.training_hash)
        left, where = _standing(folder)
        there += left == 0
        ahead.append(cell.cost * left)
        whole += cell.cost
        time = f"{clock(cell.cost * left / rate.value):>9}" if rate and left else ""
        what = f"{cell.row:14} seed {cell.seed:<4} {cell.training_hash[:16]}"
        lines.append(f"{what} {cell.cost:9.2e} FLOP {time:9} {where}".rstrip())
    lines.append(f"{len(cells)} runs: {there} there, {len(cells) - there} to run; {sum(ahead):.2e} of {whole:.2e} FLOP")
    if rate is None:
        lines.append("time unknown: no finished run here to measure by; train the smallest row, or state --rate FLOP/s")
    elif sum(ahead):
        longest = max([*ahead, sum(ahead) / workers]) / rate.value
        lines.append(f"about {clock(longest)} with {workers} at once, at {rate.value:.2e} FLOP/s each ({rate.source})")
    return "\n".join(lines)


def _standing(folder: RunFolder) -> tuple[float, str]:
    """The share of a run that is left, and where it stands in words."""
    if folder.finished():
        return 0.0, "there"
    progress, kept = folder.read_progress(), sorted(folder.checkpoints.glob("step-*.ckpt"))
    if folder.owner() is not None:
        return 1.0, "running now"
    if kept and progress:
        step = int(kept[-1].stem.removeprefix("step-"))
        return 1 - step / progress["steps"], f"goes on at step {step} of {progress['steps']}"
    return 1.0, "to run"
