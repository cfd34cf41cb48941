"""What a file of scores may look like, and what is wrong with it in one line that names the line."""

import json
import math
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.judging import scores
from lightning_tfm.judging.scores import aim, read_scores

HEAD = "row,seed,acc\n"
ACC = [aim("acc:higher")]


def written(folder: Path, text: str | bytes, name: str = "scores.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scores.csv", "row,seed,acc,loss\nbase,1,0.5,2\nbase,2,0.6,3\n"),
        ("scores.csv", "\ufeffloss;acc;seed;row\r\n2;0.5;1;base\r\n3;0.6;2;base\r\n"),
        ("scores.csv", "row\tseed\tmetric\tvalue\nbase\t1\tacc\t0.5\nbase\t1\tloss\t2\nbase\t2\tacc\t0.6\n"),
        ("scores.jsonl", '{"row": "base", "seed": 1, "acc": 0.5}\n\n{"row": "base", "seed": 2, "acc": 0.6}\n'),
        ("scores.jsonl", '{"row": "base", "seed": 1, "metric": "acc", "value": 0.5}\n'
                         '{"row": "base", "seed": 2, "metric": "acc", "value": 0.6}'),
    ],
    ids=["wide", "semicolons", "long", "json", "long json"],
)  # fmt: skip
def test_all_forms_are_the_same_runs(tmp_path, name, text):
    assert read_scores(written(tmp_path, text, name), ACC).of("base", "acc") == {"1": 0.5, "2": 0.6}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "base,1,0.5\nbase,2,0.5\nbase,1,0.6\n", "line 4: row 'base', seed 1 has its acc in line 2"),
        (HEAD + "base,1,good\n", "line 2: acc='good' is no number"),
        (HEAD + "base,1,1_0\n", "line 2: acc='1_0' is no number"),
        (HEAD + "base,1\n", "line 2: 2 cells, where the first line has 3"),
        (HEAD + "base,1,0.5\n,2,0.5\n", "line 3: 'row' is empty"),
        (HEAD.encode() + b"base,1,0.5\nb\xff\xfe,2,1\n", "line 3: bytes that are no text"),
        ("row,acc\nbase,1\n", "no column 'seed'; name it by --seed COLUMN"),
        ("name,seed,acc\nbase,1,1\n", "no column 'row'; name it by --row COLUMN"),
        ("row,seed,loss\nbase,1,1\n", "no column 'acc'"),
        ("row,seed,acc,acc\nbase,1,1,1\n", "column 'acc' is there twice"),
        (HEAD.replace("\n", "\r") + "base,1,0.5\r", "line 1: new-line character seen in unquoted field"),
        (HEAD, "no run has a number in acc"),
        (HEAD + "base,1,\n", "no run has a number in acc"),
    ],
)
def test_wrong_input_is_one_line_with_its_line_number(tmp_path, text, said):
    with pytest.raises(UserError, match=r"scores\.csv") as error:
        read_scores(written(tmp_path, text), ACC)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_json_that_is_none_is_refused_by_line(tmp_path):
    for line in ("[1]", "{", "[" * 100_000):
        with pytest.raises(UserError, match="line 1: no JSON object"):
            read_scores(written(tmp_path, line, "scores.jsonl"), ACC)


def test_nan_and_infinity_are_runs_that_diverged(tmp_path):
    found = read_scores(written(tmp_path, HEAD + "base,1,nan\nbase,2,-inf\nbase,3,0.5\nbase,4,1e300\n"), ACC).of(
        "base", "acc"
    )
    assert [math.isnan(x) for x in found.values()] == [True, True, False, True]


def test_seeds_are_in_the_order_of_their_numbers(tmp_path):
    found = read_scores(written(tmp_path, HEAD + "base,10,1\nbase,9,2\n"), ACC)
    assert list(found.of("base", "acc")) == ["9", "10"]


def test_a_seed_that_one_row_lacks_is_named(tmp_path):
    lines = [f"{row},{seed},0.{seed}" for row in "abc" for seed in (1, 2, 3) if (row, seed) != ("b", 2)]
    assert read_scores(written(tmp_path, HEAD + "\n".join(lines)), ACC).missing() == ["b: no seed 2; used as it is"]


def test_more_lines_than_are_read_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "MOST", 3)
    lines = [f"base,{seed},0.5\n" for seed in range(4)]
    assert len(read_scores(written(tmp_path, HEAD + "".join(lines[:3])), ACC).of("base", "acc")) == 3
    with pytest.raises(UserError, match="more than 3 lines"):
        read_scores(written(tmp_path, HEAD + "".join(lines)), ACC)
    with pytest.raises(UserError, match="line 2 is longer than"):
        read_scores(written(tmp_path, HEAD + "a" * (scores.LONGEST + 1)), ACC)


def test_a_logarithm_of_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match="line 2: acc=0 has no logarithm"):
        read_scores(written(tmp_path, HEAD + "base,1,0\n"), [aim("acc:higher:log")])


@pytest.mark.parametrize("text", ["acc", "acc:up", "acc:higher:-1", "acc:higher:nan", "acc:higher:log:x", ":higher"])
def test_a_metric_without_a_direction_or_with_no_margin_is_refused(text):
    with pytest.raises(UserError, match=f"--metric {text}: "):
        aim(text)


def test_names_of_columns_may_hold_colons_and_slashes():
    found = aim("val/acc:top5:higher:log:0.01")
    assert (found.name, found.lower_is_better, found.log, found.margin) == ("val/acc:top5", False, True, 0.01)


def test_a_name_does_nothing_in_a_terminal_a_page_a_paper_or_a_spreadsheet(tmp_path, capsys):
    evil = "=cmd|' /C calc'!A0 <script>alert(1)</script> \x1b[31m\u202e\\input{x}"
    lines = [json.dumps({"row": row, "seed": s, "acc": 0.1 * s}) for row in ("base", evil) for s in range(5)]
    path = written(tmp_path, "\n".join(lines), "scores.jsonl")
    for kind in ("text", "markdown", "csv", "json", "latex", "html"):
        assert main(["judge", str(path), "--metric", "acc:higher", "--format", kind, "--to", "-"]) == 0
        said = capsys.readouterr().out
        assert "\x1b" not in said and "\u202e" not in said, kind
        assert "<script>alert" not in said or kind in ("text", "csv", "json"), kind
        assert kind != "latex" or r"\input" not in said
        assert kind != "csv" or "\n'=cmd" in said.replace('"', "")
