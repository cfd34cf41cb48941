"""A training step on a GPU: its dropout masks, and where asked for its loss, by Triton's kernels (kernels/).

`trainer.kernels` says which are wanted: `masks`, those that give the same bits by definition and are compared with
NumPy's as a training starts; `all`, also those that are equal up to rounding.
"""

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.model.transformer import Noise
from lightning_tfm.training.backend import Backend
from lightning_tfm.training.dropout_masks import SOURCE, TARGET, SentenceMasks
from lightning_tfm.training.loss import smoothing_weights
from lightning_tfm.training.precision import lowered_dtype

CHECKED = ((0, (0, 3, 41), (1, 5, 17)), ((1 << 32) + 5, (2, 1 << 20), (23, 4)))
"""(step, sentences, lengths) whose masks a device draws before it is believed"""


class DeviceMasks:
    """Draws the masks of `formula` on `device`. Raises UserError where a few of them are not NumPy's."""

    def __init__(self, formula: SentenceMasks, device: torch.device):
        self.formula, self.device = formula, device
        halves = formula.philox.state["state"]["key"].view(np.int64)
        self.key = torch.from_numpy(halves.copy()).to(device)
        self._kept: dict[torch.dtype, Tensor] = {}
        self._check()

    def noise(self, step: int, batch: Batch, like: Tensor) -> Noise:
        """As SentenceMasks.noise; nothing waits for the device."""
        from lightning_tfm.accel.kernels.masks import masks

        formula, (index_B, source_B, target_B) = self.formula, batch.keys_3B.unbind(0)
        kept, sides = self._value(like.dtype), []
        for side, lengths_B, ids in ((SOURCE, source_B, batch.source_BS), (TARGET, target_B, batch.target_in_BT)):
            shape = (formula.streams[side], ids.shape[1], formula.d_model)
            sides.append(masks(kept, self.key, index_B, lengths_B, shape, (step, side), formula.dropped))
        return Noise(*sides)

    def _value(self, dtype: torch.dtype) -> Tensor:
        """1 / (1 - P), by the formula itself."""
        if dtype not in self._kept:
            self._kept[dtype] = self.formula.masks(np.full(1, 0x7FFF, dtype=np.uint16), dtype).to(self.device)
        return self._kept[dtype]

    def _check(self) -> None:
        for step, index, lengths in CHECKED:
            pieces = [np.full(n - 1, 4) for n in lengths]
            batch = make_batch(pieces, pieces[::-1], np.array(index))
            wanted = self.formula.noise(step, batch, torch.empty(0))
            found = self.noise(step, batch.to(self.device), torch.empty(0, device=self.device))
            if not (torch.equal(found.source.cpu(), wanted.source) and torch.equal(found.target.cpu(), wanted.target)):
                raise UserError(
                    f"the dropout masks that Triton's kernel draws on {self.device} are not the experiment's: "
                    "--trainer.kernels none draws them on the CPU, bit for bit, and slower"
                )


class KernelBackend(Backend):
    """The formulas, but masks by Triton, the same bits, and with `loss` the loss too, equal up to rounding."""

    def __init__(self, loss: bool):
        super().__init__()
        self.loss, self._draws = loss, False

    def masks(self, formula: SentenceMasks, device: torch.device) -> DeviceMasks:
        self._draws = True
        return DeviceMasks(formula, device)

    def smoothed_nll(
        self, x_ND: Tensor, E_WD: Tensor, y_N: Tensor, eps_ls: float, smoothing: str
    ) -> tuple[Tensor, Tensor]:
        if not self.loss or E_WD.dtype is torch.float64:
            return super().smoothed_nll(x_ND, E_WD, y_N, eps_ls, smoothing)
        from lightning_tfm.accel.kernels import loss

        weights = smoothing_weights(eps_ls, E_WD.shape[0], smoothing)
        return loss.smoothed_nll(x_ND, E_WD, y_N, *weights, lowered_dtype(x_ND))

    def describe(self) -> list[str]:
        drawn = ["dropout masks by Triton, the same bits"] if self._draws else []
        return drawn + (["loss by Triton"] if self.loss else [])
