"""Where a number was made: machine, versions, commit."""

import hashlib
import json
import operator
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.durable import to_json, write_atomic
from lightning_tfm.runs.draws import said
from lightning_tfm.runs.record import Git, Machine, without_folders

PACKAGES = ("lightning_tfm", "torch", "lightning", "numpy", "optuna", "sentencepiece", "sacrebleu", "wandb")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


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


Product = Callable[[Any, Any], Any]
"""of two square matrices"""


def matrix_rate(
    precision: str, gpu: bool, root: Path, products: str = "torch", product: Product = operator.matmul
) -> float:
    """FLOP/s of a product of square matrices on one device of this process: the yardstick for a run's utilisation.

    Measured once for each machine, device, torch release, precision, number of threads and library
    (`trainer.products`, whose `product` it is), and kept below `root`/machines: on a GPU that several runs share it
    would disturb the others.
    Imports torch.
    """
    import torch

    device = torch.cuda.get_device_name() if gpu else f"{cpu_model()}, {torch.get_num_threads()} threads"
    place = {"host": platform.node(), "device": device, "torch": torch.__version__, "precision": precision}
    place |= {"products": products} if products != "torch" else {}
    name = hashlib.sha256(json.dumps(place, sort_keys=True).encode()).hexdigest()[:16]
    path = root / "machines" / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(path.read_bytes())["flops_per_second"])  # if damaged, it is measured again
    rate = _measured_rate(precision, gpu, product)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_json(place | {"flops_per_second": rate}))
    return rate


def _measured_rate(precision: str, gpu: bool, product: Product) -> float:
    """The best of six products or more, over a third of a second, so that a busy moment does not make runs look
    better; random numbers, because a product of equal ones draws less power, and a GPU computes it faster."""
    import torch

    n = 8192 if gpu else 1024
    device = torch.device("cuda" if gpu else "cpu")
    kind = getattr(torch, "float32" if precision == "tfloat32" else precision)
    a, b = torch.randn(2, n, n, device=device, generator=torch.Generator(device).manual_seed(1)).to(kind).unbind(0)
    seconds: list[float] = []
    while len(seconds) < 6 or sum(seconds) < 1 / 3:
        began = time.perf_counter()
        product(a, b)
        if gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return 2 * n**3 / min(seconds)


def inexact(e: Experiment, hardware: Hardware) -> list[str]:
    """What may keep another machine from the same numbers up to the order of sums."""
    from lightning_tfm.training.precision import uses_gpu

    reasons = [found] if (found := said()) else []
    if e.training.masks == "device" and e.model.P_drop:
        reasons.append("dropout masks come from the device's generator: equal in distribution only")
    if hardware.products != "torch":
        reasons.append(f"products of the training by {hardware.products}, rounded otherwise than torch's")
    if uses_gpu(hardware):
        reasons.append("GPUs add in another order than CPUs, each model in its own")
    if e.training.precision in ("bfloat16", "tfloat32"):
        reasons.append(f"{e.training.precision} rounds differently on other devices")
    return reasons
