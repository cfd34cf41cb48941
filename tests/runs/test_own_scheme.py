"""Runs whose positional scheme or corpus is a class of the user's own come to their end."""

import json
from dataclasses import replace
from pathlib import Path

from lightning_tfm.model.size import count_parameters
from tests.tiny import experiment, in_child, train, write_corpus


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
