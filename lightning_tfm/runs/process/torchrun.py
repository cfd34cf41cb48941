"""One run over several nodes under torchrun, which starts every rank: rank 0 claims the run, the others follow it."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import Attempt, RunFolder
from lightning_tfm.runs.outcome import exit_code_of_body, print_ending
from lightning_tfm.runs.process.forking import exit_on_signals


def rank() -> int:
    """This process's rank over all nodes."""
    return int(os.environ["RANK"])


def with_torchrun_ranks(hardware: Hardware) -> Hardware:
    """`hardware` with the processes and nodes that torchrun has started. Raises UserError where it differs."""
    world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    for name, wanted, there in (
        ("devices", hardware.devices, local),
        ("num_nodes", hardware.num_nodes, world // local),
    ):
        if wanted not in (1, there):
            raise UserError(f"--trainer.{name}={wanted}: torchrun has started {there}; leave the option out")
    return replace(hardware, devices=local, num_nodes=world // local)


def release(code: int) -> None:
    """Rank 0: let the others end with `code` if they are still waiting."""
    if not _store().check([_key()]):
        _tell(code=code)


def _tell(number: int = 0, token: str = "", code: int = 0) -> None:
    """Tell the others the attempt that they take part in, or the exit code that it ends with."""
    _store().set(_key(), json.dumps([number, token, code]))


def lead(attempt: Attempt) -> None:
    """Rank 0: the run is claimed, let the others start. Raises UserError if one of them does not see its folder."""
    _tell(attempt.number, attempt.token)
    for other in range(1, int(os.environ["WORLD_SIZE"])):
        if why := _store().get(_answer(other)).decode():
            raise UserError(why)


def follow(folder: RunFolder, train: Callable[[Attempt], None]) -> int:
    """Take part in rank 0's attempt as another rank: `train(attempt)`; returns the exit code."""
    number, token, code = json.loads(_store().get(_key()))
    if not number:
        return int(code)
    exit_on_signals()
    attempt = Attempt(folder, number, token)

    def take_part() -> None:
        why = attempt.why_folder_not_shared(f"rank {rank()}", "rank 0")
        _store().set(_answer(rank()), why)
        if why:
            raise UserError(why)
        train(attempt)

    return exit_code_of_body(take_part, print_ending(f"rank {rank()}"))


def _answer(other: int) -> str:
    return f"{_key()}/{other}"


def _key() -> str:
    return f"lightning_tfm/attempt/{os.environ['TORCHELASTIC_RESTART_COUNT']}"


@cache
def _store() -> Any:
    """The store of torchrun's agent, which all ranks reach."""
    import torch.distributed as dist

    store, _, _ = next(dist.rendezvous("env://"))
    return store
