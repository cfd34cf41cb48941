"""Every kernel of ours is launched as on a GPU, over the shapes that training meets (fake_gpu.py): a launch that Triton
or CUDA would refuse is refused here."""

import os
import random

import numpy as np
import pytest
import torch

from lightning_tfm.accel import kernels, on_gpu, select
from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import make_batch
from lightning_tfm.training.loss import smoothing_weights
from lightning_tfm.training.module import TransformerModule

if not kernels.has_triton():
    pytest.skip("NO LAUNCH WAS TESTED: Triton is not installed (pip install --no-deps triton)", allow_module_level=True)
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("NO LAUNCH WAS TESTED: this process interprets kernels", allow_module_level=True)

import triton

from lightning_tfm.accel.kernels import kernel, loss, masks
from tests.model.fake_gpu import fake_gpu

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Triton's, empty as the first test begins."""
    return tmp_path_factory.mktemp("triton")


@pytest.fixture(params=[80, 90], ids=["sm_80", "sm_90"])
def gpu(request, cache):
    with fake_gpu(request.param, cache) as found:
        yield found


@pytest.fixture
def nothing_compiled():
    """In this process."""
    kernel.cache_clear()
    yield
    kernel.cache_clear()


def draw(sentences=3, longest=5, D=64, streams=7, step=5, side=0, dropped=6554, dtype=torch.float32):
    index, lengths = torch.arange(sentences), torch.full((sentences,), longest)
    kept, key = torch.full((1,), 1.1, dtype=dtype), torch.zeros(2, dtype=torch.int64)
    masks.masks(kept, key, index, lengths, (streams, longest, D), (step, side), dropped)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("step", [0, 1, 2, 16, 1 << 31, 1 << 32])
def test_masks_are_launched_in_every_step(gpu, step, side):
    draw(step=step, side=side)
    assert [name for name, _ in gpu.launches] == ["draw"]


@pytest.mark.parametrize("dropped", [1, 32768, 32769, 32770, 65535])
def test_masks_are_launched_at_every_share(gpu, dropped):
    """32769 of 65536 are a limit of 1."""
    draw(dropped=dropped)
    assert gpu.launches


@pytest.mark.parametrize(
    ("sentences", "longest", "D", "streams"),
    [(1, 1, 1, 1), (1, 30, 512, 19), (6000, 4, 64, 19), (6000, 4, 512, 13), (24, 1000, 1024, 19), (7, 5, 33, 7)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_masks_are_launched_for_every_batch(gpu, sentences, longest, D, streams, dtype):
    """One sentence, thousands of short ones, a few long ones, widths that nothing divides."""
    draw(sentences, longest, D, streams, dtype=dtype)
    assert gpu.launches


@pytest.mark.parametrize(("N", "V"), [(1, 1), (1, 37_001), (25_000, 800), (70_000, 31), (3, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("eps_ls", [0.0, 0.1])
def test_the_loss_is_launched_for_every_batch(gpu, N, V, dtype, eps_ls):
    q_y, b = smoothing_weights(eps_ls, V, "vocabulary")
    loss.over_rows(torch.empty(N, V, dtype=dtype), torch.empty(N, dtype=torch.int64), q_y, b)
    assert gpu.launches == [("rows", (N, 1, 1))]


@pytest.mark.parametrize("d_model", [16, 30, 64])
@pytest.mark.usefixtures("nothing_compiled")
def test_a_training_compiles_nothing_after_its_first_step(gpu, monkeypatch, d_model):
    """Steps, sides, sentences and lengths vary; one variant of each kernel serves them all."""
    monkeypatch.setattr(kernels, "runs_on", lambda device: True)
    monkeypatch.setattr(on_gpu.DeviceMasks, "_check", lambda self: None)
    monkeypatch.setattr(on_gpu, "loss_apart", lambda device: 0.0)
    e = Experiment(model=Model(N=1, d_model=d_model, d_ff=8, h=2, d_k=4, d_v=4), training=Training(seed=5))
    backend = select.backend(Hardware(kernels="all"), "float32", torch.device("cpu"))
    module, number = TransformerModule(e, 37, backend).train(), random.Random(1)
    after_one = []
    for step in (*range(40), 1 << 20):
        sides = [[np.full(number.randint(0, 40), 5) for _ in range(1 + step % 9)] for _ in range(2)]
        batch = make_batch(*sides, np.arange(1 + step % 9))
        module.batch_loss(step, batch)[0].backward()
        after_one = after_one or [*gpu.compiled]
    assert sorted(gpu.compiled) == sorted(after_one) == ["draw", "rows"]
    assert len(gpu.launches) == 3 * 41


def test_the_driver_refuses_what_cuda_refuses(gpu):
    import triton.language as tl

    @triton.jit
    def ones(out, n, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), tl.zeros([BLOCK], tl.float32) + n)

    out = torch.empty(64)
    ones[(1, 65_535, 1)](out, 3, BLOCK=32)
    for grid in ((1, 65_536, 1), (1, 1, 65_536), (2**31, 1, 1), (65_536, 32_768, 1)):
        with pytest.raises(RuntimeError, match="grid"):
            ones[grid](out, 3, BLOCK=32)
    with pytest.raises(triton.runtime.errors.OutOfResources, match="threads"):
        ones[(1,)](out, 3, BLOCK=32, num_warps=64)
    launch = gpu.launcher_cls(*_of(ones, gpu))
    for wrong, found in (
        ((out[1:], 3, 32), r"misaligned address: out"),
        ((out.double(), 3, 32), r"out was compiled as \*fp32"),
        ((out, 1 << 40, 32), r"n was compiled as i32"),
        ((out, 3, 64), r"BLOCK was compiled as 32"),
    ):
        with pytest.raises((RuntimeError, TypeError, OverflowError, AssertionError), match=found):
            launch(1, 1, 1, 0, "", None, None, None, None, *wrong)


def _of(function, gpu):
    """(source, metadata) of its first variant."""
    compiled = next(iter(function.device_caches[gpu.capability][0].values()))
    return compiled.src, compiled.metadata
