"""Which backend computes the training of a run on this machine."""

from functools import partial

import torch

from lightning_tfm.accel import kernels
from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.training.backend import Backend, host_masks


def backend(hardware: Hardware, precision: str, device: torch.device) -> Backend:
    """For a training in `precision` on `device`. Raises UserError where `hardware` asks for what does not run there:
    a machine that joins a study learns a row's precision only here.
    """
    if hardware.products == "onednn":
        from lightning_tfm.accel.onednn import by_products  # of the others a run loads nothing

        return by_products(precision, device)
    if hardware.kernels != "none" and kernels.runs_on(device):
        from lightning_tfm.accel.on_gpu import by_kernels

        return by_kernels(hardware.kernels != "masks", device)
    if hardware.kernels == "all":
        raise UserError(
            f"trainer.kernels=all needs a GPU beside Triton, and this run is on {device}: remove it, or give "
            "--trainer.kernels auto"
        )
    quicker = "install triton" if hardware.kernels != "none" else "--trainer.kernels auto"
    return Backend(masks=partial(host_masks, quicker=quicker))
