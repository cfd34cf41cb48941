"""`fit` under torchrun: two nodes on one machine train the run that two processes of our own train."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.runs.process import torchrun
from tests.helpers.tiny import metrics, write_corpus

ROOT = Path(__file__).parents[2]
SIZES = {"model.N": 1, "model.d_model": 16, "model.d_ff": 16, "model.h": 2, "model.d_k": 8, "model.d_v": 8}
SIZES |= {"data.corpus": "files", "data.vocab_size": 44, "training.tokens": 260, "training.steps": 24}
SIZES |= {"training.warmup": 8}
SIZES |= {"evaluation.extra_len": 4, "trainer.log_every": 4, "trainer.threads": 1, "trainer.accelerator": "cpu"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def options(text: Path, out: Path) -> list[str]:
    return ["fit", *(f"--{k}={v}" for k, v in (SIZES | {"data.folder": str(text), "out": str(out)}).items())]


def on_two_nodes(arguments: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and output of torchrun on each node."""
    port, nodes = free_port(), []
    for number, argv in enumerate(arguments):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={number}"]
        command += ["--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
        command += ["-m", "lightning_tfm.cli.main", *argv]
        nodes.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        said = [node.communicate(timeout=200)[0] for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                node.terminate()
                node.wait()
    return [(node.returncode, text) for node, text in zip(nodes, said, strict=True)]


def test_what_torchrun_started_is_the_hardware(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert torchrun.with_torchrun_ranks(Hardware()) == Hardware(devices=2, num_nodes=3)
    with pytest.raises(UserError, match="torchrun has started 2"):
        torchrun.with_torchrun_ranks(Hardware(devices=4))


@pytest.mark.long
def test_two_nodes_train_what_two_processes_train(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    alone = [sys.executable, "-m", "lightning_tfm.cli.main", *options(text, tmp_path / "alone"), "--trainer.devices=2"]
    done = subprocess.run(alone, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    together = options(text, tmp_path / "nodes")
    found = on_two_nodes([together, together])
    assert [code for code, _ in found] == [0, 0], found
    (first,), (second,) = ((tmp_path / name).glob("runs/*") for name in ("alone", "nodes"))
    assert first.name == second.name and metrics(first) == metrics(second)
    results = [json.loads((run / "result.json").read_text()) for run in (first, second)]
    assert results[0]["scores"]["dev"]["ppl"] == results[1]["scores"]["dev"]["ppl"]
    trainer = results[1]["hardware"]["trainer"]
    assert (trainer["devices"], trainer["num_nodes"], results[1]["hardware"]["processes"]) == (1, 2, 2)
    assert [said.count("BLEU") > 0 for _, said in found] == [True, False], "rank 0 alone reports"
    again = on_two_nodes([together, together])
    assert [code for code, _ in again] == [0, 0] and "is already trained" in again[0][1]
    assert json.loads((second / "result.json").read_text())["attempts"] == 1


@pytest.mark.long
def test_a_node_with_other_files_is_refused(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    found = on_two_nodes([options(text, tmp_path / name) for name in ("here", "there")])
    assert all(code != 0 for code, _ in found)
    assert all("all nodes must see the same files" in said for _, said in found)
