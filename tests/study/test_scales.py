"""`--scales 16,8`: the rows of a sweep at several widths, a study each, and their ladder."""

import json
import re

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as
from lightning_tfm.study.sweeps import read_sweep

FILE = """
name: two
method: grid
parameters:
  row: {values: [base, A-h1]}
  seed: {values: [1, 2]}
  WIDTHS
command: [lightning-tfm, fit, --config, e.yaml, "${args}"]
"""
EXPERIMENT = """
miniature: {width: 16, depth: 6, hold: ratios, seen: 0.003}
data: {corpus: builtin, vocab_size: 120, max_len: 64}
training: {tokens: 200}
evaluation: {beam: 1}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    (tmp_path / "option.yaml").write_text(FILE.replace("WIDTHS", ""))
    (tmp_path / "file.yaml").write_text(FILE.replace("WIDTHS", "miniature.width: {values: [32, 64]}"))
    return tmp_path


def test_each_scale_is_a_study_by_the_ratios(place, capsys):
    assert read_sweep("file.yaml").scales == [32, 64] and read_sweep("option.yaml").scales == []
    assert main(["plan", "option.yaml", "--scales", "32,64", "--rate", "1e9"]) == 0
    asked = capsys.readouterr().out
    assert main(["plan", "file.yaml", "--rate", "1e9"]) == 0
    assert capsys.readouterr().out == asked, "the same runs, whichever way they are asked for"
    held = [int(n.replace(",", "")) for n in re.findall(r"ratios held at ([\d,]+) parameters", asked)]
    assert len(held) == 2 and held[0] < held[1], "the smallest model first"
    runs = re.findall(r"seed \d  +([0-9a-f]{16})", asked)
    assert len(runs) == len(set(runs)) == 8


def test_an_experiment_without_ratios_gets_them(place, capsys):
    (place / "e.yaml").write_text(EXPERIMENT.replace(", hold: ratios, seen: 0.003", ", steps: 50"))
    assert main(["plan", "option.yaml", "--scales", "32,64", "--rate", "1e9"]) == 0
    assert capsys.readouterr().out.count("2.00 unique and 40.0 training target tokens per parameter") == 2


def test_a_scale_twice_is_refused(place):
    (place / "file.yaml").write_text(FILE.replace("WIDTHS", "miniature.width: {values: [32, 32]}"))
    with pytest.raises(UserError, match=r"file.yaml:7: a miniature.width appears twice"):
        read_sweep("file.yaml")
    (place / "file.yaml").write_text(FILE.replace("WIDTHS", "miniature.width: {values: [32, wide]}"))
    with pytest.raises(UserError, match=r"miniature.width='wide': expected a whole number"):
        read_sweep("file.yaml")


@pytest.mark.long
def test_a_ladder_from_one_command(place, capsys):
    assert main(["sweep", "file.yaml", "--workers", "1", "--trainer.threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert "row" in out and "two-64" in out.split("over scales")[0] and "at 65.0M" in out
    assert err.count("ratios held at") == 2
    small, large = (load_as(Ablation, place / "results", f"two-{scale}") for scale in (64, 32))
    assert (small.base.miniature.width, large.base.miniature.width) == (64, 32)
    assert small.base.training.steps < large.base.training.steps
    assert main(["resume", "two-64"]) == 0
    assert "two-64: 4 finished, 0 running, 0 waiting" in capsys.readouterr().err
    assert main(["scaling", "two-64", "two-32", "--format", "json", "--to", "-"]) == 0
    assert list(json.loads(capsys.readouterr().out)["studies"]) == ["two-64", "two-32"]
