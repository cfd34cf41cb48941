"""`lightning-tfm demo` as it stands: stopped, taken up again, repeated."""

import os
import re
import signal
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.train.demo import BEGIN, NEXT
from tests.helpers.calling import Call
from tests.helpers.waiting import wait_for


def demo(folder: Path) -> Call:
    return Call(lambda: main(["demo"]), folder=folder)


def test_resume_goes_on_with_it(tmp_path, monkeypatch, capsys):
    begun = []

    def stopped(study, cells, root, resources, start):
        begun.append(root)
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning_tfm.queue.launch.work", stopped)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "there"]) == main(["resume", "demo", "--out", "there"]) == 130
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == f"stopped; to resume: lightning-tfm resume demo --out {tmp_path}/there"
    assert "`lightning-tfm demo --out there` resumes" in said
    assert begun == [Path("there"), tmp_path / "there"]


def test_no_line_of_it_is_broken_on_80_columns():
    names = {"run": "6c9988d847327cac", "dashboard": "lightning-tfm dashboard"}
    said = BEGIN + NEXT.format(source="Ta kupin no bilsened.", **names)
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.long
def test_the_demo_is_stopped_goes_on_and_is_repeated(tmp_path):
    first = demo(tmp_path)
    wait_for(lambda: list(tmp_path.glob("results/runs/*/checkpoints/step-*.ckpt")), 120, "a checkpoint")
    os.kill(first.pid, signal.SIGINT)
    said = first.wait()
    assert said.code == 130 and "resumes from the last checkpoint" in said.err and "Traceback" not in said.err
    second = demo(tmp_path).wait()
    assert second.code == 0, second.err
    found = re.search(r"dev PPL ([\d.]+), BLEU ([\d.]+)", second.out)
    assert found and float(found[1]) < 3.5 and float(found[2]) > 35, second.out  # as experiments/demo.yaml says
    assert second.out.count("translation  ") == 3 and "lightning-tfm translate" in second.out
    page = tmp_path / "results/studies/demo/report.html"
    assert page.is_file() and "attention" in page.read_text().lower()
    again = demo(tmp_path).wait()
    unclocked = [re.sub(r"In \d+ seconds", "", said.out) for said in (second, again)]
    assert again.code == 0 and unclocked[0] == unclocked[1]
    assert len(list((tmp_path / "results/runs").iterdir())) == 1
