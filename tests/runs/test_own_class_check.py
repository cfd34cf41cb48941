"""User-defined classes that fail are refused by `plan` and `sweep`, with the user's line, before anything trains."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, Training
from lightning_tfm.errors import UserError
from lightning_tfm.model import causality_check
from lightning_tfm.model.config import Model
from lightning_tfm.registry import FEED_FORWARDS
from lightning_tfm.runs.own_class_check import check_classes_work
from lightning_tfm.runs.process.forking import children
from tests.helpers.tiny import miniature

LINES = """import os
import torch
from lightning_tfm.model.feed_forward import ReLU
from lightning_tfm.training.schedule import Schedule


class Built(ReLU):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.scale = math.sqrt(2)


class InTorch(ReLU):
    def forward(self, x):
        return torch.nn.functional.linear(x, torch.ones(1, 1))


class Killed(ReLU):
    def forward(self, x):
        os._exit(9)


class Rate(Schedule):
    def after_warmup(self, n):
        return math.sqrt(n)


class Step(torch.optim.SGD):
    def __init__(self, model, training):
        super().__init__(model.parameters(), lr=0.1)

    def step(self, closure=None):
        return math.inf
"""
SMALL = Model(N=1, d_model=12, d_ff=20, h=2, d_k=6, d_v=6)
UNDEFINED = "NameError: name 'math' is not defined"


@pytest.fixture
def own(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    (tmp_path / "own_unfinished.py").write_text(LINES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_unfinished", raising=False)
    return tmp_path / "own_unfinished.py"


def line_of(text: str) -> int:
    return 1 + next(i for i, line in enumerate(LINES.splitlines()) if text in line)


@pytest.mark.parametrize(
    ("experiment", "words", "line"),
    [
        (Experiment(replace(SMALL, feed_forward="own_unfinished.Built")), UNDEFINED, "math.sqrt(2)"),
        (Experiment(replace(SMALL, feed_forward="own_unfinished.InTorch")), "RuntimeError: ", "linear(x"),
        (Experiment(SMALL, training=Training(schedule="own_unfinished.Rate")), UNDEFINED, "math.sqrt(n)"),
        (Experiment(SMALL, training=Training(optimizer="own_unfinished.Step")), UNDEFINED, "math.inf"),
    ],
)
def test_a_class_that_fails_is_named_with_its_user_s_line(own: Path, experiment: Experiment, words: str, line: str):
    before = children()
    with pytest.raises(UserError) as error:
        check_classes_work([Experiment(SMALL), experiment])
    assert re.match(r"(model|training)\.\w+='own_unfinished\.\w+': " + words, str(error.value))
    assert str(error.value).endswith(f"({own}:{line_of(line)})") and children() == before


def test_a_class_that_ends_its_process_ends_no_other(own: Path) -> None:
    with pytest.raises(UserError, match=r"own_unfinished.Killed: trying it: exit code 9"):
        check_classes_work([Experiment(replace(SMALL, feed_forward="own_unfinished.Killed"))])


def test_each_is_tried_once_and_what_ships_is_not(tmp_path: Path, monkeypatch) -> None:
    def note(model: Model) -> list[str]:
        with (tmp_path / "tried").open("a") as file:
            file.write(f"{model.feed_forward} {model.norm_kind} {model.h}\n")
        return []

    monkeypatch.setattr(causality_check, "check_own_classes", note)
    check_classes_work([Experiment(replace(SMALL, feed_forward=name)) for name in FEED_FORWARDS])
    assert not (tmp_path / "tried").exists()
    models = [replace(SMALL, feed_forward="mine.A", h=h) for h in (1, 2, 3)]
    models += [replace(SMALL, norm_kind="mine.B"), replace(SMALL, feed_forward="mine.A", norm_kind="mine.B")]
    check_classes_work(Experiment(model) for model in [SMALL, *models])
    assert (tmp_path / "tried").read_text().splitlines() == ["mine.A layer 1", "relu mine.B 2", "mine.A mine.B 2"]


@pytest.mark.parametrize("verb", ["plan", "sweep"])
def test_a_study_with_it_is_refused_before_its_text_is_read(own: Path, tmp_path: Path, verb, capsys) -> None:
    (tmp_path / "rows.yaml").write_text("mine: {group: mine, change: {model.feed_forward: own_unfinished.Built}}\n")
    text = "name: s\nmethod: grid\nparameters:\n  row: {values: [base, mine]}\n"
    (tmp_path / "s.yaml").write_text(f'{text}command: [lightning-tfm, fit, "${{args}}"]\n')
    options = [*miniature(tmp_path), "--rows", str(tmp_path / "rows.yaml"), "--out", str(tmp_path / "out")]
    assert main([verb, str(tmp_path / "s.yaml"), *options]) == 2
    assert f"{UNDEFINED} ({own}:{line_of('math.sqrt(2)')})" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_search_of_classes_is_refused_by_the_one_that_fails(own: Path, tmp_path: Path, capsys) -> None:
    text = "name: s\nmethod: grid\nmetric: {name: dev/ppl, goal: minimize}\n"
    text += "parameters:\n  model.feed_forward: {values: [relu, own_unfinished.Built]}\n"
    (tmp_path / "s.yaml").write_text(f'{text}command: [lightning-tfm, fit, "${{args}}"]\n')
    assert main(["plan", str(tmp_path / "s.yaml"), *miniature(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert UNDEFINED in capsys.readouterr().err
