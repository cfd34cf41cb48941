"""Where a number was made: machine, versions, commit."""

import os
import platform
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.runs.record import Git, Machine, without_folders
from lightning_tfm.runs.rng_check import rng_note

PACKAGES = ("lightning_tfm", "torch", "lightning", "numpy", "optuna", "sentencepiece", "sacrebleu", "wandb")


def versions() -> dict[str, str]:
    by_name = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            by_name[name] = "not installed"
    return by_name


def git_state() -> Git | None:
    """Commit of the checkout that this code runs from, and whether it was changed; None outside a checkout."""
    folder = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != folder.parents[1]:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "lightning_tfm")
        return Git(commit=git("rev-parse", "HEAD"), changed=bool(changed))
    except (OSError, subprocess.CalledProcessError):
        return None


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine(trainer: Hardware) -> Machine:
    """The machine as this process sees it. Imports torch."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Machine(
        host=platform.node(),
        cpu=cpu_model(),
        cpus=os.cpu_count(),
        gpus=gpus,
        processes=trainer.devices * trainer.num_nodes,
        threads=torch.get_num_threads(),
        system=f"{platform.system()} {platform.release()}",
        command=[without_folders(word) for word in sys.argv],
        trainer=asdict(trainer),
    )


def inexact(e: Experiment, hardware: Hardware) -> list[str]:
    """What may keep another machine from the same numbers up to the order of sums."""
    from lightning_tfm.training.precision import uses_gpu

    reasons = [note] if (note := rng_note()) else []
    if e.training.masks == "device" and e.model.P_drop:
        reasons.append("dropout masks come from the device's generator: equal in distribution only")
    if hardware.products != "torch":
        reasons.append(f"products of the training by {hardware.products}, rounded otherwise than torch's")
    if uses_gpu(hardware):
        reasons.append("GPUs add in another order than CPUs, each model in its own")
    if e.training.precision in ("bfloat16", "tfloat32"):
        reasons.append(f"{e.training.precision} rounds differently on other devices")
    return reasons
