"""Mistakes that can be known beforehand: exit code 2, the remedy in words, nothing written, nothing heavy imported.

A new command, option or field adds its lines to mistakes.txt.
"""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
import yaml

from lightning_tfm.cli.main import VERBS, main
from lightning_tfm.config import Evaluation, Experiment, override
from lightning_tfm.errors import UserError
from lightning_tfm.queue import resources
from lightning_tfm.runs.outcome import exit_code_of_body
from lightning_tfm.study import preflight
from lightning_tfm.study.preflight import TOKENIZERS, check_trainable
from lightning_tfm.study.sweeps import read_search

ROOT = Path(__file__).parents[1]


def read(text: str) -> list[tuple[str, str, str]]:
    """Command, content of e.yaml, words of the message."""
    lines = [line.split(" | ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(command, "".join(file).replace("\\n", "\n"), words) for command, *file, words in lines]


AT_ONCE, LATER = map(read, (ROOT / "tests/mistakes.txt").read_text(encoding="utf-8").split("# --- found later ---\n"))
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
    monkeypatch.setattr(resources, "visible_gpus", lambda: [])
    monkeypatch.setattr(resources, "FOREIGN_GPUS", ())


@pytest.mark.parametrize(("line", "file", "words"), AT_ONCE + LATER)
def test_exit_code_and_words(line, file, words, tmp_path, monkeypatch, capsys):
    (tmp_path / "mistaken.py").write_text(CLASSES)
    (tmp_path / "e.yaml").write_text(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert words in said and said.startswith("lightning-tfm: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.yaml", "mistaken.py"], "nothing was prepared"


def test_every_verb_has_its_lines():
    """A new verb adds some: what it is given wrongly, and what it says."""
    lines = [line for line, *_ in AT_ONCE + LATER]
    assert len(lines) > 190
    counts = {verb: sum(line.split()[0] == verb for line in lines) for verb in VERBS}
    assert {verb for verb, count in counts.items() if not count} == set()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UserError("give --training.tokens 9"), 2, ""),
        (
            FloatingPointError("the loss is nan at step 3"),
            78,
            "nan_loss: FloatingPointError: the loss is nan at step 3",
        ),
        (OSError(errno.ENOSPC, "No space left", "x"), 79, "disk_full: OSError: [Errno 28] No space left: 'x'"),
        (MemoryError("9 GiB"), 77, "out_of_memory: MemoryError: 9 GiB"),
        (KeyError("x"), 1, "Traceback"),
    ],
)
def test_what_has_a_name_ends_in_a_line_and_only_the_unexpected_in_a_traceback(error, code, words, capsys):
    def fail():
        raise error

    endings = []
    assert exit_code_of_body(fail, endings.append) == code
    said = capsys.readouterr().err
    assert words in said and ("Traceback" in said) == (words == "Traceback") and len(endings) == 1


def test_a_full_disk_is_said_by_every_verb(monkeypatch, capsys, tmp_path):
    def full(*anything):
        raise OSError(errno.ENOSPC, "No space left on device", "there/store")

    monkeypatch.setattr("lightning_tfm.cli.show.runs._act", full)
    assert main(["runs", "list", "--out", str(tmp_path)]) == 79
    assert "no space left on the disk (there/store); free some" in capsys.readouterr().err

    def refuse(*given):
        raise PermissionError(13, "denied", "x")

    monkeypatch.setattr("lightning_tfm.study.settings.check_ranges", refuse)
    assert main(["fit", "--out", str(tmp_path)]) == 2
    assert "lightning-tfm: x: denied" in capsys.readouterr().err


def test_no_message_about_a_sweep_file_has_words_of_python(tmp_path):
    """Every value of both files in turn replaced by values of other kinds."""
    sweep = yaml.safe_load((ROOT / "sweeps" / "search.yaml").read_text())
    beside = {
        "sampler": "tpe",
        "seed": 0,
        "trials": 5,
        "constraints": {"parameters": 9.0},
        "objectives": {"dev/ppl": "x"},
    }
    wrong = ["x", 3, -1, 1.5, True, None, [], [[]], {}, {"a": 1}, float("nan")]
    said = set()
    for where, content in (("e.yaml", sweep), ("e.study.yaml", beside)):
        for path in paths(content):
            for value in wrong:
                (tmp_path / "e.yaml").write_text(yaml.safe_dump(sweep))
                (tmp_path / where).write_text(yaml.safe_dump(put(content, path, value)))
                try:
                    read_search(tmp_path / "e.yaml")
                except UserError as error:
                    said.add(str(error))
    assert len(said) > 100
    assert not [text for text in said if re.search(r"Input should|typing|Literal|Union|NoneType|<class", text)]


def paths(content: object, above: tuple = ()):
    if isinstance(content, dict):
        for key, value in content.items():
            yield (*above, key)
            yield from paths(value, (*above, key))


def put(content: dict, path: tuple, value: object) -> dict:
    first, *rest = path
    return content | {first: put(content[first], tuple(rest), value) if rest else value}


ALL_AT_ONCE = """
import sys
from lightning_tfm.cli.main import main
from lightning_tfm.queue import resources
resources.visible_gpus = lambda: []
resources.FOREIGN_GPUS = ()
heavy = "torch lightning optuna sentencepiece wandb scipy sacrebleu rich".split()
for line in {lines!r}:
    assert main(line.split()) == 2, line
    found = set(heavy) & set(sys.modules)
    assert not found, (line, found)
"""


def test_nothing_heavy_is_imported_for_a_mistake(tmp_path):
    lines = [line for line, file, _ in AT_ONCE if not file and "e.yaml" not in line]
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | {"PYTHONPATH": str(ROOT)}
    code = ALL_AT_ONCE.format(lines=lines)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("lightning-tfm: ") >= len(lines)


def test_tokenizers_are_sacrebleus():
    assert set(TOKENIZERS) == set(sacrebleu.BLEU.TOKENIZERS)


def test_a_tokenizer_that_needs_a_package(monkeypatch):
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    preflight.check_scoring(Evaluation(bleu_tokenize="intl"))
    with pytest.raises(UserError, match=r"needs: pip install 'sacrebleu\[ko\]'"):
        preflight.check_scoring(Evaluation(bleu_tokenize="ko-mecab"))


def test_a_gpu_that_is_hidden_or_that_torch_was_built_without(monkeypatch):
    from lightning_tfm.config import Hardware

    asked = Hardware(accelerator="gpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES='' hides them"):
        resources.check_accelerator(asked)
    monkeypatch.setattr(resources, "visible_gpus", lambda: ["0"])
    monkeypatch.setattr(resources, "version", lambda name: "2.13.0+cpu")
    with pytest.raises(UserError, match=r"torch 2\.13\.0\+cpu is built without CUDA"):
        resources.check_accelerator(asked)
    monkeypatch.setattr(resources, "version", lambda name: "2.13.0")
    resources.check_accelerator(asked)
    monkeypatch.setattr(resources, "visible_gpus", lambda: [])
    resources.check_accelerator(Hardware(accelerator="auto"))


def test_a_warm_up_as_long_as_the_run_reaches_its_peak():
    base = override(Experiment(), {"training.steps": 8000, "miniature.steps": 2}, "test")
    check_trainable(base, "fits")
    with pytest.raises(UserError, match=r"longer: training\.warmup=4001"):
        check_trainable(override(base, {"training.warmup": 4001}, "test"), "longer")
