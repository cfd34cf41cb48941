"""What a run finds around it and how it learns: the machine, its threads and random numbers; whether it diverged."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_tfm import rng
from lightning_tfm.config import Experiment, Hardware, Training
from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.errors import UserError
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.queue.resources import make_resources
from lightning_tfm.runs import environment
from lightning_tfm.runs.divergence import Divergence, Undefined, divergence_of
from lightning_tfm.runs.environment import inexact
from lightning_tfm.runs.process import threads
from lightning_tfm.runs.process.threads import FAR, check_cores, set_idle_policy, threads_of, waiting
from lightning_tfm.runs.record import without_folders
from lightning_tfm.runs.train import run_flops
from tests.helpers.tiny import experiment, write_corpus


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


def test_the_draws_are_those_that_were_committed():
    assert environment.changed_methods() == [] and environment.rng_note() == ""


def test_another_generator_is_found_and_recorded(monkeypatch):
    monkeypatch.setattr(environment, "generator", lambda *parts: np.random.Generator(np.random.PCG64(7)))
    assert environment.changed_methods() == list(environment.FIRST_DRAWS)
    reasons = inexact(Experiment(), Hardware(accelerator="cpu"))
    assert len(reasons) == 1 and "other initial weights and orders" in reasons[0]


def test_initial_weights_and_orders_are_drawn_by_these_methods_alone():
    """The methods of `keys.generator` that the model and the plan call are all committed."""
    import ast
    from pathlib import Path

    package = Path(rng.__file__).parent
    called: set[str] = set()
    for path in (package / "model/init.py", package / "data/batch_plan.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if owner.startswith("generator(") or owner == "random":
                    called.add(node.func.attr)
    assert called == set(environment.FIRST_DRAWS)


@pytest.mark.parametrize("max_len", [8, 200])
def test_flops_are_those_of_the_pairs_that_are_trained_on(tmp_path: Path, max_len: int) -> None:
    """Over a whole epoch the mean is exact; longer pairs would count with the square of their length."""
    e = experiment(write_corpus(tmp_path / "text"), data__max_len=max_len)
    data = TranslationData(e, prepare(e.data, tmp_path))
    plan = data.plan()
    ids = np.concatenate([plan.global_batch(step) for step in range(plan.steps_per_epoch)])
    assert (len(ids) < len(plan.source_lengths)) == (max_len == 8)
    source, target = plan.source_lengths[ids].astype(int), plan.target_lengths[ids].astype(int)
    model = Transformer(data.experiment.model, data.prepared.tokenizer.V)
    tokens = int(source.sum()), int(target.sum())
    pairs = AttentionPairs(source @ source, target @ target, source @ target)
    exact = training_flops(model.config, model.V, *tokens, pairs, model.weights())
    assert run_flops(model, data, *tokens) == exact


OPTIONS = {
    "workers": 0, "no_shared_files": False, "storage": "", "devices_per_run": 0, "runs_per_device": 0,
    "launcher": "local", "wandb": "off",
    "slurm": {"jobs": 1, "minutes": 60, "cpus": 4, "gpus": 0, "requeues": 0, "stop_seconds": 60, "nodes": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "option", "workers", "expected"),
    [
        ("", 0, 0, (8, 1)), ("2", 0, 0, (4, 2)), ("2", 0, 8, (8, 2)), ("2", 4, 0, (2, 4)), ("", 0, 2, (2, 4)),
        ("3,2", 0, 1, (1, 3)),
    ],
)  # fmt: skip
def test_the_environment_is_honoured_where_no_option_says_otherwise(monkeypatch, said, option, workers, expected):
    """`sweep`, `tune` and `work`: workers and threads of each, on eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    found = make_resources(OPTIONS | {"workers": workers}, Hardware(accelerator="cpu", threads=option))
    assert (found.workers, found.threads) == expected


def test_what_is_no_number_and_what_is_far_beyond_the_cores_is_refused(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(UserError, match="OMP_NUM_THREADS='many'"):
        threads_of(Hardware())
    assert threads_of(Hardware(threads=2)) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", str(4 * FAR + 1))
    with pytest.raises(UserError, match="OMP_NUM_THREADS=33: this machine has 4 cores"):
        check_cores(Hardware())
    check_cores(Hardware(threads=4 * FAR, devices=4 * FAR), workers=4 * FAR)


def test_threads_sleep_beside_others_unless_the_user_says_otherwise_or_torch_is_there_already(monkeypatch):
    seen = [2, 3, 2]
    monkeypatch.setattr(threads, "_runnable", lambda pause: seen.pop())
    for name in threads.WAITING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    set_idle_policy()
    assert waiting() == "they spin"  # too late to change it
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv("GOMP_SPINCOUNT", "100")
    set_idle_policy()
    assert waiting() == "GOMP_SPINCOUNT=100"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    set_idle_policy()
    assert waiting() == "asleep at once" and not seen
    monkeypatch.delenv("OMP_WAIT_POLICY")
    seen += [2, 1, 3]  # one look that finds the machine free is enough
    set_idle_policy()
    assert waiting() == "they spin"


@pytest.mark.parametrize("said", ["", "0.00 0.00 0.00 0/0 0", "?"])
def test_where_others_cannot_be_seen_they_may_be_there(monkeypatch, tmp_path, said):
    file = tmp_path / "loadavg"
    file.write_text(said)
    monkeypatch.setattr(threads, "Path", lambda name: file)
    assert threads.cores_busy()
    file.unlink()
    assert threads.cores_busy()
    file.write_text("0.10 0.10 0.10 1/90 7")
    assert not threads.cores_busy()


def test_the_command_line_sets_it_before_torch_is_there():
    code = "import sys, os; from lightning_tfm.cli.main import main; main(['--version']); "
    code += "assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"
    clean = {name: value for name, value in os.environ.items() if name not in threads.WAITING}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
        finally:
            other.kill()
    assert done.stdout.split()[-1] == "PASSIVE"


def curve(values: list[float], every: int = 50) -> list[dict[str, float]]:
    return [
        {"step": every * i, "loss": x, "nll": x, "lr": i / 1000, "grad_norm": i / 10} for i, x in enumerate(values, 1)
    ]


def test_one_that_ends_half_a_nat_above_its_lowest_block_has():
    found = divergence_of(curve([3.0] * 30 + [3.4, 3.6] * 5), 800)
    assert found is None, "b_20 is the limit itself"
    found = divergence_of(curve([3.0] * 30 + [3.4, 3.7] * 5), 800)
    assert isinstance(found, Divergence)
    assert (found.step, found.before, found.after) == (50 * 31, 3.0, pytest.approx(3.55))
    assert (found.rate, found.grad_norm) == (0.031, 3.1)


def test_a_spike_that_it_recovers_from_is_no_divergence_and_is_not_where_one_began():
    assert divergence_of(curve([3.0] * 10 + [9.0] * 10 + [2.5] * 20), 800) is None
    found = divergence_of(curve([3.0] * 10 + [9.0] * 4 + [3.0] * 6 + [9.0] * 20), 10**6)
    assert isinstance(found, Divergence) and found.step == 50 * 21


def test_one_that_ends_worse_than_guessing_has_even_where_it_never_rose():
    values = [math.log(100) + 0.1] * 40
    assert isinstance(found := divergence_of(curve(values), 100), Divergence)
    assert found.step == 50 and "no better than guessing" in str(found)
    assert divergence_of(curve(values), None) is None, "log V is not known"
    assert divergence_of(curve(values), 120) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, "Infinity"])
def test_a_loss_that_is_not_finite_is_divergence_however_few_points_there_are(bad):
    lines = [*curve([5.0, 4.0]), {"step": 150, "nll": bad, "lr": 0.5}]
    found = divergence_of(lines, 800)
    assert isinstance(found, Divergence)
    assert (found.step, found.before, found.rate, found.grad_norm) == (150, 4.0, 0.5, None)
    assert not math.isfinite(found.after) and "4.00 before" in str(found)


def test_with_fewer_than_twenty_losses_it_is_undefined_and_said():
    lines = [line for one in curve([3.0] * 18 + [9.0]) for line in (one, {"step": one["step"], "dev_ppl": 9.0})]
    found = divergence_of(lines, 800)
    assert found == Undefined(19) and "19 losses were logged" in str(found)
    assert isinstance(divergence_of(curve([3.0] * 19 + [9.0]), 800), Divergence)
    assert divergence_of([], None) == Undefined(0)


def test_blocks_are_equal_in_steps_not_in_points():
    dense = curve([3.0] * 400, every=1)  # the first 400 steps logged one by one, the rest every 400th
    sparse = [line | {"step": 400 + 400 * i} for i, line in enumerate(curve([3.0] * 18 + [9.0]), 1)]
    assert isinstance(divergence_of(dense + sparse, 800), Divergence)


def test_it_says_where_it_came_to_that_and_what_to_try():
    said = str(divergence_of(curve([3.0] * 30 + [9.0] * 10), 10**6))
    assert "rose from 3.00 to 9.00 from step 1550 on (learning rate 0.031, gradient norm 3.1)" in said
    assert "lr_factor" in said and "warmup" in said


def test_the_lines_may_come_from_the_file_as_they_are():
    lines = [json.loads(json.dumps(line)) for line in curve([3.0] * 40)]
    assert divergence_of(iter(lines), 800) is None
