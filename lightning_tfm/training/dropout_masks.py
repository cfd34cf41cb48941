"""Dropout masks keyed by (seed, step, side, sentence): the same on any number of devices, however the step is cut.

Each sentence of a step's global batch has its own Philox stream, at counter (block, sentence, step, side) under a key
made of the seed. Its numbers are read as 16-bit words in the order (sub-layer, position, channel), so neither padding
nor neighbours matter, and nothing has to be saved. A word below round(65536 P_drop) drops its element: P_drop is
honoured to 2^-17. One 64-bit draw serves four elements, which is about five times cheaper than torch's bernoulli_ on
a CPU.
"""

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.config import Model
from lightning_tfm.data.batch import Batch
from lightning_tfm.keys import key
from lightning_tfm.model.transformer import DecoderLayer, EncoderLayer, Noise

SOURCE, TARGET = 0, 1


class SentenceMasks:
    """Draws the masks of one experiment."""

    def __init__(self, model: Model, seed: int):
        self.d_model = model.d_model
        self.streams = {
            SOURCE: 1 + EncoderLayer.sublayers * model.N,
            TARGET: 1 + (EncoderLayer if model.one_stack else DecoderLayer).sublayers * model.N,
        }
        self.dropped = round(65536 * model.P_drop)
        self.philox = np.random.Philox(key=key("dropout", seed))
        self.state = self.philox.state

    def words(self, step: int, side: int, index_B: np.ndarray, lengths_B: np.ndarray) -> np.ndarray:
        """uint16 [streams, B, longest, D]; beyond a sentence's length the words are 0."""
        streams, D = self.streams[side], self.d_model
        longest = int(lengths_B.max()) if len(lengths_B) else 0
        filled = np.zeros((streams, len(index_B), longest, D), dtype=np.uint16)
        state, counter = self.state, self.state["state"]["counter"]
        state["buffer_pos"] = 4
        for row, (sentence, length) in enumerate(zip(index_B.tolist(), lengths_B.tolist(), strict=True)):
            counter[:] = (0, sentence, step, side)
            self.philox.state = state
            count = streams * length * D
            drawn = self.philox.random_raw(-(-count // 4)).view(np.uint16)
            filled[:, row, :length] = drawn[:count].reshape(streams, length, D)
        return filled

    def masks(self, words: np.ndarray, dtype: torch.dtype) -> Tensor:
        """0 where dropped, 1 / (1 - P) elsewhere, with P the share that 16 bits can express."""
        # torch compares int16 quickly and uint16 not at all; read as signed, the uniform words stay uniform
        signed = torch.from_numpy(words.view(np.int16))
        keep = torch.empty(signed.shape, dtype=dtype)
        return torch.ge(signed, self.dropped - 32768, out=keep).mul_(65536 / (65536 - self.dropped))

    def noise(self, step: int, batch: Batch, like: Tensor) -> Noise:
        """The masks of one micro-batch of optimizer step `step`, on the device and in the dtype of `like`."""
        source = self.words(step, SOURCE, batch.index_B, batch.source_lengths_B)
        target = self.words(step, TARGET, batch.index_B, batch.target_lengths_B)
        return Noise(*(self.masks(words, like.dtype).to(like.device) for words in (source, target)))
