"""`plan`: what a table, a grid and a search would run, before anything runs."""

from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from tests.tiny import TINY, write_corpus

HEAD = "name: small\nmethod: {method}\nmetric: {{name: dev/ppl, goal: minimize}}\n"
HEAD += 'command: [lightning-tfm, fit, "${{args}}"]\n'
TABLE = HEAD.format(method="grid") + "parameters:\n  row: {values: [base, A-h1]}\n  seed: {values: [1, 2]}\n"
GRID = HEAD.format(method="grid") + "parameters:\n  model.h: {values: [1, 2]}\n  model.N: {values: [1, 2]}\n"
SEARCH = HEAD.format(method="random") + "parameters:\n  model.d_ff: {distribution: int_uniform, min: 16, max: 512}\n"


def plan(tmp_path: Path, sweep: str, *more: str) -> int:
    (tmp_path / "small.yaml").write_text(sweep)
    sizes = TINY | {"data.folder": str(write_corpus(tmp_path / "text")), "out": str(tmp_path / "out")}
    return main(["plan", str(tmp_path / "small.yaml"), *(f"--{k}={v}" for k, v in sizes.items()), *more])


@pytest.mark.parametrize(
    ("sweep", "more", "words"),
    [
        (TABLE, [], ["base", "A-h1", "seed 2", "4 runs: 0 there, 4 to run", "time unknown"]),
        (GRID, ["--rate=1e9"], ["t0003", "4 runs: 0 there, 4 to run", "at 1.00e+09 FLOP/s each (as stated)"]),
        (SEARCH, ["--trials=7"], ["7 more to be proposed", "as drawn from the space", "7 runs: 0 there, 7 to run"]),
    ],
)
def test_what_would_run(tmp_path: Path, capsys, sweep: str, more: list[str], words: list[str]) -> None:
    assert plan(tmp_path, sweep, *more) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in words), said
    assert not (tmp_path / "out" / "runs").exists() and not (tmp_path / "out" / "studies").exists()


def test_a_search_s_options_are_refused_for_a_table(tmp_path: Path, capsys) -> None:
    assert plan(tmp_path, TABLE, "--trials=3") == 2
    assert "is a table: all its rows run, to their end" in capsys.readouterr().err
