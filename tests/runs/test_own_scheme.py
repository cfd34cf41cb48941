"""Runs with parts or a corpus of the user's own come to their end, or are refused before their first step."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_tfm import config
from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.config import Experiment, Hardware, Model
from lightning_tfm.data.batch import make_batch
from lightning_tfm.data.prepare import prepare
from lightning_tfm.errors import UserError
from lightning_tfm.model.attention_types import AttentionType, Softmax, masked_softmax, scaled_scores
from lightning_tfm.model.causality_check import check_own_classes
from lightning_tfm.model.feed_forward import ReLU
from lightning_tfm.model.size import count_parameters
from lightning_tfm.queue.pool import Job
from lightning_tfm.queue.resources import Resources
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.attempt import run_attempt
from lightning_tfm.runs.record import Outcome, read_small
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import file_of, save
from lightning_tfm.training.module import TransformerModule
from tests.helpers.studies import ablation, own_row
from tests.helpers.tiny import attempt, experiment, in_child, train, weights, write_corpus


class Peeking(ReLU):
    """Sees the next position."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return super().forward(x_BTD.roll(-1, 1))


class Gated(ReLU):
    """Sees the mean of all positions, by a gate that starts at 0."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.gate = torch.nn.Parameter(torch.zeros(1))
        self.gate.initial_std = 0.0

    def forward(self, x_BTD: Tensor) -> Tensor:
        return super().forward(x_BTD + self.gate * x_BTD.mean(1, keepdim=True))


class Cumulative(ReLU):
    """Sees the mean of the positions up to its own, which decoding piece by piece does not give it."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        count = torch.arange(1, x_BTD.shape[1] + 1)[None, :, None]
        return super().forward(x_BTD.cumsum(1) / count)


class Reversed(ReLU):
    """A sound one: channels in the other order."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return super().forward(x_BTD.flip(2))


class Backwards(Cumulative):
    """In the encoder alone, which has more positions than the decoder in the check: padding is the first it meets."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        encoder = x_BTD.shape[1] > 5
        return super().forward(x_BTD.flip(1)).flip(1) if encoder else super().forward(x_BTD)


def test_parts_of_the_users_own_are_counted_in_the_built_model(tmp_path: Path) -> None:
    paths = {
        "positions": "lightning_tfm.model.positions.Learned",
        "feed_forward": "lightning_tfm.model.feed_forward.SwiGLU",
    }
    own = experiment(write_corpus(tmp_path / "text"), **{f"model__{field}": path for field, path in paths.items()})
    result = json.loads((in_child(train, own, tmp_path / "out") / "result.json").read_text())
    named = replace(own.model, positions="learned", feed_forward="swiglu")
    assert result["parameters"] == count_parameters(named, result["V"]) and result["parameters"]["positions"] > 0
    assert paths.items() < result["identity"]["model"].items()


def test_a_corpus_that_only_has_lines_is_trained_on(tmp_path: Path) -> None:
    own = experiment(tmp_path, data__corpus="tests.data.sources.test_files.Plain", data__vocab_size=30)
    result = json.loads((in_child(train, own, tmp_path / "out") / "result.json").read_text())
    assert result["data"]["corpus"] == "tests.data.sources.test_files.Plain"
    assert result["scores"]["dev"]["sentences"] == 4


class OfTheBatch(Softmax):
    """Sees the other texts of its batch."""

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        return mix_BHTV - mix_BHTV.mean(0) / 2


class InTraining(Softmax):
    """Sees later positions in training alone, as a norm over a batch does."""

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        return mix_BHTV / mix_BHTV.std() if self.training else mix_BHTV


class Running(Softmax):
    """Keeps a mean of what it saw in training."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.register_buffer("mean_V", torch.zeros(sizes.d_v))

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        if self.training:
            self.mean_V.lerp_(mix_BHTV.detach().mean((0, 1, 2)), 0.1)
        return mix_BHTV


class WithoutBias(Softmax):
    def weights(self, q_BHTK, k_BHSK, mask, bias) -> Tensor:
        return super().weights(q_BHTK, k_BHSK, mask, None)


class WithoutWeights(AttentionType):
    """Drops no weights."""

    def forward(self, q_BHTK, k_BHSK, v_BHSV, mask, bias, x_BTD, drop=None) -> Tensor:
        return masked_softmax(scaled_scores(q_BHTK, k_BHSK, bias), mask) @ v_BHSV


class OwnDropout(Softmax):
    """A sound one, though what it draws is the layout's."""

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        return torch.nn.functional.dropout(mix_BHTV, 0.3, self.training)


SMALL = Model(N=2, d_model=16, d_ff=23, h=2, d_k=6, d_v=5)
SMALLEST = replace(SMALL, N=1, max_positions=4)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("OfTheBatch", {}, "by itself, not in a batch, a text's result is off by "),
        ("InTraining", {}, "in training, positions 0 to 2 changed with the token at position 3"),
        ("InTraining", {"stack": "prefix"}, "in training, positions 0 to 2 changed"),
        ("Running", {}, "training changes encoder.0.self_attention.mix.mean_V, which other texts then meet"),
        ("WithoutBias", {"positions": "alibi"}, "WithoutBias ignores the bias by which model.positions acts"),
        ("WithoutBias", {"positions": "rotary"}, None),
        ("WithoutWeights", {"P_attention": 0.1}, "WithoutWeights does not call drop(weights)"),
        ("WithoutWeights", {"positions": "t5"}, None),
        ("OwnDropout", {"P_attention": 0.1, "positions": "shaw", "stack": "causal"}, None),
    ],
)
def test_an_attention_that_ignores_or_sees_what_it_may_not_is_refused(name, change, words):
    config = replace(SMALL, attention=f"{__name__}.{name}", **change)
    if words is None:
        check_own_classes(config)
    else:
        with pytest.raises(UserError, match=f"model.attention='{re.escape(config.attention)}': .*{re.escape(words)}"):
            check_own_classes(config)


@pytest.mark.parametrize("cls", ["OwnDropout", "ByPython"])
def test_what_a_class_draws_itself_is_the_same_again_after_a_restart(cls):
    """By the seed, the step and the sentences, whatever was drawn before, with masks of sentences beside it."""
    own = replace(SMALL, attention=f"{__name__}.{cls}", P_drop=0.1)
    module = TransformerModule(Experiment(model=own, training=config.Training(seed=3)), 31)
    batch = make_batch([np.array([5, 6, 7])], [np.array([8, 9])], np.array([4]))

    def loss(step: int) -> float:
        return float(module.batch_loss(step, batch)[0].detach())

    losses = [loss(step) for step in range(1, 9)]
    assert loss(1) == losses[0] and len({*losses}) > 1


@pytest.mark.parametrize("sizes", [pytest.param(Model(), marks=pytest.mark.long), SMALLEST], ids=["base", "smallest"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Peeking", "positions 0 to 2 changed with the token at position 3"),
        ("Gated", "positions 0 to 2 changed with the token at position 3"),
        ("Backwards", "with 4 more columns of padding, the result is off by "),
        ("Cumulative", "decoded with a cache, the token at position 1 is off by "),
        ("Reversed", None),
    ],
)
def test_a_class_that_sees_what_it_may_not_is_refused_by_its_name(sizes, name, words):
    config, state = replace(sizes, feed_forward=f"{__name__}.{name}"), torch.get_rng_state()
    if words is None:
        check_own_classes(config)
    else:
        with pytest.raises(UserError) as error:
            check_own_classes(config)
        said = str(error.value)
        assert said.startswith(f"model.feed_forward='{__name__}.{name}': {words}") and "\n" not in said
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_is_refused_before_its_first_step_and_what_ships_is_not_asked(tmp_path: Path, monkeypatch) -> None:
    peeking = experiment(write_corpus(tmp_path / "text"), model__feed_forward=f"{__name__}.Peeking")
    code, path = in_child(attempt, peeking, tmp_path / "out")
    assert code == 2
    assert "Peeking" in (path / "outcome.json").read_text()
    assert not list(path.glob("checkpoints/*")) and not (path / "result.json").exists()
    monkeypatch.setattr("lightning_tfm.model.causality_check.make_model", None)
    check_own_classes(Model())


class LateLeak(Softmax):
    """Sees the next position from the 20th on."""

    def weights(self, q_BHTK, k_BHSK, mask, bias) -> Tensor:
        if mask is not None and mask.shape[-2] > 20:
            mask = mask.clone()
            mask[..., 20:, :] |= mask[..., 20:, :].roll(1, -1)
        return super().weights(q_BHTK, k_BHSK, mask, bias)


class ByPython(Softmax):
    """Drops whole sub-layers, by the generators of Python and NumPy: no leak."""

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        return mix_BHTV * (random.random() + np.random.rand() < 0.5 if self.training else 0.5)


class Scaled(Softmax):
    """A gate that starts at 1, and what it draws itself."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.g, self.drawn_V = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.randn(sizes.d_v))
        self.register_buffer("fixed_V", torch.randn(sizes.d_v))

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        return self.g * mix_BHTV + 0.1 * self.drawn_V * self.fixed_V


@pytest.mark.long
def test_what_a_constructor_draws_is_the_same_on_two_processes(tmp_path: Path) -> None:
    scaled = experiment(write_corpus(tmp_path / "text"), model__attention=f"{__name__}.Scaled")
    one, two = (
        weights(in_child(train, scaled, tmp_path / str(devices), Hardware(devices=devices))) for devices in (1, 2)
    )
    assert one.keys() == two.keys() and all(torch.allclose(one[name], two[name], atol=1e-4) for name in one)
    fixed = [name for name in one if name.endswith("fixed_V")]
    assert len(fixed) == 6 and all(torch.equal(one[name], two[name]) for name in fixed)
    assert all(0.5 < one[name] < 1.5 for name in one if name.endswith("mix.g"))


def test_a_leak_that_begins_late_is_refused_and_python_s_generator_is_none():
    with pytest.raises(UserError, match=r"LateLeak': position \d+ changed with the token at position 69"):
        check_own_classes(replace(SMALL, attention=f"{__name__}.LateLeak"))
    check_own_classes(replace(SMALL, attention=f"{__name__}.ByPython"))


def begun(root: Path) -> Ablation:
    """2 rows x 2 seeds, as frozen on the text in `root`."""
    base = experiment(write_corpus(root / "text"))
    prepared = prepare(base.data, root)
    rows, of_text = [own_row("base"), own_row("wide", {"model.d_ff": 31})], Fingerprints.of(prepared, base.data)
    V, store = prepared.tokenizer.V, prepared.folder.name
    return ablation(rows, [1, 2], name="s", base=base, prints=of_text, V=V, store=store)


def run(study: Ablation, cell: Cell, root: Path) -> int:
    job = Job(study, root, Resources(hardware=Hardware(threads=1, accelerator="cpu")))
    folder = RunFolder(root, cell.training_hash)
    return run_attempt(folder, lambda a: job.train(cell, a, 0), lambda a: job.score(cell, a))


def reverse(path: Path) -> None:
    """The same words, and so the same pieces, in another order of lines."""
    path.write_text("".join(f"{line}\n" for line in reversed(path.read_text().splitlines())))


@pytest.mark.parametrize(
    "edited", ["train.de", *(pytest.param(f"{x}.de", marks=pytest.mark.long) for x in ("val", "test"))]
)
def test_cells_of_a_study_whose_text_was_edited_are_refused_until_it_is_back(tmp_path: Path, edited: str) -> None:
    study, text = begun(tmp_path), tmp_path / "text" / edited
    first, *others = study.cells()
    assert in_child(run, study, first, tmp_path) == 0
    reverse(text)
    stores = sorted((tmp_path / "data").iterdir())
    for cell in others:
        assert in_child(run, study, cell, tmp_path) == 2
        folder = RunFolder(tmp_path, cell.training_hash)
        said = read_small(Outcome, folder.outcome)
        assert said is not None and f"changed since: {text};" in said.reason and "to resume" in said.reason
        assert not folder.finished() and not folder.metrics.exists()
    assert sorted((tmp_path / "data").iterdir()) == stores, "the new text was encoded before it was refused"
    reverse(text)
    assert in_child(run, study, others[0], tmp_path) == 0
    found = [RunFolder(tmp_path, cell.training_hash).read_result() for cell in (first, others[0])]
    assert all(record is not None and record.identity["train"] == record.data.train for record in found)


@pytest.mark.parametrize("since", ["today", "before the test set was kept"])
def test_a_study_is_not_continued_on_another_test_text(tmp_path: Path, since: str) -> None:
    study = begun(tmp_path)
    if since != "today":
        study = replace(study, prints=replace(study.prints, test=""))
    save(study, tmp_path)
    assert save(begun(tmp_path), tmp_path).prints.test
    if since != "today":
        write_atomic(file_of(tmp_path, study.name), to_json(study.to_plain()))
    reverse(tmp_path / "text" / "test.en")
    prepared = prepare(study.base.data, tmp_path)
    now = replace(study, prints=Fingerprints.of(prepared, study.base.data), store=prepared.folder.name)
    back = "put the old text back and run the same command to resume, give"
    with pytest.raises(UserError, match=rf"\(the text data\.test=test has changed\): {back}"):
        save(now, tmp_path)


def test_a_killed_run_resumes_on_its_own_text_or_not_at_all(tmp_path: Path) -> None:
    study, text = begun(tmp_path), tmp_path / "text" / "train.en"
    cell = study.cells()[0]
    folder = RunFolder(tmp_path, cell.training_hash)
    assert in_child(run, study, cell, tmp_path) == 0
    folder.result.unlink()  # as if it had been killed before it was scored
    kept = {path.name: path.read_bytes() for path in (folder.metrics, *folder.checkpoints.iterdir())}
    reverse(text)
    assert in_child(run, study, cell, tmp_path) == 2 and not folder.finished()
    assert {path.name: path.read_bytes() for path in (folder.metrics, *folder.checkpoints.iterdir())} == kept
    reverse(text)
    assert in_child(run, study, cell, tmp_path) == 0 and folder.finished()
