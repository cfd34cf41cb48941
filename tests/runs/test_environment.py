"""The yardstick of utilisation: measured on random numbers, once per machine, kept."""

import json

import pytest
import torch

from lightning_tfm.config import Experiment, Hardware, Training
from lightning_tfm.runs import environment
from lightning_tfm.runs.environment import inexact, matrix_rate
from lightning_tfm.runs.record import without_folders


def test_a_rate_is_measured_once_and_kept(tmp_path, monkeypatch):
    factors = []
    product = torch.Tensor.__matmul__

    def watched(a, b):
        factors.append((a, b))
        return product(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    rate = matrix_rate("float32", False, tmp_path)
    assert rate > 1e9 and (count := len(factors)) >= 6
    assert all(len(x[:2].unique()) > 2000 for x in factors[0]), "a product of equal numbers is faster"
    assert not torch.equal(*factors[0])
    assert matrix_rate("float32", False, tmp_path) == rate and len(factors) == count
    assert matrix_rate("float64", False, tmp_path) != rate and len(factors) >= count + 6
    kept = [json.loads(path.read_bytes()) for path in (tmp_path / "machines").iterdir()]
    assert {one["precision"] for one in kept} == {"float32", "float64"}
    assert all(one["device"] and one["torch"] and one["host"] for one in kept)


@pytest.mark.parametrize("broken", ["", "{}", "[1]", '{"flops_per_second": "fast"}'])
def test_a_damaged_one_is_measured_again(tmp_path, monkeypatch, broken):
    monkeypatch.setattr(environment, "_measured_rate", lambda precision, gpu, product: 7.0)
    assert matrix_rate("float32", False, tmp_path) == 7.0
    (path,) = (tmp_path / "machines").iterdir()
    path.write_text(broken)
    assert matrix_rate("float32", False, tmp_path) == 7.0
    assert json.loads(path.read_bytes())["flops_per_second"] == 7.0


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
