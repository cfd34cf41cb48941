"""`doctor`: what this installation runs on, and what of it is deterministic."""

import os
from collections.abc import Sequence

from lightning_tfm.cli.arguments import make_parser, parse, prints_config
from lightning_tfm.cli.terminal import fit_width
from lightning_tfm.queue.resources import how_shared
from lightning_tfm.runs.environment import cpu_model, git_state, rng_note, versions
from lightning_tfm.runs.process.threads import check_cores, threads_of, waiting


def main(verb: str, argv: Sequence[str]) -> int:
    settings = parse(
        make_parser(verb, "Versions, devices, threads, and what is deterministic for an experiment."), argv
    )
    if prints_config(settings):
        return 0
    exact, hardware = settings.exact, settings.hardware
    for name, version in versions().items():
        _say(name, version)
    git = git_state()
    _say("git", "not a checkout" if git is None else git.commit + ", changed" * git.changed)
    _say("cpu", f"{cpu_model()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} usable")

    _say("random draws", rng_note() or "as committed: initial weights and orders do not depend on the NumPy")

    check_cores(hardware)
    from_environment = ", by OMP_NUM_THREADS" if threads_of(hardware) and not hardware.threads else ""

    import torch

    _say("threads", f"{hardware.threads or torch.get_num_threads()} in a single run{from_environment}")
    _say("waiting threads", waiting())
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    _say("gpus", ", ".join(gpus) or "none")
    if gpus:
        _say_gpus(len(gpus))

    from lightning_tfm.runs.environment import inexact

    reasons = inexact(exact, hardware)
    _say("deterministic", "yes: sums may differ in their last bits between machines" if not reasons else "no")
    for reason in reasons:
        _say("", reason)
    return 0


def _say_gpus(count: int) -> None:
    import torch

    from lightning_tfm.accel.on_gpu import kernel_errors

    for number in range(count):
        for place, line in enumerate(kernel_errors(torch.device("cuda", number))):
            _say("" if place else f"kernels on {number}", line)
    _say("MPS", how_shared())
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else "none"
    _say("NCCL", f"{nccl}; this program has not been tested on several GPUs: docs/howto/gpu.md has what to run first")
    _say("on one GPU", "the same bits again, killed or not: operations without a deterministic form are refused")


def _say(name: str, found: str) -> None:
    print(fit_width(f"{name:16} {found}", indent=17))
