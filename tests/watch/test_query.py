"""Conditions over the fields of runs: what they find, what they refuse, and that they can do nothing but compare."""

import json
import math
import time
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.fields import fields
from lightning_tfm.errors import UserError
from lightning_tfm.study.rows import apply
from lightning_tfm.watch import query
from lightning_tfm.watch.query import LONGEST, Field, find_runs
from tests.helpers.studies import SMALL, Folder
from tests.helpers.tables import read_tables

NUMBERS = {"ppl": 2.0, "bleu": None, "model.d_model": 512, "model.d_k": 64, "changed": 1.8e9, "diverged": False}
TEXTS = {"model.positions": "rotary", "row": ("A-h1", "again"), "study": ("my study",), "note": None, "seed": 7}
RUN = NUMBERS | TEXTS | {"loss": math.nan, "flops": 10**20, "model.N": 6, "dev.own:Words": 3.5, "without": ()}
OF_TEXT = ["model.positions", "row", "study", "note", "without"]
KINDS = {"changed": "time", "diverged": "truth"} | dict.fromkeys(OF_TEXT, "text")
FIELDS = {
    name: Field(name, KINDS.get(name, "number"), lambda run, name=name: run[name])  # type: ignore[misc]
    for name in RUN
}


CASES = read_tables(Path(__file__).with_name("conditions.txt"))
LONG_OR_NO_TEXT = [
    "ppl < \x00",
    "\ud800 = 3",
    "(" * 900 + "ppl" + ")" * 900,
    "not " * 480 + "ppl",
    "row = '" + "a" * LONGEST + "'",
    "ppl.a" * 300,
]


def found(text: str) -> bool:
    other = RUN | {"model.positions": "it's", "row": ("base",), "note": "odd", "ppl": 1.0}
    return RUN in find_runs(text, FIELDS, [other, RUN])[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [*((text, True) for (text,) in [*CASES["found"], ["  "]]), *((text, False) for (text,) in CASES["not found"])],
)
def test_what_a_condition_finds(text, expected):
    assert found(text) is expected


def test_runs_keep_their_order_and_each_is_found_once():
    runs = [RUN | {"ppl": value, "row": ("again", "A-h1", "base")} for value in (3.0, 1.0, 2.0)]
    assert [run["ppl"] for run in find_runs("ppl > 1 and row is not null", FIELDS, runs)[0]] == [3.0, 2.0]


@pytest.mark.parametrize(("text", "words"), CASES["wrong"])
def test_what_is_wrong_is_said_in_the_words_of_the_condition(text, words):
    with pytest.raises(UserError) as error:
        found(text)
    assert words in str(error.value)


@pytest.mark.parametrize("text", [*(text for (text,) in CASES["hostile"]), *LONG_OR_NO_TEXT])
def test_hostile_input_is_refused_and_nothing_is_run(text):
    with pytest.raises(UserError):
        found(text)


def test_a_condition_that_takes_long_is_ended(monkeypatch):
    monkeypatch.setattr(query, "SECONDS", 0.2)
    runs, began = [RUN | {"ppl": float(i)} for i in range(2000)], time.process_time()
    with pytest.raises(UserError, match=r"more than 0\.2 seconds"):
        find_runs("ppl > (select count(*) from runs a, runs b, runs c where a.ppl < b.ppl)", FIELDS, runs)
    assert time.process_time() - began < 10


def test_a_short_name_of_several_fields_is_refused():
    both = FIELDS | {"training.d_k": FIELDS["model.d_k"]}
    with pytest.raises(UserError, match=r"'d_k' may be model\.d_k or training\.d_k"):
        find_runs("d_k > 3", both, [RUN])
    assert find_runs("model.d_k > 3", both, [RUN]) == ([RUN], [FIELDS["model.d_k"]])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("results"))
    folder.fill(folder.table("table", ["base", "A-h1", "A-h4"], seeds=[1, 2]), ["finished"] * 4 + ["running", "failed"])
    folder.run(apply(SMALL, folder.table("other", ["A-h1"], seeds=[5]).rows[0], 5))
    folder.run(apply(SMALL, folder.table("other", ["A-h1"], seeds=[5]).rows[0], 9))
    return folder


def asked(made, capsys, *words: str) -> list[list[str]]:
    assert main(["runs", "query", *words, "--out", str(made.root)]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_the_command_prints_the_runs_found_with_the_fields_named(made, capsys):
    seen = Board(made.root, every=0).look()
    head, *lines, last = asked(made, capsys, "model.h = 1 and ppl < 9", "--columns", "lr_factor, changed")
    names = {view.name for view in seen.runs.values() if view.experiment["model"]["h"] == 1}
    assert {line[0] for line in lines} == names and len(names) == 4 and last == ["4", "of", "8", "runs"]
    assert head == "run state ppl bleu study row seed model.h training.lr_factor changed".split()
    assert asked(made, capsys, "state = 'failed' and step > 0")[-1] == ["1", "of", "8", "runs"]
    assert asked(made, capsys, "study is null")[1][0] in names, "a run of no study"
    finished = [view for view in seen.runs.values() if view.state == "finished"]
    assert len(asked(made, capsys, "state = 'finished' and best_ppl > 0 and loss > 0")) == len(finished) + 2
    assert asked(made, capsys, "ppl > 1e9") == [["none", "of", "8", "runs"]]
    assert main(["runs", "query", "study = 'table' and row = 'base'", "--json", "--out", str(made.root)]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert sorted((one["seed"], *one["row"], *one["study"]) for one in plain) == [
        (1, "base", "table"),
        (2, "base", "table"),
    ]


def test_every_field_may_be_named_in_a_condition(made):
    seen = Board(made.root, every=0).look()
    known, runs = fields(seen), list(seen.runs.values())
    assert len(known) > 100
    for name in known:
        found, named = find_runs(f"{name} is null or {name} is not null", known, runs)
        assert found == runs and named == [known[name]], name


def test_what_a_run_did_not_know_yet_is_at_its_default(made):
    runs = Board(made.root, every=0).look().runs.values()
    run = next(view for view in runs if view.state == "finished")
    known = fields(Board(made.root, every=0).look())
    assert find_runs("attention = 'softmax'", known, [run])[0] == [run]
    del run.experiment["model"]["attention"]
    assert find_runs("attention = 'softmax'", known, [run])[0] == [run]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["query"], "runs query needs a condition: 'h = 8 and ppl < 2.2'"),
        (["query", "h = = 8"], "for example"),
        (["query", "heads = 8"], "no run has a field 'heads'"),
        (["query", "positions == rotary"], "a text is written in single quotes: 'rotary'"),
        (["query", "h = 8", "--columns", "lr_facto"], "did you mean 'lr_factor'?"),
        (["list", "--columns", "h"], "--columns"),
    ],
)
def test_the_command_names_mistakes(made, capsys, words, said):
    assert main(["runs", *words, "--out", str(made.root)]) == 2
    assert said in capsys.readouterr().err
