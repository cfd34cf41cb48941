"""Checkpoints of another machine's GPU. The mean of snapshots: exact in float64, of one run only."""

import pytest
import torch

from lightning_tfm.errors import UserError
from lightning_tfm.training.checkpoints import Checkpoints, average


def test_small_weights_beside_a_large_one_are_not_lost(tmp_path):
    """In float32 2^24 + 1 is 2^24: a float32 sum of these five would be 2^24."""
    values = [2.0**24, 1.0, 1.0, 1.0, 1.0]
    paths = []
    for i, value in enumerate(values):
        paths.append(tmp_path / f"{i}.pt")
        torch.save({"w": torch.tensor([value, -value]), "half": torch.tensor([i / 4]).bfloat16()}, paths[-1])
    found = average(paths, "")
    assert found["w"].dtype == torch.float32 and found["half"].dtype == torch.bfloat16
    assert found["w"].tolist() == [(2**24 + 4) / 5, -(2**24 + 4) / 5]
    assert found["half"].item() == 0.5


def test_one_snapshot_is_itself(tmp_path):
    w = torch.randn(5)
    torch.save({"w": w}, tmp_path / "a.pt")
    assert torch.equal(average([tmp_path / "a.pt"], "")["w"], w)


def test_none_or_strangers_are_refused(tmp_path):
    with pytest.raises(UserError, match="average_last"):
        average([], "")
    torch.save({"w": torch.ones(2, 3)}, tmp_path / "a.pt")
    for stranger in ({"v": torch.ones(2, 3)}, {"w": torch.ones(3)}):
        torch.save(stranger, tmp_path / "b.pt")
        with pytest.raises(UserError, match=r"b\.pt"):
            average([tmp_path / "a.pt", tmp_path / "b.pt"], "")


def test_a_checkpoint_from_a_gpu_is_read_without_one(tmp_path, monkeypatch):
    """And on several GPUs not onto the first by all ranks: tensors go where Lightning puts them, from the CPU."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        Checkpoints().save_checkpoint({"w": torch.ones(3)}, tmp_path / "a.ckpt")
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(tmp_path / "a.ckpt", weights_only=True)
    found = Checkpoints().load_checkpoint(tmp_path / "a.ckpt", map_location=None)["w"]
    assert found.device.type == "cpu" and found.tolist() == [1, 1, 1]
