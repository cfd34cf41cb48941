"""A training step on a GPU: its dropout masks and its loss by Triton's kernels (kernels/).

`trainer.kernels` says which are wanted: `masks`, those that give the same bits by definition; `auto` and `all`, also
the loss, equal up to rounding. Each is compared with its formula before a training believes it.
"""

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.accel import kernels
from lightning_tfm.config import Evaluation, Model
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.model.beam_search import Hypothesis
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.training.backend import Backend, Draw, host_masks, translate
from lightning_tfm.training.loss import smoothed_nll, smoothing_weights
from lightning_tfm.training.masks import SOURCE, TARGET, SentenceMasks
from lightning_tfm.training.precision import lowered_dtype

CHECKED = ((0, (0, 3, 41), (1, 5, 17)), ((1 << 32) + 5, (2, 1 << 20), (23, 4)))
"""(step, sentences, lengths) whose masks a device draws before it is believed"""


FARTHEST = 1e-5
"""of the loss and its gradients from the formula's, in float32, of a kernel that is believed; an H100's: 9.4e-7"""


def loss_apart(device: torch.device) -> float:
    """How far the kernel's losses, as a share of the largest, and their gradients are from float64's formula, at most.
    Raises UserError where it is FARTHEST, or not a number."""
    try:
        from lightning_tfm.accel.kernels.loss import formula, over_rows

        draw, V, N = torch.Generator().manual_seed(1), 5001, 7
        z_NV, y_N = (
            (3 * torch.randn(N, V, generator=draw)).to(device),
            torch.randint(V, (N,), generator=draw).to(device),
        )
        weights = smoothing_weights(0.1, V, "vocabulary")
        loss_N, nll_N, grad_NV = formula(z_NV.double(), y_N, *weights)
        losses = *over_rows(z_NV, y_N, *weights), z_NV  # z has become the gradient
        pairs = zip(losses, (loss_N, nll_N, grad_NV), strict=True)
        apart = max(float((ours - wanted).abs().max() / wanted.abs().max().clamp(min=1)) for ours, wanted in pairs)
        why = "" if apart < FARTHEST else f"is {apart:.1e} from its formula"
    except Exception as error:  # Triton's own, its compilers', CUDA's: whatever it is, the run must not start
        apart, why = np.inf, f"does not run ({type(error).__name__}: {error})"
    if why:
        raise UserError(
            f"the loss that Triton's kernel computes on {device} {why}: --trainer.kernels masks takes PyTorch's "
            "formula, equal up to rounding, and slower"
        )
    return apart


class DeviceMasks:
    """Draws the masks of `formula` on `device`. Raises UserError where a few of them are not NumPy's."""

    def __init__(self, formula: SentenceMasks, device: torch.device):
        self.formula, self.device = formula, device
        halves = formula.philox.state["state"]["key"].view(np.int64)
        self.key = torch.from_numpy(halves.copy()).to(device)
        self._kept: dict[torch.dtype, Tensor] = {}
        self._check()

    def between(self, step: int, batch: Batch, like: Tensor) -> tuple[Tensor, Tensor]:
        """As SentenceMasks.between; nothing waits for the device."""
        from lightning_tfm.accel.kernels.masks import masks

        formula, (index_B, source_B, target_B) = self.formula, batch.keys_3B.unbind(0)
        value, sides = self._value(like.dtype), []
        for side, lengths_B, ids in ((SOURCE, source_B, batch.source_BS), (TARGET, target_B, batch.target_in_BT)):
            shape = (formula.streams[side], ids.shape[1], formula.d_model)
            sides.append(masks(value, self.key, index_B, lengths_B, shape, (step, side), formula.dropped))
        return sides[0], sides[1]

    def _value(self, dtype: torch.dtype) -> Tensor:
        """1 / (1 - P), by the formula itself."""
        if dtype not in self._kept:
            self._kept[dtype] = self.formula.masks(np.full(1, 0x7FFF, dtype=np.uint16), dtype).to(self.device)
        return self._kept[dtype]

    def _check(self) -> None:
        for step, index, lengths in CHECKED:
            pieces = [np.full(n - 1, 4) for n in lengths]
            batch = make_batch(pieces, pieces[::-1], np.array(index))
            wanted = self.formula.between(step, batch, torch.empty(0))
            masks = self.between(step, batch.to(self.device), torch.empty(0, device=self.device))
            if not all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(masks, wanted, strict=True)):
                raise UserError(
                    f"the dropout masks that Triton's kernel draws on {self.device} are not the experiment's: "
                    "--trainer.kernels none draws them on the CPU, bit for bit, and slower"
                )


def kernel_errors(device: torch.device) -> list[str]:
    """What each kernel gives on `device` beside its formula, in words."""
    if not kernels.runs_on(device):
        return ["none: pip install triton, as a large model waits for masks that the CPU draws"]
    try:
        lines = [f"loss: {loss_apart(device):.0e} from its formula in float32"]
    except UserError as error:
        lines = [str(error)]
    try:
        DeviceMasks(SentenceMasks(Model(N=1, d_model=64), 1), device)
        return ["dropout masks: NumPy's in every bit", *lines]
    except UserError as error:
        return [str(error), *lines]
    except Exception as error:  # as in by_kernels
        return [f"dropout masks by NumPy, the same bits: {type(error).__name__}: {error}", *lines]


def by_kernels(loss: bool, device: torch.device) -> Backend:
    """The formulas, but masks by Triton, the same bits, and with `loss` the loss too, equal up to rounding.

    Raises UserError where the loss is not. Masks whose kernel does not run are NumPy's, with a message: the same bits.
    """
    notes = [f"loss by Triton, {loss_apart(device):.0e} from its formula in float32"] if loss else []
    try:
        DeviceMasks(SentenceMasks(Model(N=1, d_model=64), 1), device)
        notes.insert(0, "dropout masks by Triton, the same bits")
        draws: Callable[[SentenceMasks, torch.device], Draw] = _draws
    except UserError:  # it runs, and draws others
        raise
    except Exception as error:  # Triton's own, its compilers', CUDA's
        print(f"the masks' kernel does not run on {device} ({type(error).__name__}: {error})", file=sys.stderr)
        draws = partial(host_masks, quicker="see why Triton failed")
    return Backend(masks=draws, loss=_loss if loss else smoothed_nll, translate=_translate, notes=tuple(notes))


def _draws(formula: SentenceMasks, device: torch.device) -> Draw:
    return DeviceMasks(formula, device).between


def _loss(x_ND: Tensor, E_WD: Tensor, y_N: Tensor, eps_ls: float, smoothing: str) -> tuple[Tensor, Tensor]:
    if E_WD.dtype is torch.float64:
        return smoothed_nll(x_ND, E_WD, y_N, eps_ls, smoothing)
    from lightning_tfm.accel.kernels import loss

    weights = smoothing_weights(eps_ls, E_WD.shape[0], smoothing)
    return loss.smoothed_nll(x_ND, E_WD, y_N, *weights, lowered_dtype(x_ND))


def _translate(model: SequenceModel, batches: list[Batch], how: Evaluation) -> dict[int, Hypothesis]:
    from lightning_tfm.accel.translation_batches import translate as by_memory

    return (translate if model.config.one_stack else by_memory)(model, batches, how)
