"""Mistakes that can be known beforehand: exit code 2, the remedy in words, nothing written, nothing heavy imported.

A new verb, option or field adds its lines to TABLE.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import sacrebleu

from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, override
from lightning_tfm.errors import UserError
from lightning_tfm.queue import devices
from lightning_tfm.study import mistakes
from lightning_tfm.study.classes import SHIPPED
from lightning_tfm.study.mistakes import TOKENIZERS, check_trainable

ROOT = Path(__file__).parents[1]
FIT = "fit --config e.yaml"
TABLE3 = "sweep sweeps/table3.yaml"
SEARCH = "tune sweeps/search.yaml"
MINIATURE = "fit --config experiments/miniature.yaml"
OWN = "fit --model.positions mistaken"
GPU = "--trainer.accelerator gpu"
TABLE = [
    # (verb and arguments, content of e.yaml beside it or "", exit code, words that the message holds)
    # --- files ---
    (FIT, "model: {hh: 4}", 2, "e.yaml:1: unknown key 'model.hh' (value 4): did you mean 'h'?"),
    (FIT, "modle: {h: 4}", 2, "e.yaml:1: unknown key 'modle' (value {'h': 4}): did you mean 'model'?"),
    (FIT, "model:\n  N: 2\n  h: eight", 2, "e.yaml:3: model.h='eight': expected a whole number"),
    (FIT, "model: 3", 2, "e.yaml:1: model=3: expected keys and values"),
    (FIT, "model: {norm: prae}", 2, "did you mean 'pre'?"),
    (FIT, "model: {h: 4, h: 8}", 2, "e.yaml:1: 'h' appears twice"),
    (FIT, "model: {h: 4", 2, "e.yaml:1: not YAML"),
    (FIT, "seed: one", 2, "e.yaml:1: seed='one': expected a whole number"),
    (FIT, "rows: mine.yaml", 2, "expected a list of files"),
    (FIT, "miniature: {width: 7}", 2, "model.d_model=512 is not divisible by miniature.width=7"),
    (FIT, "model: {P_drop: 1.5}", 2, "model.P_drop=1.5: must lie in [0, 1)"),
    (FIT, "model: {positions: learnd}", 2, "did you mean 'learned'"),
    (FIT, "data: {corpus: files}", 2, "needs data.folder"),
    (FIT, "trainer: {log_every: 0}", 2, "trainer.log_every=0: must be at least 1"),
    # --- arguments ---
    ("fti", "", 2, "unknown verb 'fti': did you mean 'fit'?"),
    ("fit --model.hh 4", "", 2, "option '--model.hh' (value '4') on the command line: did you mean '--model.h'?"),
    ("fit --model.h abc", "", 2, "command line: model.h='abc': expected a whole number"),
    ("fit --model.h=4.5", "", 2, "command line: model.h=4.5: expected a whole number"),
    ("fit --model.h", "", 2, "--model.h needs a value"),
    ("fit --mod.h 3", "", 2, "unknown option '--mod.h'"),
    ("fit --config experiments/bas.yaml", "", 2, "did you mean 'experiments/base.yaml'?"),
    ("fit --config", "", 2, "--config needs a value"),
    ("fit --row A-h2", "", 2, "no row 'A-h2'"),
    ("fit stray", "", 2, "stray"),
    ("sweep sweeps/table.yaml", "", 2, "did you mean 'sweeps/table3.yaml'?"),
    (f"{TABLE3} --seeds one", "", 2, "--seeds=one: expected numbers"),
    (f"{TABLE3} --row base", "", 2, "one row alone: fit"),
    (f"{TABLE3} --miniature.width 3", "", 2, "row 'base': model.d_model=512 is not divisible"),
    ("table --params --vocab 0", "", 2, "--vocab=0"),
    ("table --params --vocab many", "", 2, "command line: --vocab='many': expected a whole number"),
    ("table --parms", "", 2, "did you mean '--params'?"),
    ("table --format htlm", "", 2, "command line: --format='htlm': valid: csv, json, markdown, text"),
    ("report --format htlm", "", 2, "command line: --format='htlm': did you mean 'html'?"),
    ("work mine --slurm.jobs x", "", 2, "command line: slurm.jobs='x': expected a whole number"),
    ("status --watch", "", 2, "--watch needs a study: lightning-tfm status STUDY --watch"),
    ("work", "", 2, "command line: the following arguments are required: study"),
    ("runs lst", "", 2, "did you mean 'list'?"),
    ("runs remove", "", 2, "needs a run"),
    # --- scoring ---
    ("fit --evaluation.bleu_tokenize 13b", "", 2, "is not a sacreBLEU tokenizer: did you mean '13a'?"),
    (f"{TABLE3} --evaluation.bleu_tokenize moses", "", 2, "valid: 13a, char, flores101"),
    (f"{SEARCH} --evaluation.bleu_tokenize 13b", "", 2, "did you mean '13a'?"),
    ("test a1b2 --evaluation.bleu_tokenize 13b", "", 2, "did you mean '13a'?"),
    ("translate a1b2 --evaluation.bleu_tokenize 13b", "", 2, "did you mean '13a'?"),
    # --- schedules ---
    (f"{MINIATURE} --training.warmup 2001", "", 2, "run of 2000 steps (training.steps=100000 / miniature.steps=50)"),
    (f"{MINIATURE} --training.warmup 2001", "", 2, "give --training.warmup 2000 or less"),
    (
        "fit --training.steps 3999",
        "",
        2,
        "training.warmup=4000 is longer than the run of 3999 steps: the learning rate",
    ),
    (f"{TABLE3} --miniature.steps 1000", "", 2, "row 'base': training.warmup=300 is longer than the run of 100 steps"),
    (f"plan {TABLE3[6:]} --miniature.steps 1000", "", 2, "training.warmup=300 is longer than the run of 100 steps"),
    (f"{SEARCH} --miniature.steps 1000", "", 2, "training.warmup=300 is longer than the run of 100 steps"),
    (f"{SEARCH} --miniature.steps 2000 --training.warmup 9", "", 2, "every trial: training.warmup=100 is longer"),
    # --- counts and intervals ---
    ("fit --training.steps 0", "", 2, "training.steps=0: must be at least 1"),
    ("fit --training.steps -5", "", 2, "training.steps=-5: must be at least 1"),
    ("fit --miniature.steps 0", "", 2, "miniature.steps=0: must be at least 1"),
    ("fit --miniature.width -8", "", 2, "miniature.width=-8: must be at least 1"),
    ("fit --training.warmup 0", "", 2, "training.warmup=0: must be above 0"),
    ("fit --trainer.log_every 0", "", 2, "trainer.log_every=0: must be at least 1"),
    (f"{TABLE3} --trainer.log_every -1", "", 2, "trainer.log_every=-1: must be at least 1"),
    ("fit --trainer.validate_every -1", "", 2, "must be at least 0 (0 leaves it to the program)"),
    ("fit --trainer.checkpoint_every -9", "", 2, "trainer.checkpoint_every=-9: must be at least 0"),
    ("fit --trainer.devices 0", "", 2, "trainer.devices=0: must be at least 1"),
    (f"{SEARCH} --trainer.num_nodes 0", "", 2, "trainer.num_nodes=0: must be at least 1"),
    ("translate a1b2 --trainer.devices 0", "", 2, "trainer.devices=0: must be at least 1"),
    ("work mine --trainer.threads -1", "", 2, "trainer.threads=-1: must be at least 0"),
    ("fit --trainer.threads 9999", "", 2, "trainer.threads=9999: this machine has"),
    ("work mine --trainer.threads 9999", "", 2, "threads beyond them only wait for each other; give at most"),
    ("work mine --workers 9999", "", 2, "--workers=9999: this machine has"),
    ("fit --trainer.devices 9999 --trainer.accelerator cpu", "", 2, "so many processes only take turns"),
    ("work mine --workers -1", "", 2, "--workers=-1: must not be negative"),
    (f"{TABLE3} --launcher slurm --slurm.jobs 0", "", 2, "--slurm.jobs=0: must be at least 1"),
    (f"{TABLE3} --launcher slurm --slurm.minutes -1", "", 2, "--slurm.minutes=-1: must be at least 1"),
    (f"{SEARCH} --trials -1", "", 2, "--trials=-1: must be above 0"),
    ("predict-cost experiments/base.yaml --devices 0", "", 2, "--devices=0"),
    # --- an accelerator that is not there ---
    (
        f"fit {GPU}",
        "",
        2,
        "trainer.accelerator=gpu needs a GPU, but this machine has none: give --trainer.accelerator cpu",
    ),
    (f"{TABLE3} {GPU}", "", 2, "this machine has none"),
    (f"{SEARCH} {GPU}", "", 2, "this machine has none"),
    (f"work mine {GPU}", "", 2, "this machine has none"),
    (f"predict-cost experiments/base.yaml {GPU}", "", 2, "this machine has none"),
]
LATER = [
    # found with more imported: the storage, or a class of the user's own
    (f"{TABLE3} --name a/b", "", 2, "not a valid study name"),
    ("fit --model.positions my_module.Mine", "", 2, "model.positions='my_module.Mine': cannot import it"),
    (
        f"{OWN}.Lacking",
        "",
        2,
        "lacks embed(): define it with the arguments that it has in lightning_tfm.model.positions",
    ),
    (f"{OWN}.Unrelated", "", 2, "must derive from EmbeddingScheme or RotationScheme or BiasScheme"),
    ("fit --model.feed_forward mistaken.Unfinished", "", 2, "model.feed_forward='mistaken.Unfinished' lacks "),
    (f"{OWN}.value", "", 2, "expected a class, got 3"),
    (f"{TABLE3} --model.positions mistaken.Lacking", "", 2, "lacks embed()"),
    (
        f"{SEARCH} --model.positions mistaken.Lacking",
        "",
        2,
        "a limit on parameters needs classes that ship",
    ),
]
CLASSES = """
from lightning_tfm.model.feed_forward import FeedForward
from lightning_tfm.model.positions import EmbeddingScheme
value = 3
class Lacking(EmbeddingScheme):
    def embd(self, x_BTD, scale, start):
        return x_BTD
class Unfinished(FeedForward):
    pass
class Unrelated:
    pass
"""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "visible_gpus", lambda: [])
    monkeypatch.setattr("lightning_tfm.cli.study.visible_gpus", lambda: [])
    monkeypatch.setattr(devices, "FOREIGN_GPUS", ())


@pytest.mark.parametrize(("line", "file", "code", "words"), TABLE + LATER)
def test_exit_code_and_words(line, file, code, words, tmp_path, monkeypatch, capsys):
    (tmp_path / "mistaken.py").write_text(CLASSES)
    (tmp_path / "e.yaml").write_text(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert main(line.split()) == code
    said = capsys.readouterr().err
    assert words in said and said.startswith("lightning-tfm: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.yaml", "mistaken.py"], "nothing was prepared"


ALL_AT_ONCE = """
import sys
from lightning_tfm.cli.main import main
from lightning_tfm.queue import devices
from lightning_tfm.cli import study
study.visible_gpus = devices.visible_gpus = lambda: []
devices.FOREIGN_GPUS = ()
heavy = "torch lightning optuna sentencepiece wandb scipy sacrebleu rich".split()
for line in {lines!r}:
    assert main(line.split()) == 2, line
    found = set(heavy) & set(sys.modules)
    assert not found, (line, found)
"""


def test_nothing_heavy_is_imported_for_a_mistake(tmp_path):
    lines = [line for line, file, _, _ in TABLE if not file]
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | {"PYTHONPATH": str(ROOT)}
    code = ALL_AT_ONCE.format(lines=lines)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("lightning-tfm: ") >= len(lines)


def test_every_field_that_may_name_a_class_is_checked():
    assert mistakes.BASES.keys() == SHIPPED.keys()
    for home, *names in mistakes.BASES.values():
        assert all(hasattr(import_module(home), name) for name in names)


def test_tokenizers_are_sacrebleus():
    assert set(TOKENIZERS) == set(sacrebleu.BLEU.TOKENIZERS)


def test_a_tokenizer_that_needs_a_package(monkeypatch):
    monkeypatch.setattr(mistakes, "find_spec", lambda name: None)
    mistakes.check_tokenizer("intl")
    with pytest.raises(UserError, match=r"needs: pip install 'sacrebleu\[ko\]'"):
        mistakes.check_tokenizer("ko-mecab")


def test_a_gpu_that_is_hidden_or_that_torch_was_built_without(monkeypatch):
    from lightning_tfm.config import Hardware

    asked = Hardware(accelerator="gpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES='' hides them"):
        devices.check_accelerator(asked)
    monkeypatch.setattr(devices, "visible_gpus", lambda: ["0"])
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0+cpu")
    with pytest.raises(UserError, match=r"torch 2\.13\.0\+cpu is built without CUDA"):
        devices.check_accelerator(asked)
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0")
    devices.check_accelerator(asked)
    monkeypatch.setattr(devices, "visible_gpus", lambda: [])
    devices.check_accelerator(Hardware(accelerator="auto"))


def test_a_warm_up_as_long_as_the_run_reaches_its_peak():
    base = override(Experiment(), {"training.steps": 8000, "miniature.steps": 2}, "test")
    check_trainable(base, "fits")
    with pytest.raises(UserError, match=r"longer: training\.warmup=4001"):
        check_trainable(override(base, {"training.warmup": 4001}, "test"), "longer")
