"""Search files."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.train.fit import main as fit
from lightning_tfm.cli.train.tune import introduction, pruning
from lightning_tfm.config import Experiment, Miniature, override
from lightning_tfm.errors import UserError
from lightning_tfm.queue.sampling import draw
from lightning_tfm.queue.search_results import report
from lightning_tfm.report.search_report import make
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.study.study_file import load, save
from lightning_tfm.study.sweeps import Parameter, Pruner, grid, read_search
from lightning_tfm.yaml_files import shipped_folder
from tests.helpers.launching import launch
from tests.queue.test_sampling import search, train
from tests.study.test_sweep_file import cases

GOOD = """name: mine
method: bayes
metric: {name: dev/ppl, goal: minimize}
parameters:
  training.lr_factor: {distribution: log_uniform_values, min: 0.1, max: 2.0}
  training.warmup: {min: 10, max: 20}
  model.N: {values: [2, 4]}
  seed: {value: 3}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""
BESIDE = "sampler: gp\ntrials: 9\npruner: {type: asha, min_step: 5}\nconstraints: {parameters: 1000000}\n"


def read(folder: Path, text: str = GOOD, beside: str = ""):
    (folder / "f.yaml").write_text(text)
    if beside:
        (folder / "f.study.yaml").write_text(beside)
    return read_search(folder / "f.yaml")


def test_what_the_two_files_say(tmp_path: Path) -> None:
    file = read(tmp_path, GOOD, BESIDE)
    assert (file.sampler, file.beside.trials, file.beside.pruner, file.beside.constraints) == (
        "gp", 9, Pruner("asha", 5, 3), {"parameters": 1e6},
    )  # fmt: skip
    assert file.arguments == ["--config", "experiments/miniature.yaml", "--training.seed=3"]
    kinds = {p.name: p.distribution for p in file.space(Experiment())}
    assert kinds == {
        "training.lr_factor": "log_uniform_values", "training.warmup": "int_uniform", "model.N": "categorical",
    }  # fmt: skip


def test_bayes_is_tpe_and_hyperband_counts_validations(tmp_path: Path) -> None:
    file = read(tmp_path, GOOD.replace("name: mine", "early_terminate: {type: hyperband, min_iter: 2}"))
    assert file.sampler == "tpe" and file.steps_of(250, 2000) == Pruner("asha", 500, 3)
    with pytest.raises(UserError, match="nothing would ever be stopped"):
        file.steps_of(250, 500)
    other = read(tmp_path, GOOD.replace("name: mine", "early_terminate: {type: hyperband, max_iter: 27, s: 2}"))
    assert other.steps_of(10, 2000) == Pruner("asha", 30, 3)


def test_the_shipped_searches() -> None:
    heads, search = read_search("sweeps/heads.yaml"), read_search("sweeps/search.yaml")
    assert len(grid(heads.space(Experiment()))) == 48
    assert [p.name.partition(".")[2] for p in search.space(Experiment())] == [
        "lr_factor", "warmup", "P_drop", "N", "d_model",
    ]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "beside", "message"), cases("malformed_searches.txt"))
def test_malformed(tmp_path: Path, capsys, old: str, new: str, beside: str, message: str) -> None:
    assert old in GOOD
    (tmp_path / "f.yaml").write_text(GOOD.replace(old, new, 1))
    if beside:
        (tmp_path / "f.study.yaml").write_text(beside)
    assert main(["tune", str(tmp_path / "f.yaml"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert not (tmp_path / "out").exists()


def test_a_damaged_journal_is_left_alone(tmp_path: Path, capsys) -> None:
    (tmp_path / "f.yaml").write_text(GOOD)
    journal = tmp_path / "out" / "studies" / "mine" / "journal.log"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b'{"op_code":0,"wor\x00\n{"op_code":1}\n')
    assert main(["tune", str(tmp_path / "f.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "line 1 is damaged" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "out").rglob("*") if p.is_file()] == ["journal.log"]


def test_label_smoothing_searched_by_perplexity_is_warned_of(tmp_path: Path) -> None:
    text = shipped_folder("sweeps").joinpath("search.yaml").read_text().replace("model.P_drop:", "training.eps_ls:")
    (tmp_path / "f.yaml").write_text(text)
    file, base = read_search(tmp_path / "f.yaml"), Experiment()
    made = search(base=base, space=file.space(base), objectives=file.objectives)
    said = introduction(file, made, 1, 0)
    assert any("WARNING: label smoothing" in line and "dev/bleu" in line for line in said)
    quiet = introduction(file, replace(made, objectives={"dev/bleu": "maximize"}), 1, 0)
    assert not any("WARNING" in line for line in quiet)


def test_what_a_pruner_will_see_is_said(tmp_path: Path) -> None:
    def said(warmup: str, beside: str = "") -> str:
        text = shipped_folder("sweeps").joinpath("search.yaml").read_text()
        file = read(tmp_path, text.replace("min: 100, max: 1000", warmup), beside)
        base = load_experiment("experiments/miniature.yaml")
        made = search(base=base, space=file.space(base), pruner=Pruner("asha", 500, 2), validate_every=250)
        made = replace(made, objectives=file.objectives, prune_in_warmup=file.beside.prune_in_warmup)
        return " ".join(pruning(made, file))

    steps = load_experiment("experiments/miniature.yaml").scaled().training.steps
    looks = [look for look in (500, 1000, 2000, 4000) if look < steps]
    assert f"dev PPL compared at steps {', '.join(f'{look:,}' for look in looks)} of {steps:,}" in said(
        "min: 1, max: 9"
    )
    assert f"before its own ends: one of 600 can be stopped at {len(looks) - 1} of" in said("min: 100, max: 600")
    assert f"one of {steps:,} is never stopped" in said(f"min: 100, max: {steps}")
    assert "prune_in_warmup lets trials be stopped within it" in said("min: 100, max: 600", "prune_in_warmup: true")


def test_a_users_own_metric_is_an_objective(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own_aim.py").write_text(
        "from lightning_tfm.corpus_metrics import Summed\nclass Mine(Summed):\n    WIDTH = 1\n"
        "    def counts(self, hypotheses):\n        return None\n"
        "    @staticmethod\n    def score(sums):\n        return sums\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = GOOD.replace("dev/ppl", "dev/own_aim.Mine")
    assert read(tmp_path, own.replace("minimize", "maximize"), "").objectives == {"dev/own_aim:Mine": "maximize"}
    with pytest.raises(UserError, match=r"f.yaml:3: metric.goal='minimize': dev/own_aim.Mine must be maximized"):
        read(tmp_path, own, "")
    with pytest.raises(UserError, match=r"f.yaml:3: metric.name: metric 'own_aim:Other': cannot import"):
        read(tmp_path, own.replace("Mine", "Other"), "")


FILE = """name: tied
method: METHOD
metric: {name: dev/ppl, goal: minimize}
parameters:
  model.h: {values: [4, 8, 24]}
  model.d_model: {values: [256, 512]}
  model.d_k: {tie: model.d_model / model.h}
  model.d_ff: {of_base: 1/2}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""
TIES = {"model.d_k": {"tie": "model.d_model / model.h"}, "model.d_ff": {"of_base": "1/2"}}


def tied(**changes):
    space = [Parameter("model.h", "categorical", [4, 8, 24]), Parameter("model.d_model", "categorical", [256, 512])]
    return search(**{"space": space, "ties": TIES, "sampler": "grid", "trials": 1, "based": True} | changes)


def test_a_file_says_what_follows_what(tmp_path: Path) -> None:
    file = read(tmp_path, FILE.replace("METHOD", "grid"))
    assert file.ties == TIES and list(file.specs) == ["model.h", "model.d_model"]
    made = tied()
    assert "s: model.d_k follows: model.d_model / model.h" in introduction(file, made, 4, 2)
    assert any("2 points of the grid are left out" in line for line in introduction(file, made, 4, 2))


def test_each_trial_has_its_own_value_and_points_that_do_not_come_out_are_left_out() -> None:
    made = tied(based=False)
    found = {tuple(cell.change.values()): made.experiment(cell).model for cell in made.cells()}
    assert {point: model.d_k for point, model in found.items()} == {
        (4, 256): 64,
        (4, 512): 128,
        (8, 256): 32,
        (8, 512): 64,
    }
    assert {model.d_ff for model in found.values()} == {1024} and made.refused_points() == 2
    assert "model.d_k should be model.d_model / model.h with model.d_model 256, model.h 24" in made.misses(
        {"model.h": 24, "model.d_model": 256}
    )
    small = replace(made, base=override(replace(made.base, miniature=Miniature(width=64)), {"model.d_v": 64}, "test"))
    assert "model.d_k=32 is not divisible by miniature.width=64" in small.misses({"model.h": 8, "model.d_model": 256})
    assert all(point["model.h"] != 24 for point in draw(replace(made, sampler="random", trials=9), 20))
    with pytest.raises(UserError, match=r"no point of the space has whole tied sizes: .*not a whole number"):
        tied(space=[Parameter("model.h", "categorical", [24, 48]), *made.space[1:]]).check()


def test_base_is_base_and_values_are_shown_but_not_sampled(tmp_path: Path) -> None:
    made = tied(sampler="random", trials=9)  # the space has four points beside base
    made.check()
    save(made, tmp_path)
    with (tmp_path / "shown").open("w") as stream:
        states = launch(made, made.cells(), tmp_path, train, stream, workers=1)
    assert states[0].cell.row == "base" and made.experiment(states[0].cell) == made.base
    assert all(state.cell.change.keys() == {"model.h", "model.d_model"} for state in states) and len(states) == 5
    assert "model.d_k=" in report(load(tmp_path, "s"), tmp_path)
    lines = {line["trial"]: line for line in json.loads((tmp_path / "studies/s/trials.json").read_text())}
    assert lines["base"]["model.d_k"] == 64 and lines["base"]["model.d_ff"] == 2048
    others = [line for name, line in lines.items() if name != "base"]
    assert all(line["model.d_k"] == line["model.d_model"] // line["model.h"] for line in others)
    shown = make("s", tmp_path)
    heads, *rows = csv.reader(shown.render("csv").splitlines())
    assert heads[2:6] == ["model.h", "model.d_model", "model.d_k", "model.d_ff"]
    assert {int(row[4]) * int(row[2]) == int(row[3]) for row in rows} == {True}
    page = shown.render("html")
    assert "model.d_k follows: model.d_model / model.h" in page and "<small><code>model.d_k</code></small>" in page
    assert "model.d_k is not sampled, it follows: model.d_model / model.h" in shown.render("markdown")


def test_a_controller_that_hands_the_tie_on_is_told_so(capsys) -> None:
    """W&B's schema has no place for a tie; what its agent would pass is refused by `fit`."""
    with pytest.raises(UserError, match=r"model.d_k=.*expected a whole number"):
        fit("fit", ["--config", "experiments/miniature.yaml", "--model.d_k={'tie': 'model.d_model / model.h'}"])
