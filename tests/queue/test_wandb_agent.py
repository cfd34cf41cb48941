"""W&B's own agent drives `lightning-tfm fit`; only three answers of its server are made up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers.tiny import write_corpus
from tests.queue.offline import read_back

ROOT = Path(__file__).parents[2]
AGENT = """
import json, sys
import wandb
from wandb import wandb_agent
from wandb.apis.public import sweeps

command, arguments, program = json.loads(sys.argv[1])
waiting = [{"type": "run", "run_id": name, "program": program, "args": arguments} for name in ("first1", "second2")]
sweeps._sweep_with_runs = lambda api, sweep, specs: {"config": json.dumps({"command": command})}
sweeps._register_agent = lambda api, host, sweep_id: {"id": "agent"}
sweeps._agent_heartbeat = lambda api, agent, metrics, status: [waiting.pop(0)] if waiting and not status else []
wandb.Api = lambda: None
wandb_agent.Agent.POLL_INTERVAL = 0.2
wandb_agent.Agent(None, __import__("queue").Queue(), sweep_id="sweep9", count=2).run()
"""


@pytest.mark.long
def test_a_run_of_an_agent_is_one_run_there_and_a_finished_one_reports_what_is_stored(tmp_path: Path) -> None:
    sweep = yaml.safe_load((ROOT / "sweeps" / "heads.yaml").read_text())
    assert sweep["program"] == "lightning-tfm" and sweep["command"][-1] == "${args}"
    text, out = write_corpus(tmp_path / "text"), tmp_path / "out"
    fixed = ["--model.N=1", "--model.d_model=16", "--model.d_ff=16", "--data.corpus=files", f"--data.folder={text}"]
    fixed += ["--training.warmup=8"]
    fixed += ["--data.vocab_size=44", "--training.steps=40", "--training.tokens=200", "--evaluation.extra_len=4"]
    fixed += [f"--out={out}", "--wandb=offline", "--trainer.accelerator=cpu", "--trainer.log_every=10"]
    command = ["${env}", sys.executable, "-m", "lightning_tfm.cli.main", "fit", *fixed, "${args}"]
    chosen = {"model.h": 4, "model.d_k": 5, "model.d_v": 3, "training.lr_factor": 1e-05, "model.positions": "learned"}
    chosen |= {"model.attention_bias": True}
    handed = [command, {key: {"value": value} for key, value in chosen.items()}, sweep["program"]]
    environment = os.environ | {"WANDB_SWEEP_ID": "sweep9", "WANDB_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for name in ("WANDB_RUN_ID", "WANDB_PROJECT", "WANDB_MODE"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", AGENT, json.dumps(handed)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (run,) = out.glob("runs/*")
    experiment, result = (json.loads((run / name).read_text()) for name in ("experiment.json", "result.json"))
    for key, value in chosen.items():
        section, name = key.split(".")
        assert experiment[section][name] == value
    assert result["attempts"] == 1 and "is already trained" in done.stderr
    found = read_back(out / "studies" / "fit")
    assert sorted(found) == ["first1", "second2"], "the agent's ids"
    assert _values(found["first1"]) == _values(found["second2"])
    assert [item["optimizer_step"] for item in found["second2"] if "train/loss" in item] == [10, 20, 30, 40]
    assert [i["dev/ppl"] for i in found["second2"] if "dev/bleu" in i] == [result["scores"]["dev"]["ppl"]]


def _values(history: list[dict]) -> list[dict]:
    return [{key: value for key, value in item.items() if "/" in key and "translations" not in key} for item in history]
