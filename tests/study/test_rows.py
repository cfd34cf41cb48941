"""Rows: read, computed by expressions, tuned."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, Miniature, Model, to_dict, training_hash, training_identity
from lightning_tfm.errors import UserError
from lightning_tfm.queue import row_tuning
from lightning_tfm.queue.resources import Resources
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.expressions import with_numbers
from lightning_tfm.study.row_tuning import read_tuning
from lightning_tfm.study.rows import Row, all_rows, apply, find_row, load_rows
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load, load_as, save
from lightning_tfm.study.user_classes import user_classes
from lightning_tfm.watch.study_state import CellState
from tests.helpers.studies import PAPERS, ablation, leave, own_row
from tests.study.test_plan import TABLE, call

MINIATURE = Miniature(width=8, depth=2, steps=100)
BASE = Experiment(miniature=MINIATURE)

PAPER = list(csv.DictReader(Path(__file__).with_name("table3.csv").read_text().splitlines()))
"""Table 3 with its blanks filled in, typed from the paper independently of experiments/table3.yaml"""
SIZES = list(PAPER[0])[1:11]


def test_the_twenty_rows_are_the_papers():
    rows = all_rows()
    assert list(rows) == [line["row"] for line in PAPER]
    for line in PAPER:
        row, e = rows[line["row"]], apply(Experiment(), rows[line["row"]])
        m, t = e.model, e.training
        sizes = (m.N, m.d_model, m.d_ff, m.h, m.d_k, m.d_v, m.P_drop, t.eps_ls, m.positions, t.steps)
        assert list(map(str, sizes)) == [line[key] for key in SIZES], row.name
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


def test_a_line_that_is_not_utf_8_is_named(tmp_path):
    with pytest.raises(UserError, match=r"mine\.yaml:2: not UTF-8"):
        load_rows(write(tmp_path, b"ok: 1\nX: \xff"))


def test_a_row_of_ones_own_is_one_line(tmp_path):
    path = write(tmp_path, "X-deep: {group: X, change: {model.N: 12, training.adam_eps: 1e-8}}")
    row = find_row(all_rows([path]), "X-deep")
    assert apply(BASE, row).model.N == 12 and apply(BASE, row).training.adam_eps == 1e-8
    assert (row.paper.ppl, row.paper.bleu, row.paper.params) == (None, None, None)


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


KEY = "training.lr_factor"
ROWS = [all_rows()[name] for name in ("base", "A-h1", "C-N2")]
STUDY = ablation(ROWS, [1, 2], name="mine")
BEST = {"base": 1.0, "A-h1": 0.5, "C-N2": 1.0}


@pytest.fixture
def trained(monkeypatch):
    """Instead of training: a row is at its best at BEST."""
    asked = []

    def work(study, cells, root, resources, start):
        asked.append(study)
        for cell in cells:
            row, _, value = cell.row.partition(", lr_factor=")
            if not (folder := RunFolder(root, cell.training_hash)).finished():
                attempt = folder.claim()
                ppl = 5 + abs(float(value) - BEST[row]) + 0.01 * cell.seed
                leave(attempt, ppl=ppl, evaluation_hash=study.evaluation(cell, root))
                attempt.release()
        return [CellState(cell, "finished", "", None, 1, 1.0) for cell in cells]

    monkeypatch.setattr("lightning_tfm.queue.launch.work", work)
    return asked


def test_every_row_takes_its_best_value_and_base_its_own(tmp_path: Path, trained, capsys) -> None:
    tuning = row_tuning.tuning_of(f"{KEY}=0.5,1.0,2.0", [11, 12], STUDY, STUDY.seeds)
    found = row_tuning.with_best_values(STUDY, tuning, tmp_path, Resources())
    assert found.base.training.lr_factor == 1.0 and found.seeds == [1, 2]
    assert [row.change for row in found.rows] == [{}, STUDY.rows[1].change | {KEY: 0.5}, STUDY.rows[2].change]
    (tried,) = trained
    assert (tried.name, len(tried.cells()), tried.seeds) == ("mine-tuning", 3 * 3 * 2, [11, 12])
    assert load_as(Ablation, tmp_path, "mine-tuning").rows == tried.rows
    written = json.loads((tmp_path / "studies/mine/tuning.json").read_bytes())
    assert {row["row"]: row["value"] for row in written["rows"]} == BEST
    assert written["cost"] == {"runs": 18, "seconds": 18 * 7.0, "flops": 18 * 10**11}
    said = capsys.readouterr().err
    assert "the best of 3 for every row, by dev PPL at seed 11, 12 (18 runs)" in said
    assert "A-h1: 0.5 (at the edge of what was tried); 0.5: 5.115, 1.0: 5.615, 2.0: 6.615" in said
    assert row_tuning.with_best_values(STUDY, tuning, tmp_path, Resources()) == found, (
        "the same command chooses the same"
    )


def test_a_base_that_is_best_elsewhere_moves_all_rows_with_it(tmp_path: Path, trained, monkeypatch) -> None:
    monkeypatch.setitem(BEST, "base", 2.0)
    found = row_tuning.with_best_values(
        STUDY, row_tuning.tuning_of(f"{KEY}=1.0,2.0", [11], STUDY, STUDY.seeds), tmp_path, Resources()
    )
    assert found.base.training.lr_factor == 2.0
    assert [row.change.get(KEY) for row in found.rows] == [None, 1.0, 1.0], "what was best for them, not base's"


def test_a_row_that_is_tuned_later_leaves_the_others_on_record(tmp_path: Path, trained) -> None:
    """Else the error of their choice would leave their intervals, and a second grid would pass for the first one."""
    first, later = (replace(STUDY, rows=[STUDY.rows[i] for i in rows]) for rows in ((0, 1), (0, 2)))
    tuning = row_tuning.tuning_of(f"{KEY}=0.5,1.0", [11], STUDY, STUDY.seeds)
    for study in (first, later):
        save(row_tuning.with_best_values(study, tuning, tmp_path, Resources()), tmp_path)
    found = read_tuning(tmp_path / "studies/mine")
    assert {row.row: row.value for row in found.rows} == BEST and found.runs == 6
    more = row_tuning.tuning_of(f"{KEY}=0.5,1.0,2.0", [11], STUDY, STUDY.seeds)
    with pytest.raises(UserError, match=r"A-h1 took the best training.lr_factor of 0.5, 1.0 at seed 11: tune the same"):
        row_tuning.with_best_values(later, more, tmp_path, Resources())
    row_tuning.with_best_values(STUDY, more, tmp_path, Resources())
    assert read_tuning(tmp_path / "studies/mine").values == [0.5, 1.0, 2.0]


def test_a_table_that_refuses_the_choice_is_not_said_to_be_tuned(tmp_path: Path, trained) -> None:
    save(STUDY, tmp_path)
    tuning = row_tuning.tuning_of(f"{KEY}=0.5,1.0", [11], STUDY, STUDY.seeds)
    with pytest.raises(UserError, match="A-h1"):
        row_tuning.with_best_values(STUDY, tuning, tmp_path, Resources())
    assert read_tuning(tmp_path / "studies/mine") is None


@pytest.mark.parametrize("more, seed", [(["--max-seeds=6"], 6), (["--max-seeds=5"], 0), ([], 8), (["--seeds=1-2"], 0)])
def test_seeds_that_looks_may_add_are_reported_too(tmp_path: Path, capsys, monkeypatch, trained, more, seed) -> None:
    monkeypatch.setattr("lightning_tfm.cli.train.sweep.with_best_values", lambda *study: sys.exit(9))
    tune = [f"--tune={KEY}=1,2", f"--tune-seeds={seed or 6}", "--seeds=auto", *more]
    if not seed:
        with pytest.raises(SystemExit, match="9"):
            call("sweep", tmp_path, TABLE, *tune)
        return
    assert call("sweep", tmp_path, TABLE, *tune) == 2
    assert f"--tune-seeds: seed {seed} is also reported" in capsys.readouterr().err


def test_seeds_that_the_study_has_already_are_reported_too(tmp_path: Path, capsys, monkeypatch, trained) -> None:
    monkeypatch.setattr("lightning_tfm.queue.launch.work", lambda *study, **how: [])
    call("sweep", tmp_path, TABLE, "--seeds=7")
    assert call("sweep", tmp_path, TABLE, f"--tune={KEY}=1,2", "--tune-seeds=7", "--seeds=1") == 2
    assert "--tune-seeds: seed 7 is also reported" in capsys.readouterr().err


def test_without_base_nothing_is_tuned() -> None:
    with pytest.raises(UserError, match="base is not among the rows"):
        row_tuning.tuning_of(f"{KEY}=1,2", [11], replace(STUDY, rows=ROWS[1:]), [1])


def absolute() -> list[Row]:
    """The rows as they stood in their file before they followed base: changes are the paper's own numbers."""
    rows = []
    for line in PAPER:
        differing = {key: yaml.safe_load(line[key]) for key in SIZES if line[key] != PAPER[0][key]}
        section = {"eps_ls": "training", "steps": "training"}
        change = {f"{section.get(key, 'model')}.{key}": value for key, value in differing.items()}
        rows.append(replace(PAPERS[line["row"]], change=change))
    return rows


def test_a_row_whose_only_tie_does_not_act_here_is_base() -> None:
    tie = {"training.average_every": {"of_base": "2/5", "if": "training.average_last"}}
    row = own_row("x", tie)
    alone = replace(Experiment(), training=replace(Experiment().training, average_last=0))
    assert row.on(alone).change == {} and apply(alone, row) == alone
    averaging = replace(alone, training=replace(alone.training, average_last=5, average_every=10))
    assert apply(averaging, row).training.average_every == 4


def test_over_the_papers_sizes_the_rows_are_as_printed():
    for miniature in (Miniature(), Miniature(8, 2, 50)):
        base = Experiment(miniature=miniature)
        found = {name: row.on(base).change for name, row in all_rows().items()}
        assert json.dumps(found) == json.dumps({row.name: row.change for row in absolute()})  # types and order, too


def test_big_keeps_the_paper_s_snapshots_where_base_keeps_any():
    """20, ten minutes and 600 of its steps apart; base's own 5, 1,500 apart, are not what the paper averaged."""
    big = all_rows()["big"]
    t = apply(load_experiment("experiments/base.yaml"), big).training
    assert (t.average_last, t.average_every, t.steps) == (20, 600, 300_000)
    assert apply(Experiment(), big).training.average_every == 1500  # inert, and named in every hash
    for name in ("big", "big-bf16"):
        t = load_experiment(f"experiments/{name}.yaml").training
        assert (t.average_last, t.average_every, t.steps) == (20, 600, 300_000)


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


def test_arithmetic():
    base = Experiment()

    def value(key, said):
        return with_numbers(base, {key: said}, "here")[key]

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
    assert with_numbers(base, chain, "here") == {"model.d_k": 32, "model.d_v": 32, "model.h": 16}


def study(rows, base=None):
    return ablation(rows, name="s", base=base or Experiment(miniature=Miniature(8, 2, 50)))


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
    assert row == replace(own_row("mine", {"model.N": {"of_base": "1/4"}}), where=f"{path}:1")
    assert apply(Experiment(model=Model(N=8)), row).model.N == 2


def test_tuning_a_field_that_sizes_follow_moves_the_sizes():
    from lightning_tfm.queue.row_tuning import Tuning, variants, with_choices

    made = study([all_rows()[name] for name in ("base", "C-dmodel256")])
    tried = study(variants(Tuning("model.h", [4, 8], [1]), made.rows))
    assert [row.change["model.d_k"] for row in tried.rows if "d_k" in str(row.change)] == [64, 32]
    found = with_choices(made, "model.h", {"base": 4, "C-dmodel256": 4})
    assert found.rows[1].change == {"model.d_model": 256, "model.d_k": 64, "model.d_v": 64}


def test_the_cells_of_a_table_are_those_of_each_row_and_seed():
    table = ablation(all_rows(), [3, 1, 2], base=Experiment(miniature=Miniature(width=8, depth=2, steps=50)))
    cells = table.cells()
    assert cells == [table.cell(row, seed) for row in table.rows for seed in table.seeds]
    assert len({cell.training_hash for cell in cells}) == 60


@pytest.mark.parametrize(
    "edit, named",
    [
        (lambda plain: plain["rows"].append(plain["rows"][0]), "the row 'base' is there twice"),
        (lambda plain: plain["seeds"].append(plain["seeds"][0]), "the seed '1' is there twice"),
        (lambda plain: plain.update(name="t"), "it defines the study 't'"),
        (lambda plain: plain.update(V=0), "not a study definition (V=0: expected a number above 0)"),
        (lambda plain: plain["rows"][1]["change"].update({"model.h": "x"}), "row 'A-h1': model.h='x': "),
    ],
)
def test_a_study_json_edited_into_another_definition_is_refused(tmp_path, capsys, edit, named):
    save(study(absolute()), tmp_path)
    path = tmp_path / "studies/s/study.json"
    plain = json.loads(path.read_text())
    edit(plain)
    path.write_text(json.dumps(plain))
    assert main(["status", "s", "--out", str(tmp_path)]) == 2
    words = capsys.readouterr().err
    assert words.startswith(f"lightning-tfm: {path}: ") and named in words


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/x", "a\nb", "é" * 128])
def test_a_row_whose_name_is_no_folder_s_is_refused(tmp_path, name):
    path = tmp_path / "rows.yaml"
    path.write_text(json.dumps({name: {"group": "g", "change": {"model.h": 4}}}, ensure_ascii=False))
    with pytest.raises(UserError, match=r"rows.yaml:1: .* is not a valid name of a row"):
        load_rows(path)


@pytest.mark.parametrize("key", ["rows", "hidden"])
@pytest.mark.parametrize("name", ["..", "../../x", "a/../../x", "/etc/x"])
def test_a_study_whose_row_leads_out_of_its_folder_is_refused(tmp_path, name, key):
    """As it may stand in records from elsewhere."""
    save(study(absolute()), tmp_path)
    path = tmp_path / "studies/s/study.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {key: [*plain.get(key, []), plain["rows"][-1] | {"name": name}]}))
    with pytest.raises(UserError, match=r"study.json: the row .* leads out of the study's folder"):
        load(tmp_path, "s")


@pytest.mark.parametrize("names", [("caf\u00e9", "cafe\u0301"), ("x y", " x y"), ("x y", "x  y"), ("base", "base ")])
def test_names_that_nobody_can_tell_apart_are_one_name(tmp_path, names):
    path = tmp_path / "rows.yaml"
    path.write_text("".join(f'"{name}": {{group: g, change: {{model.h: 4}}}}\n' for name in names if name != "base"))
    with pytest.raises(UserError, match=r"rows.yaml:\d: the row '.*' is already declared in .*:\d"):
        all_rows([path])


def test_a_row_may_be_named_by_any_other_words(tmp_path):
    path = tmp_path / "rows.yaml"
    names = ["__proto__", "🦆 quack", "a,b", "..x", "é" * 127]
    path.write_text("".join(f'"{name}": {{group: g, change: {{model.h: 4}}}}\n' for name in names))
    assert [row.name for row in load_rows(path)] == names


def test_what_is_kept_of_a_row_is_never_another_row_s():
    """In a pickled study rows have other ids, and one of them may be that of a row before."""
    study = ablation(["base", "A-h1"])
    base, one_head = study.rows
    exact = study.exact(base)
    study._made["exact", id(one_head)] = base, exact
    assert study.exact(one_head).model.h == 1 != study.exact(base).model.h and study.exact(base) is exact
