"""What nobody means to give: one line, exit code 2, in a moment, whatever it is."""

import json
import os
import sys
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, override
from lightning_tfm.errors import UserError
from lightning_tfm.model.causality_check import check_own_classes
from lightning_tfm.yaml_files import read_word
from tests.helpers.studies import Folder

NINES, LONG = "9" * 5000, "a" * 300
PAIRS = "".join(f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(9))}}}\n" for i in range(1, 30))
MERGED = "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
FIT = "fit --config e.yaml"
MINIATURE = "fit --config miniature.yaml"
DEEP = "e.yaml: more than 50 levels or 100,000 values"
FILES = [
    ("model: &a\n  b: *a", DEEP),
    ("&a\nmodel: *a", DEEP),
    ("rows: &a [*a]", DEEP),
    (f"model: {'[' * 3000}{']' * 3000}", DEEP),
    (f"model: {'{a: ' * 60}1{'}' * 60}", DEEP),
    (f"a0: &a0 {{x: 1}}\n{PAIRS}", DEEP),
    (f"a0: &a0 {{x: 1}}\n{MERGED}", DEEP),
    (f"model:\n  N: {NINES}", "e.yaml:2: not YAML: a number of 5000 digits"),
    (f"training: {{lr_factor: {'9' * 400}}}", "e.yaml:1: not YAML: a number of 400 digits"),
    ('rows: ["\\e[31m.yaml"]', "e.yaml: '\\x1b[31m.yaml' holds a control character"),
    ('rows: ["\\ud800.yaml"]', "e.yaml: '\\ud800.yaml' holds a control character"),
    ("model: {N: 2026-13-45}", "e.yaml: not YAML: month must be in 1..12"),
]
SHORT = {"NINES": NINES, "LONG": LONG, "ESC": "\x1b", "DEEP": ".".join(["x"] * 3000)}
LINES = Path(__file__).with_name("hostile.txt").read_text().splitlines()
ARGUMENTS = [line.format(**SHORT).split(" | ") for line in LINES if not line.startswith("#")]
CLASSES = """
import torch
from lightning_tfm.model.feed_forward import FeedForward
from lightning_tfm.model.norms import Norm

class NoArguments(Norm):
    def __init__(self): super().__init__()
    def forward(self, x): return x

class Narrow(Norm):
    def __init__(self, width, eps): super().__init__()
    def forward(self, x): return x[..., :1]

class Silent(Norm):
    def __init__(self, width, eps): super().__init__()
    def forward(self, x): return None

class Two(FeedForward):
    def __init__(self, d_model, d_ff): super().__init__(d_model)
    def forward(self, x): return x

class First(FeedForward):
    def forward(self, x): return x[..., :1]

class Wide(FeedForward):
    def forward(self, x): return torch.cat([x, x], -1)

class Fine(FeedForward):
    def forward(self, x): return x
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "miniature.yaml").write_text("miniature: {width: 8, depth: 2, steps: 50}\ntraining: {warmup: 300}\n")
    return tmp_path


def refused(arguments: str, capsys) -> str:
    """What the one line on standard error says."""
    assert main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("lightning-tfm: ") and said.count("\n") == 1
    return said


@pytest.mark.parametrize(("content", "words"), FILES)
def test_a_file_that_no_person_writes_is_refused_in_a_line(here, capsys, content, words):
    (here / "e.yaml").write_text(content)
    assert words in refused(FIT, capsys)
    assert words in refused("sweep e.yaml", capsys)


def test_a_file_that_repeats_itself_as_people_do_is_read(here, capsys):
    (here / "e.yaml").write_text("training: &t {warmup: 8}\nmodel:\n  N: 2\n")
    assert main(["fit", "--config", "e.yaml", "--print_config"]) == 0
    assert read_word(int, "010") == 10


@pytest.mark.parametrize(("arguments", "words"), ARGUMENTS, ids=[words for _, words in ARGUMENTS])
def test_an_argument_that_no_person_gives_is_refused_in_a_line(here, capsys, arguments, words):
    assert words in refused(arguments, capsys)
    assert sorted(path.name for path in here.iterdir()) == ["dangling", "loop", "miniature.yaml"]


STUDIES = [
    (lambda plain: json.dumps(plain | {"rows": []}).encode(), "the study has no rows"),
    (
        lambda plain: json.dumps(plain | {"seeds": [*range(200_000)]}).encode(),
        "200,000 seeds; at most 10,000 are taken",
    ),
    (lambda plain: b"{\x80}", "not a study definition (UnicodeDecodeError"),
    (lambda plain: b"[" * 100_000, "not a study definition (RecursionError"),
    (lambda plain: json.dumps(plain | {"title": "\x1b[31m"}).encode(), "holds a control character"),
    (
        lambda plain: json.dumps(plain["base"]["model"].update(target_spaces=10**400) or plain).encode(),
        "larger than any number used in computations here",
    ),
]


@pytest.mark.parametrize(("damaged", "words"), STUDIES, ids=[words for _, words in STUDIES])
def test_a_study_that_no_program_writes_is_refused_in_a_line(tmp_path, capsys, damaged, words):
    path = tmp_path / "studies" / "s" / "study.json"
    Folder(tmp_path).table("s", ["base", "A-h1"], [1])
    path.write_bytes(damaged(json.loads(path.read_bytes())))
    for verb in ("table", "report"):
        assert words in refused(f"{verb} s --out {tmp_path}", capsys)
    assert main(["status", "--out", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert words in listed and "\x1b" not in listed


def test_a_rank_that_nobody_started_is_refused(here, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    assert "the environment holds RANK=1" in refused(MINIATURE, capsys)
    assert "unset RANK" in refused("sweep sweeps/table3.yaml", capsys)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert "lacks WORLD_SIZE, LOCAL_WORLD_SIZE: unset it" in refused(MINIATURE, capsys)


@pytest.mark.parametrize("verb", ["fit --config x.yaml", "draw", "doctor", "translate a"])
def test_a_working_directory_that_was_removed_is_said(here, capsys, verb):
    gone = here / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert "the working directory was removed" in refused(verb, capsys)


@pytest.mark.parametrize(
    ("field", "name", "words"),
    [
        ("norm_kind", "NoArguments", "TypeError: NoArguments.__init__() takes 1 positional argument but 3 were given"),
        ("norm_kind", "Narrow", "Narrow makes (3, 7, 1) of (3, 7, 12): the same shape is wanted"),
        ("norm_kind", "Silent", "Silent makes NoneType of (3, 7, 12)"),
        ("feed_forward", "Two", "TypeError: Two.__init__() missing 1 required positional argument: 'd_ff'"),
        ("feed_forward", "First", "First makes (3, 7, 1) of (3, 7, 12)"),
        ("feed_forward", "Wide", "Wide makes (3, 7, 24) of (3, 7, 12)"),
        ("feed_forward", "Fine", ""),
    ],
)
def test_a_class_that_cannot_be_made_or_changes_the_shape_is_refused_before_the_first_step(
    tmp_path, monkeypatch, field, name, words
):
    (tmp_path / "hostile_own.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(tmp_path)
    sizes = {"model.N": 1, "model.d_model": 12, "model.d_ff": 8, "model.h": 2, "model.d_k": 6, "model.d_v": 6}
    e = override(Experiment(), sizes | {f"model.{field}": f"hostile_own.{name}"}, "here")
    try:
        check_own_classes(e.model)
        assert not words
    except UserError as error:
        assert words and words in str(error) and str(error).startswith(f"model.{field}='hostile_own.{name}': ")
    finally:
        sys.modules.pop("hostile_own")
