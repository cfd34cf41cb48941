"""What a record says of its machine and command."""

import pytest
import torch

from lightning_tfm.config import Experiment, Hardware, Training
from lightning_tfm.runs.environment import inexact
from lightning_tfm.runs.record import without_folders


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
