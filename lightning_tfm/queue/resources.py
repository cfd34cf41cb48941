"""What a machine provides to a study: workers, and devices, of which those at one machine get disjoint ones."""

import os
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from lightning_tfm.config import Hardware
from lightning_tfm.errors import NotHere, UserError
from lightning_tfm.plural_words import plural
from lightning_tfm.queue.clusters import CLUSTERS, Cluster
from lightning_tfm.runs.folder import GRACE
from lightning_tfm.runs.process.forking import by_torchrun
from lightning_tfm.runs.process.threads import check_cores, threads_of
from lightning_tfm.study.preflight import check_hardware, check_one_machine

USUAL_MPS = Path("/tmp/nvidia-mps")
"""where a daemon is that was started without a folder"""
TOGETHER = "--devices-per-run and --runs-per-device: give several devices to a run, or several runs to a device"


@dataclass(frozen=True)
class Devices:
    """`per_run` devices for each run, `runs` runs on each device. Slot 0 gets the first devices, and so on."""

    names: list[str]
    """GPUs as CUDA_VISIBLE_DEVICES names them, or CPU numbers"""
    gpu: bool
    per_run: int
    runs: int

    def __len__(self) -> int:
        """Runs at once."""
        return len(self.names) // self.per_run * self.runs

    def of(self, slot: int) -> list[str]:
        """The devices of a slot; slots beyond the last start again at the first."""
        groups = len(self.names) // self.per_run
        first = slot // self.runs % groups * self.per_run
        return self.names[first : first + self.per_run]

    def assign(self, slot: int) -> None:
        """Keep the calling process, and its children, to the devices of its slot. Before CUDA is touched."""
        if self.gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.of(slot))
        else:
            os.sched_setaffinity(0, {int(cpu) for cpu in self.of(slot)})


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


# --- devices ---


def find_devices(gpu: bool, threads: int, per_run: int, runs: int) -> Devices:
    """The devices of this machine; on CPUs one is `threads` processors. Raises UserError where they are too few."""
    if per_run < 1 or runs < 1:
        raise UserError(f"--devices-per-run={per_run}, --runs-per-device={runs}: both must be at least 1")
    if per_run > 1 and runs > 1:
        raise UserError(TOGETHER)
    devices = visible_gpus() if gpu else [str(cpu) for cpu in sorted(os.sched_getaffinity(0))]
    each = per_run if gpu else per_run * max(1, threads)
    if len(devices) < each:
        kind = "GPUs" if gpu else f"CPUs ({plural(max(1, threads), 'thread')} for each process)"
        raise NotHere(f"--devices-per-run={per_run} needs {each} {kind}, this machine has {len(devices)}")
    return Devices(devices, gpu, each, runs)


def how_shared() -> str:
    """How runs of one GPU compute on it: as clients of NVIDIA's Multi-Process Service, where it runs, or by turns."""
    service = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or (str(USUAL_MPS) if (USUAL_MPS / "control").exists() else "")
    if service:
        return f"runs that share a GPU are clients of the MPS at {service}"
    return "runs that share a GPU take turns on it: no MPS is running (nvidia-cuda-mps-control -d starts one)"


def visible_gpus() -> list[str]:
    """GPUs that this process may use, without touching CUDA, which would not survive a fork."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip() not in ("", "-1")]
    gpus = list(Path("/proc/driver/nvidia/gpus").glob("*")) or list(Path("/dev").glob("nvidia[0-9]*"))
    return [str(number) for number in range(len(gpus))]


FOREIGN_GPUS = ("/dev/kfd", "/dev/dxg")
"""of AMD, and of Windows below Linux: torch reaches them under CUDA's name"""


def check_accelerator(hardware: Hardware, precision: str = "float32") -> None:
    """Raise UserError where `gpu` is requested, or what only a GPU has, and this machine, or torch on it, has none.

    Does not touch CUDA.
    """
    there = visible_gpus() or any(Path(path).exists() for path in FOREIGN_GPUS)
    if hardware.accelerator == "cpu" or not there:
        why = "trainer.accelerator=cpu takes none" if hardware.accelerator == "cpu" else "this machine has none"
        if hardware.kernels == "all":
            raise NotHere(f"trainer.kernels=all needs a GPU, and {why}: remove it")
        if precision == "tfloat32":
            raise NotHere(
                f"training.precision=tfloat32 needs an NVIDIA GPU of compute capability 8.0 or later, and {why}: "
                "use float32, which is another experiment"
            )
    _check_products(hardware, precision, bool(there))
    if hardware.kernels == "all" and find_spec("triton") is None:
        raise UserError("trainer.kernels=all needs Triton: pip install triton, or remove it")
    if hardware.accelerator != "gpu":
        return
    option = "trainer.accelerator=gpu"
    instead = "give --trainer.accelerator cpu, or auto, which takes what is available"
    if not there:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "but this machine has none" if hidden is None else f"but CUDA_VISIBLE_DEVICES={hidden!r} hides them"
        raise NotHere(f"{option} needs a GPU, {why}: {instead}")
    if version("torch").endswith("+cpu"):
        raise NotHere(f"{option}: torch {version('torch')} is built without CUDA: install one with it, or {instead}")


def _check_products(hardware: Hardware, precision: str, gpu: bool) -> None:
    """Raise UserError where oneDNN is requested and cannot be used."""
    option = "trainer.products=onednn"
    if hardware.products == "torch":
        return
    if gpu and hardware.accelerator != "cpu":
        raise UserError(f"{option} multiplies on CPUs: give --trainer.accelerator cpu too, or remove it")
    if precision != "float32":
        raise UserError(f"{option} multiplies in float32, training.precision is {precision}: leave one of them out")
    if hardware.compile:
        raise UserError(f"{option} and trainer.compile: a compiler chooses by itself; leave one of them out")
