"""What a machine gives to a study."""

from dataclasses import dataclass, field
from typing import Literal

from lightning_tfm.config import Hardware
from lightning_tfm.queue.devices import Devices
from lightning_tfm.queue.slurm import Slurm
from lightning_tfm.runs.directory import GRACE


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
    slurm: Slurm | None = None
    """submit the workers as jobs instead of forking them here"""
    runs_per_device: int = 0
    """as asked, 0: not; for jobs, which find their devices themselves"""
    grace: float = GRACE
    """seconds of silence after which a run's owner is presumed dead"""
    patience: float = 60.0
    """seconds that a run gets to write its checkpoint after a stop signal"""
