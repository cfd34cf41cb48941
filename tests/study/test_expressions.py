"""Rows relative to the base they are laid on: exact, refused where they do not come out, and absolute in study.json."""

import json
from dataclasses import replace

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, Miniature, Model
from lightning_tfm.errors import UserError
from lightning_tfm.study.expressions import resolved
from lightning_tfm.study.rows import Fingerprints, Paper, Row, all_rows, apply, load_rows
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as, save

PRINTED = {
    "base": {},
    "A-h1": {"model.h": 1, "model.d_k": 512, "model.d_v": 512},
    "A-h4": {"model.h": 4, "model.d_k": 128, "model.d_v": 128},
    "A-h16": {"model.h": 16, "model.d_k": 32, "model.d_v": 32},
    "A-h32": {"model.h": 32, "model.d_k": 16, "model.d_v": 16},
    "B-dk16": {"model.d_k": 16},
    "B-dk32": {"model.d_k": 32},
    "C-N2": {"model.N": 2},
    "C-N4": {"model.N": 4},
    "C-N8": {"model.N": 8},
    "C-dmodel256": {"model.d_model": 256, "model.d_k": 32, "model.d_v": 32},
    "C-dmodel1024": {"model.d_model": 1024, "model.d_k": 128, "model.d_v": 128},
    "C-dff1024": {"model.d_ff": 1024},
    "C-dff4096": {"model.d_ff": 4096},
    "D-Pdrop0.0": {"model.P_drop": 0.0},
    "D-Pdrop0.2": {"model.P_drop": 0.2},
    "D-eps0.0": {"training.eps_ls": 0.0},
    "D-eps0.2": {"training.eps_ls": 0.2},
    "E-learned": {"model.positions": "learned"},
    "big": {
        "model.d_model": 1024,
        "model.d_ff": 4096,
        "model.h": 16,
        "model.P_drop": 0.3,
        "training.steps": 300_000,
    },
}
"""the changes as they stood in the row file before they followed base"""


def absolute():
    return [replace(row, change=PRINTED[name]) for name, row in all_rows().items()]


def test_over_the_papers_sizes_the_rows_are_as_printed():
    for miniature in (Miniature(), Miniature(8, 2, 50)):
        base = Experiment(miniature=miniature)
        found = {name: row.on(base).change for name, row in all_rows().items()}
        assert json.dumps(found) == json.dumps(PRINTED)  # types and order, too


def test_big_keeps_the_paper_s_snapshots_where_base_keeps_any():
    """20, ten minutes and 600 of its steps apart; base's own 5, 1,500 apart, are not what the paper averaged."""
    big = all_rows()["big"]
    t = apply(load_experiment("experiments/base.yaml"), big).training
    assert (t.average_last, t.average_every, t.steps) == (20, 600, 300_000)
    assert apply(Experiment(), big).training.average_every == 1500  # inert, and named in every hash
    for name in ("big", "big-bf16"):
        t = load_experiment(f"experiments/{name}.yaml").training
        assert (t.average_last, t.average_every, t.steps) == (20, 600, 300_000)


def test_a_condition_names_a_field(tmp_path):
    path = tmp_path / "rows.yaml"
    path.write_text("mine: {group: X, change: {model.N: {of_base: 2, if: training.average_lost}}}\n")
    with pytest.raises(UserError, match=r"average_lost.*training\.average_last"):
        load_rows(path)


def test_over_other_sizes_a_row_is_the_same_change():
    base = load_experiment("experiments/multi30k.yaml")  # d_model 128, N 3, h 4, 4000 steps
    exact = {name: apply(base, row) for name, row in all_rows().items()}
    sizes = {name: (e.model.N, e.model.d_model, e.model.d_ff, e.model.h, e.model.d_k) for name, e in exact.items()}
    assert sizes["A-h32"] == (3, 128, 512, 32, 4) and sizes["B-dk16"] == (3, 128, 512, 4, 8)
    assert [sizes[name][0] for name in ("C-N2", "C-N4", "C-N8")] == [1, 2, 4]
    assert sizes["C-dmodel256"] == (3, 64, 512, 4, 16) and sizes["big"] == (3, 256, 1024, 8, 32)
    assert exact["big"].training.steps == 12_000 and exact["A-h4"] == exact["base"]
    small = Experiment(model=Model(d_model=32, d_ff=64, d_k=4, d_v=4))
    assert apply(small, all_rows()["A-h32"]).model.d_k == 1


@pytest.mark.parametrize(
    ("model", "row", "words"),
    [
        (
            Model(d_model=100),
            "A-h32",
            ["model.d_k should be model.d_model / model.h with", "which is 25/8, not a whole"],
        ),
        (Model(N=4), "C-N2", ["model.N should be 1/3 of base's 4, which is 4/3, not a whole number"]),
        (Model(d_ff=33), "C-dff1024", ["33/2, not a whole number", "leave the row out, or declare your own row"]),
    ],
)
def test_where_a_size_does_not_come_out_the_row_is_refused(model, row, words):
    with pytest.raises(UserError) as refused:
        apply(Experiment(model=model), all_rows()[row])
    for word in (*words, f"row '{row}'", "table3.yaml:"):
        assert word in str(refused.value)


def test_the_command_line_refuses_with_2(capsys):
    assert main(["fit", "--config", "experiments/miniature.yaml", "--model.N", "4", "--row", "C-N2"]) == 2
    assert "1/3 of base's 4" in capsys.readouterr().err


def test_arithmetic():
    base = Experiment()

    def value(key, said):
        return resolved(base, {key: said}, "here")[key]

    assert value("model.d_ff", {"tie": "4 * (model.d_model - 2) / 2 + -4"}) == 1016
    assert (
        value("training.lr_factor", {"tie": "model.d_model / 512 * 0.1 * 3"}) == 0.3
    )  # exact, not 0.30000000000000004
    assert value("model.P_drop", {"of_base": 3}) == 0.3 and value("training.steps", {"of_base": 0.5}) == 50_000
    chain = {
        "model.d_k": {"tie": "model.d_v"},
        "model.d_v": {"tie": "model.d_model / model.h"},
        "model.h": {"of_base": 2},
    }
    assert resolved(base, chain, "here") == {"model.d_k": 32, "model.d_v": 32, "model.h": 16}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("{model.d_k: {tie: model.d_modle / 8}}", "did you mean 'model.d_model'"),
        ("{model.d_k: {ties: 8}}", "expected a value, {tie: EXPRESSION} or {of_base: NUMBER}"),
        ("{model.d_k: {tie: 'model.h ** 2'}}", "'model.h ** 2': only fields, numbers, + - * / and parentheses"),
        ("{model.d_k: {tie: '__import__(\"os\")'}}", "only fields, numbers"),
        ("{model.d_k: {tie: 'model.h +'}}", "not arithmetic"),
        ("{model.d_k: {tie: [1]}}", "expected arithmetic"),
        ("{model.norm: {tie: model.h}}", "only numbers of a model or training can follow others"),
        ("{model.d_k: {of_base: model.h}}", "expected a number such as 1/3"),
        ("{model.d_k: {tie: training.seed}}", "unknown field 'training.seed'"),
        ("{model.d_k: {tie: '" + "1+" * 200 + "1'}}", "expected arithmetic"),
    ],
)
def test_what_is_not_well_said_is_refused_when_it_is_read(tmp_path, said, words):
    path = tmp_path / "mine.yaml"
    path.write_text(f"first: {{group: X, change: {{}}}}\nmine: {{group: X, change: {said}}}\n")
    with pytest.raises(UserError) as refused:
        load_rows(path)
    assert words in str(refused.value) and f"{path}:2: row 'mine'" in str(refused.value)


def test_circles_and_divisions_by_zero_are_refused():
    for change, words in (
        ({"model.d_k": {"tie": "model.d_v"}, "model.d_v": {"tie": "model.d_k"}}, "tied to each other in a circle"),
        ({"model.d_k": {"tie": "model.h / (model.h - model.h)"}}, "a division by zero"),
        ({"model.d_k": {"tie": "model.h - 8"}}, "which is 0"),
    ):
        with pytest.raises(UserError, match=words):
            resolved(Experiment(), change, "here")


def study(rows, base=None):
    base = base or Experiment(miniature=Miniature(8, 2, 50))
    return Ablation(name="s", base=base, rows=rows, seeds=[1], prints=Fingerprints("t", "d"), V=300, store="x")


def test_a_study_begun_with_absolute_rows_goes_on_with_these(tmp_path):
    before = save(study(absolute()), tmp_path)
    old = json.loads((tmp_path / "studies/s/study.json").read_text())
    assert all("ties" not in row for row in old["rows"])
    after = save(study(list(all_rows().values())), tmp_path)
    assert [c.training_hash for c in after.cells()] == [c.training_hash for c in before.cells()]
    new = json.loads((tmp_path / "studies/s/study.json").read_text())
    assert [row["change"] for row in new["rows"]] == [row["change"] for row in old["rows"]]
    assert new["rows"][1]["ties"]["model.d_k"] == {"tie": "model.d_model / model.h"}
    assert load_as(Ablation, tmp_path, "s") == after
    save(study(absolute()), tmp_path)  # and back


def test_a_study_over_other_sizes_does_not_take_absolute_rows_for_these(tmp_path):
    base = load_experiment("experiments/multi30k.yaml")
    save(study(absolute(), base), tmp_path)
    with pytest.raises(UserError, match=r"row 'A-h1' changes .*'model.d_k': 128.* the study has .*512"):
        save(study(list(all_rows().values()), base), tmp_path)


def test_a_row_of_the_users_may_follow_base_where_the_papers_sizes_do_not_fit(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mine: {group: X, change: {model.N: {of_base: 1/4}}}\n")
    (row,) = load_rows(path)
    assert row == Row("mine", "X", {"model.N": {"of_base": "1/4"}}, Paper(None, None, None), f"{path}:1")
    assert apply(Experiment(model=Model(N=8)), row).model.N == 2


def test_tuning_a_field_that_sizes_follow_moves_the_sizes():
    from lightning_tfm.queue.row_tuning import Tuning, variants, with_choices

    made = study([all_rows()[name] for name in ("base", "C-dmodel256")])
    tried = study(variants(Tuning("model.h", [4, 8], [1]), made.rows))
    assert [row.change["model.d_k"] for row in tried.rows if "d_k" in str(row.change)] == [64, 32]
    found = with_choices(made, "model.h", {"base": 4, "C-dmodel256": 4})
    assert found.rows[1].change == {"model.d_model": 256, "model.d_k": 64, "model.d_v": 64}


def test_the_cells_of_a_table_are_those_of_each_row_and_seed():
    base = Experiment(miniature=Miniature(width=8, depth=2, steps=50))
    rows = [replace(row, paper=Paper(None, None, None)) for row in all_rows().values()]
    table = Ablation(name="t", base=base, rows=rows, seeds=[3, 1, 2], prints=Fingerprints("t", "d"), V=300, store="s")
    cells = table.cells()
    assert cells == [table.cell(row, seed) for row in table.rows for seed in table.seeds]
    assert len({cell.training_hash for cell in cells}) == 60


@pytest.mark.parametrize("key, named", [("rows", "the row 'base' is there twice"), ("seeds", "the seed '1' is there")])
def test_a_study_that_holds_a_row_or_seed_twice_is_refused(tmp_path, capsys, key, named):
    save(study(absolute()), tmp_path)
    path = tmp_path / "studies/s/study.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {key: [*plain[key], plain[key][0]]}))
    assert main(["status", "s", "--out", str(tmp_path)]) == 2
    assert f"{path}: {named}" in capsys.readouterr().err
