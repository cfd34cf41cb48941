"""Runs with parts or a corpus of the user's own come to their end, or are refused before their first step."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.feed_forward import ReLU
from lightning_tfm.model.leaks import check_own_classes
from lightning_tfm.model.size import count_parameters
from tests.tiny import attempt, experiment, in_child, train, write_corpus


class Peeking(ReLU):
    """Sees the next position."""

    def forward(self, x_BTD: Tensor, keep: Tensor | None = None) -> Tensor:
        return super().forward(x_BTD.roll(-1, 1))


class Gated(ReLU):
    """Sees the mean of all positions, by a gate that starts at 0."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.gate = torch.nn.Parameter(torch.zeros(1))
        self.gate.initial_std = 0.0

    def forward(self, x_BTD: Tensor, keep: Tensor | None = None) -> Tensor:
        return super().forward(x_BTD + self.gate * x_BTD.mean(1, keepdim=True))


class Cumulative(ReLU):
    """Sees the mean of the positions up to its own, which decoding piece by piece does not give it."""

    def forward(self, x_BTD: Tensor, keep: Tensor | None = None) -> Tensor:
        count = torch.arange(1, x_BTD.shape[1] + 1)[None, :, None]
        return super().forward(x_BTD.cumsum(1) / count)


class Reversed(ReLU):
    """A sound one: channels in the other order."""

    def forward(self, x_BTD: Tensor, keep: Tensor | None = None) -> Tensor:
        return super().forward(x_BTD.flip(2), keep)


class Backwards(Cumulative):
    """In the encoder alone, which has more positions than the decoder in the check: padding is the first it meets."""

    def forward(self, x_BTD: Tensor, keep: Tensor | None = None) -> Tensor:
        encoder = x_BTD.shape[1] > 5
        return super().forward(x_BTD.flip(1)).flip(1) if encoder else super().forward(x_BTD)


def test_its_parameters_are_those_of_the_built_model(tmp_path: Path) -> None:
    own = experiment(write_corpus(tmp_path / "text"), model__positions="lightning_tfm.model.positions.Learned")
    folder = in_child(train, own, tmp_path / "out")
    result = json.loads((folder / "result.json").read_text())
    assert result["parameters"] == count_parameters(replace(own.model, positions="learned"), result["V"])
    assert result["parameters"]["positions"] > 0


def test_a_feed_forward_of_the_users_own_is_counted(tmp_path: Path) -> None:
    path = "lightning_tfm.model.feed_forward.SwiGLU"
    own = experiment(write_corpus(tmp_path / "text"), model__feed_forward=path)
    result = json.loads((in_child(train, own, tmp_path / "out") / "result.json").read_text())
    named = replace(own.model, feed_forward="swiglu")
    assert result["parameters"] == count_parameters(named, result["V"])
    assert result["identity"]["model"]["feed_forward"] == path


def test_a_corpus_that_only_has_lines_is_trained_on(tmp_path: Path) -> None:
    own = experiment(tmp_path, data__corpus="tests.data.test_corpora.Plain", data__vocab_size=30)
    result = json.loads((in_child(train, own, tmp_path / "out") / "result.json").read_text())
    assert result["data"]["corpus"] == "tests.data.test_corpora.Plain"
    assert result["scores"]["dev"]["sentences"] == 4


@pytest.mark.parametrize("sizes", [Model(), Model(N=1, d_model=16, d_ff=23, h=2, d_k=6, d_v=5, max_positions=4)])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Peeking", "positions 0 to 2 changed with the piece at position 3"),
        ("Gated", "positions 0 to 2 changed with the piece at position 3"),
        ("Backwards", "with 4 more columns of padding, the result is off by "),
        ("Cumulative", "decoded with a cache, the piece at position 1 is off by "),
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
    monkeypatch.setattr("lightning_tfm.model.leaks.Transformer", None)
    check_own_classes(Model())
