"""What a run finds around it and keeps beside its scores: the machine, its random numbers, the model's statistics."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_tfm import rng
from lightning_tfm.config import Experiment, Hardware, Training
from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.runs import rng_check
from lightning_tfm.runs.environment import inexact
from lightning_tfm.runs.model_stats import run_flops
from lightning_tfm.runs.record import without_folders
from tests.helpers.tiny import experiment, write_corpus


def test_what_keeps_another_machine_from_the_same_bits(monkeypatch):
    assert inexact(Experiment(), Hardware()) == []
    assert inexact(Experiment(training=Training(precision="tfloat32")), Hardware()) == [
        "tfloat32 rounds differently on other devices"
    ]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert len(inexact(Experiment(), Hardware())) == 1 and inexact(Experiment(), Hardware(accelerator="cpu")) == []


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("/home/me/.venv/bin/lightning-tfm", "lightning-tfm"),
        ("/srv/me/results", "results"),
        ("--out=/srv/me/results/", "--out=results"),
        ("--data.files=/srv/a.en,/srv/a.de", "--data.files=a.en,a.de"),
        ("results/mine", "results/mine"),
        ("--storage=postgresql://host/studies", "--storage=postgresql://host/studies"),
        ("model.d_ff=64", "model.d_ff=64"),
    ],
)
def test_the_command_in_a_record_names_no_folder_of_the_machine(word, kept):
    assert without_folders(word) == kept


def test_the_draws_are_those_that_were_committed():
    assert rng_check.changed_methods() == [] and rng_check.rng_note() == ""
    assert set(rng_check.FIRST) == set(rng_check.first_draws())


def test_another_generator_is_found_and_recorded(monkeypatch):
    monkeypatch.setattr(rng_check, "generator", lambda *parts: np.random.Generator(np.random.PCG64(7)))
    assert rng_check.changed_methods() == list(rng_check.FIRST)
    reasons = inexact(Experiment(), Hardware(accelerator="cpu"))
    assert len(reasons) == 1 and "other initial weights and orders" in reasons[0]


def test_initial_weights_and_orders_are_drawn_by_these_methods_alone():
    """The methods of `keys.generator` that the model and the plan call are all committed."""
    import ast
    from pathlib import Path

    package = Path(rng.__file__).parent
    called: set[str] = set()
    for path in (package / "model/init.py", package / "data/plan.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if owner.startswith("generator(") or owner == "random":
                    called.add(node.func.attr)
    assert called == set(rng_check.FIRST)


@pytest.mark.parametrize("max_len", [8, 200])
def test_flops_are_those_of_the_pairs_that_are_trained_on(tmp_path: Path, max_len: int) -> None:
    """Over a whole epoch the mean is exact; longer pairs would count with the square of their length."""
    e = experiment(write_corpus(tmp_path / "text"), data__max_len=max_len)
    data = TranslationData(e, prepare(e.data, tmp_path))
    plan = data.plan()
    ids = np.concatenate([plan.global_batch(step) for step in range(plan.steps_per_epoch)])
    assert (len(ids) < len(plan.source_lengths)) == (max_len == 8)
    source, target = plan.source_lengths[ids].astype(int), plan.target_lengths[ids].astype(int)
    model = Transformer(data.experiment.model, data.prepared.tokenizer.V)
    tokens = int(source.sum()), int(target.sum())
    pairs = AttentionPairs(source @ source, target @ target, source @ target)
    exact = training_flops(model.config, model.V, *tokens, pairs, model.weights())
    assert run_flops(model, data, *tokens) == exact
