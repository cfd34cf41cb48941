"""Lines translated in order, by one process or by one for each device."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from lightning_tfm.accel.onednn import PackedTransformer, can_pack
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.inference.load import BLOCK, Trained, Translation
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.threads import keep_freed_memory


def translate(
    start: Callable[[int], Trained], devices: int, lines: Iterable[str], n_best: int
) -> Iterator[list[Translation]]:
    """In order. With several devices, blocks of lines go to separate processes, a few ahead of what is written."""
    if devices == 1:
        yield from start(0).translate(lines, n_best)
        return
    spawn, lines = multiprocessing.get_context("spawn"), iter(lines)
    numbers = spawn.Queue()
    for number in range(devices):
        numbers.put(number)
    with ProcessPoolExecutor(devices, spawn, _begin, (start, numbers)) as pool:
        waiting: deque[Any] = deque()
        while True:
            while len(waiting) < 2 * devices and (block := list(islice(lines, BLOCK))):
                waiting.append(pool.submit(_block, block, n_best))
            if not waiting:
                return
            yield from waiting.popleft().result()


_mine: list[Trained] = []
"""of a process of the pool: the run that it opened"""


def _begin(start: Callable[[int], Trained], numbers: Any) -> None:
    _mine.append(start(numbers.get()))


def _block(block: list[str], n_best: int) -> list[list[Translation]]:
    return list(_mine[0].translate(block, n_best))


def open_trained(folder: RunFolder, experiment: Experiment, hardware: Hardware, packed: bool, number: int) -> Trained:
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    if hardware.keep_memory:
        keep_freed_memory()
    trained = Trained.open(folder, experiment)
    if hardware.accelerator != "cpu" and torch.cuda.is_available():
        trained.module.to(f"cuda:{number}")
    if not packed:
        return trained
    if not can_pack(trained.module.transformer):
        raise UserError("--packed is for weights in float32 on a CPU, and for a torch with oneDNN: remove it")
    return replace(trained, decoder=PackedTransformer(trained.module.transformer))
