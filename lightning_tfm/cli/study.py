"""The options that the verbs which work on a study share."""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_tfm.cli.arguments import MODES, Parser
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.queue.devices import TOGETHER, check_accelerator, find_devices, visible_gpus
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.slurm import Slurm
from lightning_tfm.runs.nodes import check_allocation
from lightning_tfm.runs.threads import asked_threads, check_cores
from lightning_tfm.study.mistakes import check_hardware
from lightning_tfm.study.sweeps import SearchFile, Sweep, is_search
from lightning_tfm.yaml_files import read_yaml

MOST_SEEDS = 10_000
STORAGE = "postgresql+psycopg://… [a journal in the study's folder]"


def add_options(parser: Parser) -> None:
    """The options of a verb that runs workers."""
    parser.add_argument("--workers", type=int, default=0, help="runs at once; 0: one for each CPU, or GPU")
    parser.add_argument("--storage", default="", help=STORAGE)
    parser.add_argument(
        "--devices-per-run", type=int, default=0, help="processes of each run, each with its own device"
    )
    parser.add_argument("--runs-per-device", type=int, default=0, help="small runs that share a device")
    parser.add_argument("--wandb", choices=MODES, default="off", help="mirror runs to W&B")
    parser.add_argument("--launcher", choices=["local", "slurm"], help="where the workers run [local]")
    parser.add_fields("slurm", Slurm)
    parser.add_argument("--no-shared-files", action="store_true", help="the other machines do not see --out")


def make_resources(options: dict[str, Any], hardware: Hardware, here: bool = True) -> Resources:
    """Raises UserError where options contradict each other or the machine; with `here` False whatever the machine has.

    Elsewhere a GPU that is asked for is there for every run at once.
    """
    if options["workers"] < 0:
        raise UserError(f"--workers={options['workers']}: must not be negative")
    if options["no_shared_files"] and "://" not in options["storage"]:
        raise UserError("--no-shared-files needs --storage postgresql+psycopg://…: a journal is a shared file")
    check_hardware(hardware)
    _check_slurm(options["slurm"], options["launcher"])
    per_run, runs = options["devices_per_run"], options["runs_per_device"]
    if runs < 0:
        raise UserError(f"--runs-per-device={runs}: must not be negative")
    if per_run and hardware.devices not in (1, per_run):
        raise UserError(f"--devices-per-run={per_run} contradicts --trainer.devices={hardware.devices}")
    hardware = replace(hardware, devices=per_run or hardware.devices)
    gpu = hardware.accelerator == "gpu" or (hardware.accelerator == "auto" and bool(visible_gpus()))
    slurm = Slurm(**options["slurm"]) if options["launcher"] == "slurm" else None
    hardware = replace(hardware, num_nodes=_nodes(options, hardware))
    if slurm is None and here:
        check_accelerator(hardware)
        check_cores(hardware, options["workers"])
    asked = asked_threads(hardware) if slurm is None else hardware.threads
    cpus = slurm.cpus if slurm else len(os.sched_getaffinity(0))
    devices = None
    if slurm is None and here and (gpu or per_run or runs):
        devices = find_devices(gpu, asked, hardware.devices, runs or 1)
        workers = options["workers"] or len(devices)
    else:
        if runs > 1 and hardware.devices > 1:
            raise UserError(TOGETHER)
        gpus = slurm.gpus if slurm is not None and hardware.accelerator != "cpu" else 0
        there = gpus or cpus // max(1, asked)
        workers = options["workers"] or max(1, there // hardware.devices) * (runs or 1)
    if hardware.num_nodes > 1 and runs > 1:
        raise UserError(f"--runs-per-device={runs}: a run over {hardware.num_nodes} nodes shares its devices with none")
    workers = 1 if hardware.num_nodes > 1 else workers
    threads = asked or max(1, cpus // (workers * hardware.devices))
    if slurm is not None and options["no_shared_files"]:
        raise UserError("--launcher slurm and --no-shared-files: the jobs of a cluster work in the study's folder")
    share = not options["no_shared_files"]
    return Resources(workers, threads, hardware, devices, options["storage"], options["wandb"], share, slurm, runs)


def check_precisions(experiments: Iterable[Experiment], resources: Resources) -> None:
    """Raise UserError where one needs a device that this machine lacks; a cluster's jobs find out themselves."""
    if resources.slurm is None:
        for precision in sorted({experiment.training.precision for experiment in experiments}):
            check_accelerator(resources.hardware, precision)


def _check_slurm(options: dict[str, Any], launcher: str | None) -> None:
    for name, default in vars(Slurm()).items():
        if launcher is None and options[name] != default:  # a study begun on a cluster goes on with --launcher local
            raise UserError(f"--slurm.{name}={options[name]} needs --launcher slurm")
    for name in ("jobs", "minutes", "cpus", "gpus", "requeues", "stop_seconds"):
        least = int(name in ("jobs", "minutes", "cpus"))
        if options[name] < least:
            raise UserError(f"--slurm.{name}={options[name]}: must be at least {least}")


def _nodes(options: dict[str, Any], hardware: Hardware) -> int:
    """Nodes of each run."""
    asked, nodes = options["slurm"]["nodes"], hardware.num_nodes
    if asked < 1:
        raise UserError(f"--slurm.nodes={asked}: must be at least 1")
    if options["launcher"] != "slurm":
        if asked > 1:
            raise UserError(f"--slurm.nodes={asked} needs --launcher slurm")
        if nodes > 1:
            check_allocation(nodes)
    elif nodes not in (1, asked):
        raise UserError(f"--trainer.num_nodes={nodes} contradicts --slurm.nodes={asked}: give --slurm.nodes={nodes}")
    else:
        nodes = asked
    if nodes > 1 and options["workers"] > 1:
        raise UserError(f"--workers={options['workers']}: a run over {nodes} nodes takes all of them: give 1")
    return nodes


def check_storage(storage: str, folder: Path) -> None:
    """Raise UserError for an invalid address, or one that is not the study's, before anything is written."""
    from lightning_tfm.queue.storage import find_storage, remembered

    find_storage(remembered(storage, folder), folder).check()


def is_search_file(path: str) -> bool:
    """Whether a sweep file is a search: a table varies the parameter `row`. Raises UserError where it is not YAML."""
    return is_search(read_yaml(path))


def check_seed(asked: dict[str, Any], file: Sweep | SearchFile) -> None:
    """Raise UserError where the command line gives one seed, and the seeds are listed: it would decide nothing."""
    text = asked["seeds"]
    place = f"--seeds={text}" if text and text != "auto" else str(file.path) if file.seeds else ""
    for key, seed in dict(asked["given"]).items() if place else ():
        if key in ("seed", "training.seed") and seed is not None:
            kind = "search" if isinstance(file, SearchFile) else "table"
            raise UserError(f"--{key}={seed}: {place} lists the seeds, and a {kind}'s seeds are --seeds {seed}")


def numbers(text: str, option: str = "--seeds") -> list[int]:
    """Seeds that an option lists: 1,2,3 or 1-3 or a mixture. Raises UserError."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise UserError(
            f"{option}={text}: expected numbers such as 1,2,3 or 1-5{', or auto' if option == '--seeds' else ''}"
        )
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if (count := int(last or first) - int(first) + 1) > MOST_SEEDS:
            raise UserError(f"{option}={text}: {count:,} seeds; at most {MOST_SEEDS:,} are taken")
        found += range(int(first), int(last or first) + 1)
    if len(set(found)) < len(found) or not found:
        raise UserError(f"{option}={text}: a seed appears twice, or a range is empty")
    return found
