"""Weights on disk. Plain types alone, so that `weights_only=True` reads them back; a full disk is an OSError.

Lightning's own way goes through a second copy in the folder for temporary files, which a kill leaves there, and torch
hides a full disk behind a RuntimeError.
"""

import io
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO


def write(value: Any, path: Path) -> None:
    """`torch.save` by way of memory. Raises OSError and leaves nothing where the disk is full."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    try:
        path.write_bytes(buffer.getbuffer())
    except OSError:
        path.unlink(missing_ok=True)
        raise


class Checkpoints(CheckpointIO):
    """How a Trainer writes and reads checkpoints."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        write(checkpoint, Path(path))

    def load_checkpoint(
        self, path: Any, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return torch.load(path, map_location=map_location, weights_only=True)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink()
