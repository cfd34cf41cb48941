"""A run whose positional scheme is a class of the user's own comes to its end, its parameters counted."""

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
