"""Conditions over the fields of runs: what they find, what they refuse, and that nothing in them is ever run."""

import json
import math

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.fields import fields
from lightning_tfm.errors import UserError
from lightning_tfm.study.rows import apply
from lightning_tfm.watch.query import LONGEST, Field, parse
from tests.dashboard.made import BASE, Folder

NUMBERS = {"ppl": 2.0, "bleu": None, "model.d_model": 512, "model.d_k": 64, "changed": 1.8e9, "diverged": False}
TEXTS = {"model.positions": "rotary", "row": ("A-h1", "again"), "study": ("my study",), "note": None, "seed": 7}
RUN = NUMBERS | TEXTS | {"loss": math.nan, "without": "none"}
OF_TEXT = ["model.positions", "row", "study", "note", "without"]
KINDS = {"changed": "time", "diverged": "truth"} | dict.fromkeys(OF_TEXT, "text")
FIELDS = {
    name: Field(name, KINDS.get(name, "number"), lambda run, name=name: run[name])  # type: ignore[misc]
    for name in RUN
}


def found(text: str) -> bool:
    other = RUN | {"model.positions": "learned", "row": ("base",), "note": "odd"}
    return parse(text, FIELDS, [RUN, other])(RUN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.d_model > 64 and positions == rotary and ppl < 2.2", True),
        ("d_model>512", False),
        ("d_model >= 512.0", True),
        ("1 < ppl <= 2", True),
        ("1 < ppl < 2", False),
        ("2.5 > ppl", True),
        ("2.5 < ppl", False),
        ("-3 < ppl and ppl != +1", True),
        ("ppl in (1, 2, 3)", True),
        ("ppl not in [2.0]", False),
        ("d_k < d_model", True),
        ("d_k == d_model", False),
        ("positions != 'rotary'", False),
        ("positions in (rotary, learned)", True),
        ("row == A-h1", True),
        ("row == again", True),
        ("row != again", False),
        ("row != base", True),
        ("h1 in row", True),
        ("'H1' in row", True),
        ("h2 in row", False),
        ("h2 not in row", True),
        ("study == 'my study'", True),
        ("diverged", False),
        ("not diverged", True),
        ("diverged == false or diverged == True", True),
        ("changed > '2020-01-31'", True),
        ("changed < '2020-01-31 12:00'", False),
        ("bleu == none", True),
        ("bleu != None", False),
        ("note == none", True),
        ("note in (none, odd)", True),
        ("note not in (none, odd)", False),
        ("bleu in (none, 2)", True),
        ("without in (none, none)", True),
        ("without not in (none, none)", False),
        ("loss != 1", False),
        ("not loss > 1", False),
        ("d_model > loss", False),
        ("bleu > 3", False),
        ("not bleu > 3", False),  # nothing is known of it
        ("not (bleu > 3 and ppl < 9)", False),
        ("not (bleu > 3 and ppl > 9)", True),
        ("bleu > 3 or ppl < 9", True),
        ("note == odd", False),
        ("note != odd", False),
        ("( ppl\n < 3 )", True),
    ],
)
def test_what_a_condition_finds(text, expected):
    assert found(text) is expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("d_modl > 64", "no run has a field 'd_modl': did you mean 'd_model'?"),
        ("model.d_modl > 64", "did you mean 'model.d_model'?"),
        ("positions == rotory", "no run has the model.positions 'rotory': did you mean 'rotary'?"),
        ("positions in (rotary, lerned)", "did you mean 'learned'?"),
        ("positions > 3", "'positions' is text"),
        ("ppl == high", "no run has a field 'high'"),
        ("ppl < 'high'", "\"'high'\" is not what ppl holds: a number"),
        ("ppl < row", "'row' is not a number, as ppl is"),
        ("ppl < none", "not a value to compare by order"),
        ("diverged == 3", "'3' is not what diverged holds: true or false"),
        ("diverged < true", "true or false: compare it by == or !="),
        ("changed > 'yesterday'", "a time"),
        ("changed > 2026-01-31", "a date, need quotes"),
        ("study == 4x", "need quotes"),
        ("row == D-eps0.0", "need quotes"),
        ("ppl = 2", "write == in place of ="),
        ("ppl < 2 && d_k > 3", "write and in place of &&"),
        ("ppl < 2 || d_k > 3", "write or in place of ||"),
        ("ppl <> 2", "write != in place of <>"),
        ("ppl is 2", "write =="),
        ("ppl", "compare ppl with something"),
        ("ppl in 3", "not a field"),
        ("3 in ppl", "is neither a text nor a list"),
        ("3 < 4", "'3' is not a field"),
        ("", "cannot be read"),
        ("ppl <", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_condition(text, words):
    with pytest.raises(UserError) as error:
        found(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch /tmp/pwned')",
        "ppl < __import__('os').getpid()",
        "(lambda: 3)() < ppl",
        "().__class__.__bases__",
        "row.__class__ == str",
        "ppl.real < 3",
        "[x for x in row]",
        "ppl < 9**9**9**9",
        "ppl < 1 + 1",
        "ppl := 3",
        "f'{ppl}' == row",
        "row == b'A'",
        "ppl < 3j",
        "row[0] == base",
        "ppl < 3 if ppl else 4",
        "...",
        "True",
        "ppl < 2; import os",
        "ppl < \x00",
        "\ud800 == 3",
        "9" * 1500 + " < ppl < " + "9" * 10 + "x",
        "(" * 900 + "ppl" + ")" * 900,
        "not " * 480 + "ppl",
        "-" * 1900 + "1 < ppl",
        "row == " + "a" * LONGEST,
        "ppl.a" * 300,
        "await ppl",
        "yield",
        "*row",
        "row == (yield)",
        "{**row}",
        "print",
    ],
)
def test_hostile_input_is_refused_and_nothing_is_run(text, tmp_path):
    with pytest.raises(UserError):
        found(text)


def test_a_short_name_of_several_fields_is_refused():
    both = FIELDS | {"training.d_k": FIELDS["model.d_k"]}
    with pytest.raises(UserError, match=r"'d_k' may be model\.d_k or training\.d_k"):
        parse("d_k > 3", both, [RUN])
    assert parse("model.d_k > 3", both, [RUN])(RUN)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("results"))
    folder.fill(folder.table("table", ["base", "A-h1", "A-h4"], seeds=[1, 2]), ["finished"] * 4 + ["running", "failed"])
    folder.run(apply(BASE, folder.table("other", ["A-h1"], seeds=[5]).rows[0], 5))
    folder.run(apply(BASE, folder.table("other", ["A-h1"], seeds=[5]).rows[0], 9))
    return folder


def asked(made, capsys, *words: str) -> list[list[str]]:
    assert main(["runs", "query", *words, "--out", str(made.root)]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_the_command_prints_the_runs_found_with_the_fields_named(made, capsys):
    seen = Board(made.root, every=0).look()
    head, *lines, last = asked(made, capsys, "model.h == 1 and ppl < 9", "--columns", "lr_factor, changed")
    names = {view.name for view in seen.runs.values() if view.experiment["model"]["h"] == 1}
    assert {line[0] for line in lines} == names and len(names) == 4 and last == ["4", "of", "8", "runs"]
    assert head == "run state ppl bleu study row seed model.h training.lr_factor changed".split()
    assert asked(made, capsys, "state == failed and step > 0")[-1] == ["1", "of", "8", "runs"]
    assert asked(made, capsys, "study == none")[1][0] in names, "a run of no study"
    finished = [view for view in seen.runs.values() if view.state == "finished"]
    assert len(asked(made, capsys, "state == finished and best_ppl > 0 and loss > 0")) == len(finished) + 2
    assert asked(made, capsys, "ppl > 1e9") == [["none", "of", "8", "runs"]]
    assert main(["runs", "query", "study == table and row == base", "--json", "--out", str(made.root)]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert sorted((one["seed"], *one["row"], *one["study"]) for one in plain) == [
        (1, "base", "table"),
        (2, "base", "table"),
    ]


def test_what_a_run_did_not_know_yet_is_at_its_default(made):
    runs = Board(made.root, every=0).look().runs.values()
    run = next(view for view in runs if view.state == "finished")
    known = fields(Board(made.root, every=0).look())
    assert parse("attention == softmax", known, [run])(run)
    del run.experiment["model"]["attention"]
    assert parse("attention == softmax", known, [run])(run)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["query"], "runs query needs a condition: 'h == 8 and ppl < 2.2'"),
        (["query", "h = 8"], "write == in place of ="),
        (["query", "heads == 8"], "no run has a field 'heads'"),
        (["query", "h == 8", "--columns", "lr_facto"], "did you mean 'lr_factor'?"),
        (["list", "--columns", "h"], "--columns"),
    ],
)
def test_the_command_names_mistakes(made, capsys, words, said):
    assert main(["runs", *words, "--out", str(made.root)]) == 2
    assert said in capsys.readouterr().err
