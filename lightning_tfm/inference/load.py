"""A trained run, opened from its directory: to score it again, or to translate with it."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.data.batch import pad
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.errors import UserError
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.threads import keep_freed_memory
from lightning_tfm.runs.weights import weights_to_score
from lightning_tfm.training.module import TransformerModule

BLOCK = 1024
"""lines that are read, sorted by length and translated together"""
BATCH_CELLS = 4096
"""padded source pieces of one batch of translations"""


@dataclass(frozen=True)
class Translation:
    """A translation and its score: log-probability over the length penalty."""

    text: str
    score: float


@dataclass
class Trained:
    """`folder` of a finished run, its data, and a module on the CPU with the weights that `weights` asks for."""

    folder: RunFolder
    prepared: Prepared
    module: TransformerModule
    decoder: SequenceModel | None = None
    """what translates in place of the module's own model, e.g. accel.onednn.PackedTransformer"""

    @classmethod
    def open(cls, folder: RunFolder, experiment: Experiment) -> "Trained":
        """Raises UserError where data or weights are gone."""
        result = folder.read_result()
        assert result is not None, "only finished runs are opened"
        store = folder.root / "data" / result.data.store
        if not store.is_dir():
            raise UserError(f"{store} is gone, with the run's tokenizer and texts; put it back, or run `fit` again")
        prepared = Prepared(store)
        if result.data.train not in ("", prepared.train_fingerprint):
            raise UserError(
                f"{store} holds another text ({prepared.train_fingerprint[:12]}…) than the run was trained on "
                f"({result.data.train[:12]}…): put the old store back, or run `fit` again"
            )
        module = TransformerModule(experiment, prepared.tokenizer.V)
        module.transformer.load_state_dict(weights_to_score(folder, experiment))
        return cls(folder, prepared, module.eval())

    def translate(self, lines: Iterable[str], n_best: int = 1) -> Iterator[list[Translation]]:
        """The `n_best` translations of each line, best first, in order; an empty line stays empty.

        A language model continues each line, which is a part of the text.
        """
        lines = iter(lines)
        while block := [line.removesuffix("\n").removesuffix("\r") for line in islice(lines, BLOCK)]:
            yield from self._block(block, n_best)

    def _block(self, block: list[str], n_best: int) -> list[list[Translation]]:
        from lightning_tfm.model.beam_search import beam_search

        how, tokenizer = self.module.experiment.evaluation, self.prepared.tokenizer
        model, ids = self.decoder or self.module.transformer, tokenizer.encode(block)
        translations = [[Translation("", 0.0)] for _ in block]
        begins, device = not self.module.experiment.data.translated, self.module.device
        for lines in _batches(ids, alike=begins):
            begin_BP = (
                torch.from_numpy(np.stack([ids[i] for i in lines]).astype(np.int64)).to(device) if begins else None
            )
            source_BS = torch.from_numpy(pad([ids[i][:0] if begins else ids[i] for i in lines])[0]).to(device)
            best = beam_search(model, source_BS, how.beam, how.alpha, how.extra_len, n_best, begin_BP=begin_BP)
            for i, hypotheses in zip(lines, best, strict=True):
                first = ids[i].tolist() * begins
                begun, given = tokenizer.decode(first), block[i].rstrip() * begins  # unknown characters are not decoded
                texts = [(tokenizer.decode(first + x.pieces), x.score) for x in hypotheses]
                translations[i] = [Translation(_after(begun, given, text), score) for text, score in texts]
        return translations


def _after(begun: str, given: str, text: str) -> str:
    return given + text[len(begun) :] if text.startswith(begun) else text


def _batches(ids: list[np.ndarray], alike: bool) -> Iterator[list[int]]:
    """Line numbers by length, as many at once as BATCH_CELLS allows, `alike`: of one length; lines without pieces are
    left out."""
    batch: list[int] = []
    for i in sorted((i for i in range(len(ids)) if len(ids[i])), key=lambda i: len(ids[i])):
        other = alike and batch and len(ids[i]) != len(ids[batch[0]])
        if batch and (other or (len(batch) + 1) * (len(ids[i]) + 1) > BATCH_CELLS):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


# --- by one process, or by one for each device ---


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
    from lightning_tfm.accel.onednn import PackedTransformer, can_pack

    if not can_pack(trained.module.transformer):
        raise UserError("--packed is for weights in float32 on a CPU, and for a torch with oneDNN: remove it")
    return replace(trained, decoder=PackedTransformer(trained.module.transformer))
