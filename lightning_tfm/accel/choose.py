"""Which backend computes the training of a run on this machine."""

import torch

from lightning_tfm.accel import kernels
from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.training.backend import Backend


def backend(hardware: Hardware, precision: str, device: torch.device) -> Backend:
    """For a training in `precision` on `device`. Raises UserError where `hardware` asks for what does not run there:
    a machine that joins a study learns a row's precision only here.
    """
    if hardware.products == "onednn":
        from lightning_tfm.accel.onednn import OneDNNBackend  # of the others a run loads nothing

        return OneDNNBackend(precision, device)
    if hardware.kernels != "none" and kernels.runs_on(device):
        from lightning_tfm.accel.on_gpu import KernelBackend

        return KernelBackend(hardware.kernels != "masks", device)
    if hardware.kernels == "all":
        raise UserError(
            f"trainer.kernels=all needs a GPU beside Triton, and this run is on {device}: remove it, or give "
            "--trainer.kernels auto"
        )
    return Backend("install triton" if hardware.kernels != "none" else "--trainer.kernels auto")
