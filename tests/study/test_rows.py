"""Rows: the paper's 20, and what a row may say."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.config import Experiment, Miniature, to_dict, training_hash, training_identity
from lightning_tfm.errors import UserError
from lightning_tfm.study.rows import Fingerprints, all_rows, apply, find_row, load_rows
from lightning_tfm.study.user_classes import user_classes

MINIATURE = Miniature(width=8, depth=2, steps=100)
BASE = Experiment(miniature=MINIATURE)
PRINTS = Fingerprints("train text", "dev set")

PAPER = """row,N,d_model,d_ff,h,d_k,d_v,P_drop,eps_ls,positions,steps,PPL,BLEU,params
base,6,512,2048,8,64,64,0.1,0.1,sinusoidal,100000,4.92,25.8,65
A-h1,6,512,2048,1,512,512,0.1,0.1,sinusoidal,100000,5.29,24.9,
A-h4,6,512,2048,4,128,128,0.1,0.1,sinusoidal,100000,5.00,25.5,
A-h16,6,512,2048,16,32,32,0.1,0.1,sinusoidal,100000,4.91,25.8,
A-h32,6,512,2048,32,16,16,0.1,0.1,sinusoidal,100000,5.01,25.4,
B-dk16,6,512,2048,8,16,64,0.1,0.1,sinusoidal,100000,5.16,25.1,58
B-dk32,6,512,2048,8,32,64,0.1,0.1,sinusoidal,100000,5.01,25.4,60
C-N2,2,512,2048,8,64,64,0.1,0.1,sinusoidal,100000,6.11,23.7,36
C-N4,4,512,2048,8,64,64,0.1,0.1,sinusoidal,100000,5.19,25.3,50
C-N8,8,512,2048,8,64,64,0.1,0.1,sinusoidal,100000,4.88,25.5,80
C-dmodel256,6,256,2048,8,32,32,0.1,0.1,sinusoidal,100000,5.75,24.5,28
C-dmodel1024,6,1024,2048,8,128,128,0.1,0.1,sinusoidal,100000,4.66,26.0,168
C-dff1024,6,512,1024,8,64,64,0.1,0.1,sinusoidal,100000,5.12,25.4,53
C-dff4096,6,512,4096,8,64,64,0.1,0.1,sinusoidal,100000,4.75,26.2,90
D-Pdrop0.0,6,512,2048,8,64,64,0.0,0.1,sinusoidal,100000,5.77,24.6,
D-Pdrop0.2,6,512,2048,8,64,64,0.2,0.1,sinusoidal,100000,4.95,25.5,
D-eps0.0,6,512,2048,8,64,64,0.1,0.0,sinusoidal,100000,4.67,25.3,
D-eps0.2,6,512,2048,8,64,64,0.1,0.2,sinusoidal,100000,5.47,25.7,
E-learned,6,512,2048,8,64,64,0.1,0.1,learned,100000,4.92,25.7,
big,6,1024,4096,16,64,64,0.3,0.1,sinusoidal,300000,4.33,26.4,213
"""
"""Table 3 with its blanks filled in, typed from the paper independently of experiments/table3.yaml"""


def test_the_twenty_rows_are_the_papers():
    rows, printed = all_rows(), list(csv.DictReader(io.StringIO(PAPER)))
    assert list(rows) == [line["row"] for line in printed]
    for line in printed:
        row, e = rows[line["row"]], apply(Experiment(), rows[line["row"]])
        m, t = e.model, e.training
        sizes = (m.N, m.d_model, m.d_ff, m.h, m.d_k, m.d_v, m.P_drop, t.eps_ls, m.positions, t.steps)
        assert list(map(str, sizes)) == [line[k] for k in list(line)[1:11]], row.name
        assert (row.paper.ppl, row.paper.bleu) == (float(line["PPL"]), float(line["BLEU"]))
        assert row.paper.params == (int(line["params"]) if line["params"] else None)
        assert row.group.partition(":")[0] == row.name.partition("-")[0]


def test_all_rows_fit_the_shipped_miniature_and_differ():
    small = [apply(BASE, row, 1).scaled(row.name) for row in all_rows().values()]
    assert len({training_hash(training_identity(e, "t", {})) for e in small}) == 20


def test_a_row_changes_nothing_but_what_it_declares():
    for row in all_rows().values():
        before, after = to_dict(BASE), to_dict(apply(BASE, row, 7))
        changed = {f"{s}.{k}" for s in before for k in before[s] if before[s][k] != after[s][k]}
        assert changed == set(row.on(BASE).change) | {"training.seed"}


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X: {group: X, chnge: {}}", r"mine\.yaml:1: row 'X': unknown key 'chnge' \(value {}\): did you mean 'change'"),
        ("X: {group: X, change: {model.heads: 4}}", r"mine\.yaml:1: row 'X': unknown key 'model\.heads'"),
        ("X: {group: X, change: {model.h: four}}", "row 'X': model.h='four': expected a whole number"),
        ("X: {group: X, change: {model.norm: pr}}", "did you mean 'pre'"),
        ("X: {group: X, change: {model.positions: learnt}}", "did you mean 'learned'"),
        ("X: {group: X, change: {evaluation.beam: 1}}", "'evaluation.beam'.*same for all rows"),
        ("X: {group: X, change: {training.seed: 2}}", "'training.seed'.*same for all rows"),
        ("X: {group: X, change: {}}\nX: {group: X, change: {}}", "mine.yaml:2: 'X' appears twice, first on line 1"),
        ("X: {group: X}", "row 'X': the key 'change' is missing"),
        ("X: {change: {}}", "row 'X': the key 'group' is missing"),
        ("X: 3", "row 'X': 3: expected the keys group, change"),
        ("X: {group: X, change: {}, PPL: low}", "PPL='low': expected a number"),
        ("X: {group: X, change: {}, elsewhere: 25.8}", "elsewhere=25.8: expected text"),
        ("X: {group: X, change: {}, elsewhere: 'two\n\n  lines'}", "expected one line of words"),
        ("X: {group: X, change: {}, params: 6.5}", "params=6.5: expected a whole number"),
        ("X: {group: X, change: {}", "mine.yaml:1: not YAML"),
        ("- X", "expected keys and values"),
        ("1: {group: X, change: {}}", "mine.yaml:1: YAML does not read the key '1' as text; put it in quotes"),
        ("", "holds no rows"),
        (b"ok: 1\nX: \xff", "mine.yaml:2: not UTF-8"),
    ],
)
def test_malformed_rows(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load_rows(write(tmp_path, text))


def test_a_row_of_ones_own_is_one_line(tmp_path):
    path = write(tmp_path, "X-deep: {group: X, change: {model.N: 12, training.adam_eps: 1e-8}}")
    row = find_row(all_rows([path]), "X-deep")
    assert apply(BASE, row).model.N == 12 and apply(BASE, row).training.adam_eps == 1e-8
    assert (row.paper.ppl, row.paper.bleu, row.paper.params) == (None, None, None)


def test_a_name_that_is_taken(tmp_path):
    with pytest.raises(UserError, match=r"'base' is already declared in .*table3\.yaml:\d+"):
        all_rows([write(tmp_path, "base: {group: X, change: {}}")])


def test_unknown_row_and_missing_file(tmp_path):
    with pytest.raises(UserError, match="no row 'A-h2': near it: A-h32, A-h4, A-h1, A-h16"):
        find_row(all_rows(), "A-h2")
    with pytest.raises(
        UserError, match=r"no such file: experiments/tabel3.yaml.*did you mean 'experiments/table3.yaml'"
    ):
        load_rows("experiments/tabel3.yaml")


def test_the_source_of_a_users_class_is_part_of_the_identity(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_parent.py").write_text("class Parent:\n    pass\n")
    (tmp_path / "own_scheme.py").write_text("from own_parent import Parent\n\n\nclass Mine(Parent):\n    pass\n")
    mine = replace(BASE, model=replace(BASE.model, positions="own_scheme.Mine"))
    first = user_classes(mine)
    assert list(first) == ["own_scheme.Mine"] and user_classes(BASE) == {}
    (tmp_path / "own_parent.py").write_text("class Parent:\n    clip = 8\n")
    assert user_classes(mine) != first
    for wrong, message in (("own_scheme.Yours", "cannot import it"), ("no_such_module.X", "cannot import it")):
        with pytest.raises(UserError, match=message):
            user_classes(replace(BASE, model=replace(BASE.model, positions=wrong)))
