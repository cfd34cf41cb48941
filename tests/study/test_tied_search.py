"""Searches in which a parameter follows others: computed for each trial, shown, not sampled."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.train.fit import main as fit
from lightning_tfm.cli.train.tune import introduction
from lightning_tfm.config import Experiment, Miniature, override
from lightning_tfm.errors import UserError
from lightning_tfm.queue.searches.results import report
from lightning_tfm.queue.searches.sampling import draw
from lightning_tfm.report.searches.trials import make
from lightning_tfm.study.study_file import load, save
from lightning_tfm.study.sweeps import Parameter, read_search
from tests.helpers.launching import launch
from tests.queue.searches.test_sampling import search, train

FILE = """name: tied
method: METHOD
metric: {name: dev/ppl, goal: minimize}
parameters:
  model.h: {values: [4, 8, 24]}
  model.d_model: {values: [256, 512]}
  model.d_k: {tie: model.d_model / model.h}
  model.d_ff: {of_base: 1/2}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""
TIES = {"model.d_k": {"tie": "model.d_model / model.h"}, "model.d_ff": {"of_base": "1/2"}}


def tied(**changes):
    space = [Parameter("model.h", "categorical", [4, 8, 24]), Parameter("model.d_model", "categorical", [256, 512])]
    return search(**{"space": space, "ties": TIES, "sampler": "grid", "trials": 1, "based": True} | changes)


def read(folder: Path, text: str):
    (folder / "f.yaml").write_text(text)
    return read_search(folder / "f.yaml")


def test_a_file_says_what_follows_what(tmp_path: Path) -> None:
    file = read(tmp_path, FILE.replace("METHOD", "grid"))
    assert file.ties == TIES and list(file.specs) == ["model.h", "model.d_model"]
    made = tied()
    assert "s: model.d_k follows: model.d_model / model.h" in introduction(file, made, 4, 2)
    assert any("2 points of the grid are left out" in line for line in introduction(file, made, 4, 2))


@pytest.mark.parametrize(
    ("word", "other", "why"),
    [
        (
            "model.d_model / model.h}",
            "model.width / model.h}",
            r"f.yaml:7: model.d_k.tie=.*unknown field 'model.width'",
        ),
        ("{tie: model.d_model / model.h}", "{tie: model.h, values: [1]}", "model.d_k: categorical takes values"),
        ("model.d_k", "model.positions", "only numbers of a model or training can follow others"),
        ("{of_base: 1/2}", "{of_base: model.h}", "fields go into tie"),
    ],
)
def test_what_is_not_well_said_is_refused(tmp_path: Path, word: str, other: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        read(tmp_path, FILE.replace("METHOD", "grid").replace(word, other, 1)).space(Experiment())


def test_each_trial_has_its_own_value_and_points_that_do_not_come_out_are_left_out() -> None:
    made = tied(based=False)
    found = {tuple(cell.change.values()): made.experiment(cell).model for cell in made.cells()}
    assert {point: model.d_k for point, model in found.items()} == {
        (4, 256): 64,
        (4, 512): 128,
        (8, 256): 32,
        (8, 512): 64,
    }
    assert {model.d_ff for model in found.values()} == {1024} and made.refused() == 2
    assert "model.d_k should be model.d_model / model.h with model.d_model 256, model.h 24" in made.misses(
        {"model.h": 24, "model.d_model": 256}
    )
    small = replace(made, base=override(replace(made.base, miniature=Miniature(width=64)), {"model.d_v": 64}, "test"))
    assert "model.d_k=32 is not divisible by miniature.width=64" in small.misses({"model.h": 8, "model.d_model": 256})
    assert all(point["model.h"] != 24 for point in draw(replace(made, sampler="random", trials=9), 20))
    with pytest.raises(UserError, match=r"no point of the space has whole tied sizes: .*not a whole number"):
        tied(space=[Parameter("model.h", "categorical", [24, 48]), *made.space[1:]]).check()


def test_base_is_base_and_values_are_shown_but_not_sampled(tmp_path: Path) -> None:
    made = tied(sampler="random", trials=9)  # the space has four points beside base
    made.check()
    save(made, tmp_path)
    with (tmp_path / "shown").open("w") as stream:
        states = launch(made, made.cells(), tmp_path, train, stream, workers=1)
    assert states[0].cell.row == "base" and made.experiment(states[0].cell) == made.base
    assert all(state.cell.change.keys() == {"model.h", "model.d_model"} for state in states) and len(states) == 5
    assert "model.d_k=" in report(load(tmp_path, "s"), tmp_path)
    lines = {line["trial"]: line for line in json.loads((tmp_path / "studies/s/trials.json").read_text())}
    assert lines["base"]["model.d_k"] == 64 and lines["base"]["model.d_ff"] == 2048
    others = [line for name, line in lines.items() if name != "base"]
    assert all(line["model.d_k"] == line["model.d_model"] // line["model.h"] for line in others)
    shown = make("s", tmp_path)
    heads, *rows = csv.reader(shown.render("csv").splitlines())
    assert heads[2:6] == ["model.h", "model.d_model", "model.d_k", "model.d_ff"]
    assert {int(row[4]) * int(row[2]) == int(row[3]) for row in rows} == {True}
    page = shown.render("html")
    assert "model.d_k follows: model.d_model / model.h" in page and "<bdi>model.d_k</bdi>" in page
    assert "model.d_k is not sampled, it follows: model.d_model / model.h" in shown.render("markdown")


def test_a_controller_that_hands_the_tie_on_is_told_so(capsys) -> None:
    """W&B's schema has no place for a tie; what its agent would pass is refused by `fit`."""
    with pytest.raises(UserError, match=r"model.d_k=.*expected a whole number"):
        fit("fit", ["--config", "experiments/miniature.yaml", "--model.d_k={'tie': 'model.d_model / model.h'}"])
