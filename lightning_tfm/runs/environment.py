"""Where a number was made: machine, versions, commit; and whether NumPy draws there what it drew for other runs.

Philox's words are fixed for good, but what NumPy's Generator makes of them is not: a release may change it (NEP 19).
Another NumPy would then train other runs under the same names.
"""

import hashlib
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.rng import generator
from lightning_tfm.runs.record import Git, Machine, Segment, without_folders

PACKAGES = ("lightning_tfm", "torch", "lightning", "numpy", "optuna", "sentencepiece", "sacrebleu", "wandb")
FIRST_DRAWS = {"standard_normal": "ca6fd564ae468b28", "random": "7bd16b647658f1e0", "permutation": "ec08d4938141c23e"}
"""method of numpy.random.Generator -> the first 16 hex digits of the sha256 of its first draws"""


Plain = dict[str, Any]
"""a record.Segment as a checkpoint holds it"""


@cache
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


def changed_methods() -> list[str]:
    """Those of FIRST_DRAWS of which the NumPy that is installed makes other numbers."""
    made = {
        "standard_normal": generator("draws", 1).standard_normal((61, 67)).round(9),  # libraries differ in a last bit
        "random": generator("draws", 2).random((61, 67)),
        "permutation": generator("draws", 3).permutation(100_003),
    }
    digests = {name: hashlib.sha256(drawn.tobytes()).hexdigest()[:16] for name, drawn in made.items()}
    return [name for name, digest in digests.items() if digest != FIRST_DRAWS[name]]


def rng_note() -> str:
    """A line for a record and for people where draws have changed, else empty."""
    names = ", ".join(changed_methods())
    return f"NumPy {version('numpy')} draws other numbers ({names}): other initial weights and orders" * bool(names)


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


def attempt_provenance(e: Experiment, hardware: Hardware, attempt: int, step: int) -> tuple[Plain, list[Plain]]:
    """This attempt, which resumes after `step`; and what came before it, where the checkpoint does not say."""
    this_attempt = Segment(
        attempt=attempt,
        first=step + 1,
        last=step,
        hardware=machine(hardware),
        versions=versions(),
        git=git_state(),
        inexact=inexact(e, hardware),
    )
    return asdict(this_attempt), [asdict(Segment(last=step))] if step else []
