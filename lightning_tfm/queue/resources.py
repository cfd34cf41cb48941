"""What a machine provides to a study."""

import os
import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.queue.clusters import CLUSTERS, Cluster
from lightning_tfm.queue.devices import TOGETHER, Devices, check_accelerator, find_devices, visible_gpus
from lightning_tfm.runs.folder import GRACE
from lightning_tfm.runs.process.forking import by_torchrun
from lightning_tfm.runs.process.threads import check_cores, threads_of
from lightning_tfm.study.preflight import check_hardware, check_one_machine


@dataclass(frozen=True)
class Resources:
    """Workers, what each may use, and where the study's queue is."""

    workers: int = 1
    threads: int = 1
    """CPU threads of each process"""
    hardware: Hardware = field(default_factory=Hardware)
    """of each run"""
    devices: Devices | None = None
    """None: workers share the machine freely"""
    storage: str = ""
    """address of the queue; empty for the study's own journal, or where it was started"""
    wandb: Literal["off", "offline", "online"] = "off"
    share_files: bool = True
    """False: finished records go through the storage, to machines that do not see --out"""
    cluster: Cluster | None = None
    """submit the workers as jobs instead of forking them here"""
    runs_per_device: int = 0
    """as given, 0: not; for jobs, which find their devices themselves"""
    grace: float = GRACE
    """seconds of silence after which a run's owner is presumed dead"""
    patience: float = 60.0
    """seconds that a run gets to write its checkpoint after a stop signal"""


def make_resources(options: dict[str, Any], hardware: Hardware, here: bool = True) -> Resources:
    """Raises UserError where options contradict each other or, unless `here` is False, the machine.

    Elsewhere a requested GPU is taken to exist for every run at once.
    """
    if by_torchrun():
        if os.environ["RANK"] != "0":  # one of them says it; torchrun ends the others
            time.sleep(30)
            raise SystemExit(2)
        raise UserError(
            "torchrun starts the processes of one run (fit), and a study starts its runs' processes: type the same "
            "without torchrun, --workers N for N runs at once, --devices-per-run N for N processes of each"
        )
    if options["workers"] < 0:
        raise UserError(f"--workers={options['workers']}: must not be negative")
    if options["no_shared_files"] and "://" not in options["storage"]:
        raise UserError("--no-shared-files needs --storage postgresql+psycopg://…: a journal is a shared file")
    check_hardware(hardware)
    per_run, runs = options["devices_per_run"], options["runs_per_device"]
    if runs < 0:
        raise UserError(f"--runs-per-device={runs}: must not be negative")
    if per_run and hardware.devices not in (1, per_run):
        raise UserError(f"--devices-per-run={per_run} contradicts --trainer.devices={hardware.devices}")
    hardware = replace(hardware, devices=per_run or hardware.devices)
    gpu = hardware.accelerator == "gpu" or (hardware.accelerator == "auto" and bool(visible_gpus()))
    cluster = _cluster(options)
    if cluster is not None and hardware.accelerator == "gpu":
        cluster = cluster.with_gpus(hardware.devices * -(-max(1, options["workers"]) // (runs or 1)))
    check_one_machine(hardware)
    if cluster is None and here:
        check_accelerator(hardware)
        check_cores(hardware, options["workers"])
    wanted = threads_of(hardware) if cluster is None else hardware.threads
    cpus = cluster.cpus if cluster else len(os.sched_getaffinity(0))
    devices = None
    if cluster is None and here and (gpu or per_run or runs):
        devices = find_devices(gpu, wanted, hardware.devices, runs or 1)
        workers = options["workers"] or len(devices)
    else:
        if runs > 1 and hardware.devices > 1:
            raise UserError(TOGETHER)
        gpus = cluster.gpus if cluster is not None and hardware.accelerator != "cpu" else 0
        there = gpus or cpus // max(1, wanted)
        workers = options["workers"] or max(1, there // hardware.devices) * (runs or 1)
    threads = wanted or max(1, cpus // (workers * hardware.devices))
    if cluster is not None and options["no_shared_files"]:
        why = "the jobs of a cluster work in the study's folder"
        raise UserError(f"--launcher {cluster.name} and --no-shared-files: {why}")
    share = not options["no_shared_files"]
    return Resources(workers, threads, hardware, devices, options["storage"], options["wandb"], share, cluster, runs)


def _cluster(options: dict[str, Any]) -> Cluster | None:
    """The one that --launcher names, None for this machine. Raises UserError for options of another."""
    launcher = options["launcher"]
    for name, cls in CLUSTERS.items() if launcher is None else ():
        for option, default in vars(cls()).items():  # a study started on a cluster resumes with --launcher local
            if options[name][option] != default:
                raise UserError(f"--{name}.{option}={options[name][option]} needs --launcher {name}")
    return CLUSTERS[launcher](**options.get(launcher, {})) if launcher in CLUSTERS else None
