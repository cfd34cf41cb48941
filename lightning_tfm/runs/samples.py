"""A few dev sentences, translated greedily at every validation: how a run's translations change as it learns.

They go into samples.jsonl in the run's folder: a line with the sentences, then one for each validation. Their cost
counts as validation; they draw no random numbers, so no weight depends on them.
"""

import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from lightning_tfm.atomic_io import append_whole
from lightning_tfm.data.batch import make_batch
from lightning_tfm.data.text.tokenizer import PieceTokenizer, Tokenizer
from lightning_tfm.data.token_store import Split
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.runs.folder import Attempt, whole_lines
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.precision import of_weights

COUNT = 4
"""sentences, spread evenly over the dev text"""
EXTRA = 10
"""pieces by which a translation may be longer than its source"""


class Samples:
    """Takes the samples of one attempt. `compiled`: layers are, and must not be recompiled for our shapes."""

    def __init__(self, attempt: Attempt, dev: Split, tokenizer: Tokenizer | PieceTokenizer, compiled: bool) -> None:
        self._attempt, self._dev, self._tokenizer, self._compiled = attempt, dev, tokenizer, compiled
        self._path = attempt.folder.path / "samples.jsonl"
        self._lines = sorted({i * len(dev) // COUNT for i in range(COUNT)})
        self._begun = False

    def take(self, module: TransformerModule, step: int) -> None:
        """Translate after this step, leaving the module in its mode. Raises StaleAttempt, OSError."""
        if not self._begun:
            self._begin(step)
        line = _line({"step": step, "translations": self._translate(module)})
        with self._attempt.guard():
            append_whole(self._path, line)

    @torch.no_grad()
    def _translate(self, module: TransformerModule) -> list[str]:
        sides = [self._dev.source(i) for i in self._lines], [self._dev.target(i) for i in self._lines]
        batch = module.transfer_batch_to_device(make_batch(*sides, np.array(self._lines)), module.device, 0)
        training = module.training
        module.eval()
        eager = torch.compiler.set_stance("force_eager") if self._compiled else nullcontext()
        with of_weights(module.device), eager:
            hypotheses = beam_search(module.transformer, batch.source_BS, 1, 0.0, EXTRA)
        module.train(training)
        return [self._tokenizer.decode(best[0].pieces) for best in hypotheses]

    def _begin(self, step: int) -> None:
        """Drop what came after the checkpoint from which this attempt started."""
        self._begun = True
        try:
            head = b"".join(line for line in whole_lines(self._path) if json.loads(line)["step"] < step)
        except (ValueError, KeyError, TypeError):  # damaged: data only for display must not end a training
            head = b""
        if not head:
            sides = (("sources", self._dev.source_text()), ("references", self._dev.target_text()))
            texts = {name: [text[i] for i in self._lines] for name, text in sides}
            head = _line({"step": 0, "lines": self._lines} | texts)
        self._attempt.write(self._path, head)


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()
