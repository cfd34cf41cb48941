"""The formulas of a training step that exist as kernels for GPUs, too, and who computes them here (model/kernels/).

`trainer.kernels` says which are wanted: `masks`, those that give the same bits by definition and are compared with
NumPy's as a training starts; `all`, also those that are equal up to rounding; `none`. On CPUs there are none; there
`trainer.products` says who multiplies matrices (model/products.py).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.model import kernels
from lightning_tfm.model.products import OneDNNProducts, has_onednn, linear_by_onednn
from lightning_tfm.model.transformer import Noise, Transformer
from lightning_tfm.training.dropout_masks import SOURCE, TARGET, SentenceMasks
from lightning_tfm.training.loss import BY_TORCH, smoothed_nll, smoothing_weights
from lightning_tfm.training.precision import lowered_dtype

CHECKED = ((0, (0, 3, 41), (1, 5, 17)), ((1 << 32) + 5, (2, 1 << 20), (23, 4)))
"""(step, sentences, lengths) whose masks a device draws before it is believed"""


SAFE = "leave it out, or give --trainer.kernels masks"


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
        from lightning_tfm.model.kernels.masks import masks

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


class Formulas:
    """Masks (None where nothing is dropped, or the device draws its own) and loss of one training."""

    def __init__(self, masks: SentenceMasks | None, wanted: str = "masks"):
        self.masks, self.wanted = masks, wanted
        self._drawing: dict[torch.device, SentenceMasks | DeviceMasks] = {}
        self.products = BY_TORCH

    def noise(self, step: int, batch: Batch, like: Tensor) -> Noise:
        """Masks of a micro-batch, where there are any."""
        if like.device not in self._drawing:
            self._drawing[like.device] = self._choose(like.device)
        return self._drawing[like.device].noise(step, batch, like)

    def _choose(self, device: torch.device) -> SentenceMasks | DeviceMasks:
        assert self.masks is not None
        if self.wanted != "none" and kernels.runs_on(device):
            return DeviceMasks(self.masks, device)
        if device.type == "cuda":
            remedy = "install triton" if self.wanted != "none" else "--trainer.kernels masks"
            print(f"dropout masks are drawn on the CPU, and {device} waits for them: {remedy}", file=sys.stderr)
        return self.masks

    def smoothed_nll(
        self, x_ND: Tensor, E_WD: Tensor, y_N: Tensor, eps_ls: float, smoothing: str
    ) -> tuple[Tensor, Tensor]:
        """As loss.smoothed_nll. Raises UserError where kernels are asked for that do not run here."""
        if not self._all_here(E_WD, x_ND.device):
            return smoothed_nll(x_ND, E_WD, y_N, eps_ls, smoothing, self.products)
        from lightning_tfm.model.kernels import loss

        weights = smoothing_weights(eps_ls, E_WD.shape[0], smoothing)
        return loss.smoothed_nll(x_ND, E_WD, y_N, *weights, lowered_dtype(x_ND))

    @contextmanager
    def multiplied(self, model: Transformer, products: str, precision: str, device: torch.device) -> Iterator[None]:
        """Inside, `model` trains by the products that `trainer.products` names. Raises UserError where it cannot.

        Also on machines that join a study: oneDNN's operator would multiply in float32 inside autocast, too.
        """
        if products == "torch":
            yield
            return
        if not has_onednn():
            raise UserError(f"trainer.products={products}: this torch has no oneDNN: leave it out")
        if precision != "float32" or device.type != "cpu":
            raise UserError(f"trainer.products={products} multiplies float32 on CPUs, not {precision} on {device}")
        self.products = OneDNNProducts()
        try:
            with linear_by_onednn(model):
                yield
        finally:
            self.products = BY_TORCH

    def _all_here(self, E_WD: Tensor, device: torch.device) -> bool:
        """Whether kernels that are equal up to rounding are to compute on `device`. Raises UserError: they cannot."""
        if self.wanted != "all" or E_WD.dtype is torch.float64:
            return False
        if not kernels.runs_on(device):
            raise UserError(f"trainer.kernels=all needs a GPU beside Triton, and this run is on {device}: {SAFE}")
        return True

    def said(self) -> list[str]:
        """What computes here in a way that is not a CPU's, for the record."""
        drawn = any(isinstance(masks, DeviceMasks) for masks in self._drawing.values())
        found = ["dropout masks by Triton, the same bits"] if drawn else []
        return found + (["loss by Triton"] if self.wanted == "all" else [])
