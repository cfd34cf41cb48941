"""Where an attempt makes its steps, and whether all attempts of a run had the same machine."""

from dataclasses import asdict
from typing import Any

from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.runs.environment import git_state, inexact, machine, versions
from lightning_tfm.runs.record import Stretch

Plain = dict[str, Any]
"""a record.Stretch as a checkpoint holds it"""


def where(e: Experiment, hardware: Hardware, attempt: int, step: int) -> tuple[Plain, list[Plain]]:
    """This attempt, which goes on after `step`; and what came before it, where the checkpoint does not say."""
    here = Stretch(
        attempt=attempt,
        first=step + 1,
        last=step,
        hardware=machine(hardware),
        versions=versions(),
        git=git_state(),
        inexact=inexact(e, hardware),
    )
    return asdict(here), [asdict(Stretch(last=step))] if step else []


def _products(one: Stretch) -> str:
    """Who multiplied: torch in records of before it could be another."""
    return str((one.hardware.trainer or {}).get("products", "torch"))


def alike(ran: list[Stretch]) -> bool:
    """Whether all steps were made on as many processes of as good a machine, so that their speed is one figure."""
    kinds = {(one.device, one.hardware.cpu, *one.hardware.gpus, one.hardware.processes, _products(one)) for one in ran}
    return len(kinds) == 1 and all(one.attempt is not None for one in ran)
