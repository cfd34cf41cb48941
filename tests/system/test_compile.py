"""Compiled layers: the same curve, and few shapes for a text of many lengths."""

import shutil

import numpy as np
import pytest
import torch

from lightning_tfm.config import Hardware
from lightning_tfm.data.module import StepLoader, TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.runs.trainer import make_trainer
from lightning_tfm.training.backends_used import compile_layers
from lightning_tfm.training.module import TransformerModule
from tests.helpers.tiny import experiment, in_child, write_corpus
from tests.system.test_layouts import Watch

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SHAPES = 12


def curve(e, root, compiled: bool) -> tuple[list[float], int, int]:
    """(losses, shapes of batches, compiled graphs)."""
    from torch._dynamo.utils import counters

    torch.set_num_threads(2)
    data, watch = TranslationData(e, prepare(e.data, root)), Watch()
    module = TransformerModule(e, data.prepared.tokenizer.V)
    if compiled:
        compile_layers(module.transformer)
    loader = StepLoader(data.plan(), data.prepared.split(e.data.train), 0, 0, 1, 0)
    shapes = {
        (len(b.index_B), b.source_BS.shape[1], b.target_in_BT.shape[1], b.allowed is None)
        for number in range(e.training.steps)
        for b in loader.step(number).micro
    }
    make_trainer(e, Hardware(accelerator="cpu"), [watch]).fit(module, train_dataloaders=loader)
    return watch.losses, len(shapes), counters["stats"]["unique_graphs"]


@pytest.mark.filterwarnings("default")  # torch's compiler warns of what it does itself
@pytest.mark.parametrize(
    ("precision", "stack"), [("float64", "encoder_decoder"), ("float32", "encoder_decoder"), ("float64", "prefix")]
)
def test_few_shapes_are_compiled_and_the_curve_stays(tmp_path, precision, stack):
    """To the order of sums, for as long as training has not multiplied it: ten steps, as in test_layouts.py; two stacks
    in float64 stay alike in all."""
    if shutil.which("g++") is None:
        pytest.skip("COMPILED LAYERS WERE NOT TESTED: torch.compile needs g++ on a CPU")
    changes = {"training__steps": 30, "training__precision": precision, "data__max_len": 100, "model__stack": stack}
    e = experiment(write_corpus(tmp_path / "text", pairs=120, longest=40), **changes)
    in_child(lambda: bool(prepare(e.data, tmp_path).card))
    plain, shapes, none = in_child(curve, e, tmp_path, False)
    compiled, _, graphs = in_child(curve, e, tmp_path, True)
    assert shapes > SHAPES and none == 0, "the text is to have many shapes"
    assert 0 < graphs <= SHAPES
    apart = np.abs(np.divide(compiled, plain) - 1)
    print(f"{precision}: {apart[:10].max():.1e} apart in ten steps, {apart.max():.1e} in {len(apart)}")
    if precision == "float64":
        assert (apart if stack == "encoder_decoder" else apart[:10]).max() <= 1e-9
    else:
        assert apart[:10].max() <= 1e-5
