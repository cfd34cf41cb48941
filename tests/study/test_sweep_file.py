"""Sweep files, W&B's schema of them, and the command in them."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import lightning_tfm
from lightning_tfm.cli.train.sweep import only
from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError
from lightning_tfm.study.command import with_out
from lightning_tfm.study.rows import all_rows
from lightning_tfm.study.study_file import load, save
from lightning_tfm.study.sweeps import grid, is_search, read_search, read_sweep
from lightning_tfm.yaml_files import read_yaml
from tests.helpers.studies import ablation

GOOD = """name: mine
method: grid
metric: {name: dev/ppl, goal: minimize}
parameters:
  row: {values: [base, A-h1]}
  seed: {values: [1, 2]}
  training.warmup: {value: 40}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""


def read(tmp_path, text):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return read_sweep(path)


def test_the_shipped_sweep_names_all_rows():
    sweep = read_sweep("sweeps/table3.yaml")
    assert sweep.rows == list(all_rows())
    assert (sweep.name, len(sweep.seeds)) == ("table3", 1)
    assert sweep.arguments == ["--config", "experiments/miniature-8-epochs.yaml"]


def test_rows_may_be_picked_and_base_is_always_there():
    rows = list(all_rows().values())
    found = only(read_sweep("sweeps/table3.yaml"), rows, "C-N4,C-N2")
    assert [row.name for row in found] == ["base", "C-N2", "C-N4"]


def test_base_is_the_row_that_changes_nothing_whatever_its_name(tmp_path):
    (tmp_path / "mine.yaml").write_text("mine: {group: X, change: {}}\n")
    sweep = read(tmp_path, GOOD.replace("base, A-h1", "A-h4, mine, A-h1"))
    declared = all_rows([tmp_path / "mine.yaml"])
    rows = [declared[name] for name in sweep.rows]
    assert [row.name for row in only(sweep, rows, "A-h1")] == ["mine", "A-h1"]
    assert [row.name for row in only(sweep, [*rows, declared["base"]], "A-h1")] == ["A-h1", "base"], "the paper's"


def test_fixed_values_become_arguments(tmp_path):
    sweep = read(tmp_path, GOOD)
    assert (sweep.rows, sweep.seeds) == (["base", "A-h1"], [1, 2])
    assert sweep.arguments == ["--config", "experiments/miniature.yaml", "--training.warmup=40"]


def test_seeds_and_name_may_be_left_out(tmp_path):
    sweep = read(tmp_path, GOOD.replace("  seed: {values: [1, 2]}\n", "").replace("name: mine\n", ""))
    assert (sweep.seeds, sweep.name) == ([], "sweep")


def test_fields_with_several_values_are_rows_of_all_combinations(tmp_path):
    text = GOOD.replace("{value: 40}", "{values: [40, 80]}\n  model.norm: {values: [post, pre]}")
    sweep = read(tmp_path, text)
    assert sweep.factors == {"training.warmup": [40, 80], "model.norm": ["post", "pre"]}
    assert sweep.arguments == ["--config", "experiments/miniature.yaml"]
    rows = sweep.factor_rows([all_rows()[name] for name in sweep.rows])
    names = [f"{w}, {n}" for w in ("warmup=40", "warmup=80") for n in ("norm=post", "norm=pre")]
    assert [row.name for row in rows] == ["base", *names, *(f"A-h1, {name}" for name in names)]
    assert rows[-1].change == all_rows()["A-h1"].change | {"training.warmup": 80, "model.norm": "pre"}
    assert not rows[0].change and rows[0].paper.ppl is None, "the numbers of the paper are not of these rows"
    alone = read(tmp_path, text.replace("  row: {values: [base, A-h1]}\n", ""))
    assert [row.name for row in alone.factor_rows([])] == ["base", *names]
    assert not is_search(read_yaml(tmp_path / "sweep.yaml"))
    one_seed = text.replace("seed: {values: [1, 2]}", "seed: {value: 1}").replace("  row: {values: [base, A-h1]}\n", "")
    (tmp_path / "sweep.yaml").write_text(one_seed)
    assert is_search(read_yaml(tmp_path / "sweep.yaml")), "one seed: the points of a search's grid"
    both = read(tmp_path, GOOD.replace("training.warmup: {value: 40}", "model.h: {values: [2, 4]}"))
    with pytest.raises(UserError, match=r"row 'A-h1' changes model\.h already"):
        both.factor_rows([all_rows()["A-h1"]])


def cases(name: str) -> list[list[str]]:
    """The fields of each line of a text beside this file."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n").split(" | ") for line in lines if not line.startswith("#")]


@pytest.mark.parametrize(("old", "new", "message"), cases("malformed_sweeps.txt"))
def test_malformed(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(UserError, match=message):
        read(tmp_path, GOOD.replace(old, new, 1))


def test_words_of_a_study_stand_beside_its_sweep_file_and_name_no_run(tmp_path):
    (tmp_path / "sweep.study.yaml").write_text("title: Mine\nquestion: Which?\n")
    sweep = read(tmp_path, GOOD)
    assert (sweep.title, sweep.question) == ("Mine", "Which?")
    for text, why in (
        ("titel: Mine\n", r"sweep.study.yaml:1: unknown key 'titel' \(value 'Mine'\): did you mean 'title'"),
        ("title: 3\n", "sweep.study.yaml:1: title=3: expected text"),
        ("question: |\n  one\n  two\n", r"sweep.study.yaml:1: question='one\\ntwo\\n': expected one line of words"),
        ("title: Mine\ntrials: 4\n", "sweep.study.yaml:2: unknown key 'trials'"),
    ):
        (tmp_path / "sweep.study.yaml").write_text(text)
        with pytest.raises(UserError, match=why):
            read(tmp_path, GOOD)


def test_labels_go_with_the_combinations_of_a_row(tmp_path):
    sweep = read(tmp_path, GOOD.replace("{value: 40}", "{values: [40, 80]}"))
    rows = sweep.factor_rows([all_rows()[name] for name in sweep.rows])
    assert {row.name: row.label for row in rows if row.label} == {
        f"A-h1, warmup={n}": f"one head, warmup={n}" for n in (40, 80)
    }


def test_new_words_enter_a_study_and_old_ones_stay_where_none_come(tmp_path):
    rows = [all_rows()[name] for name in ("base", "A-h1")]
    study = ablation(rows, name="s", title="Old")
    hashes = [cell.training_hash for cell in study.cells()]
    save(study, tmp_path)
    bare = [replace(row, label="") for row in rows]
    found = save(replace(study, title="", question="Why?", rows=bare), tmp_path)
    assert (found.title, found.question, found.rows[1].label) == ("Old", "Why?", "one head")
    found = save(replace(study, title="New", rows=[rows[0], replace(rows[1], label="a head")]), tmp_path)
    assert load(tmp_path, "s") == found and (found.title, found.rows[1].label) == ("New", "a head")
    assert [cell.training_hash for cell in found.cells()] == hashes


PACKAGE = Path(lightning_tfm.__file__).parent
OF_RESULTS = "status|table|report|resume|dashboard|demo|runs list|study hide|study show|wandb replay"


@pytest.mark.parametrize(
    ("root", "command"),
    [
        ("results", "lightning-tfm table mine"),
        (Path("results"), "lightning-tfm table mine"),
        ("my results", "lightning-tfm table mine --out 'my results'"),
        (Path("/there/results"), "lightning-tfm table mine --out /there/results"),
    ],
)
def test_a_place_is_named_where_it_is_not_the_default(root, command):
    assert with_out("lightning-tfm table mine", root) == command


@pytest.mark.parametrize("path", sorted(p for room in ("cli", "queue") for p in (PACKAGE / room).rglob("*.py")))
def test_no_verb_prints_a_command_that_would_look_elsewhere(path):
    """Of a run's own folder, or of a word that the reader is to fill in, there is nothing to add."""
    found = re.compile(
        rf"f[\"'].*lightning-tfm (?:{OF_RESULTS})\b(?! STUDY)[^\"']*\{{(?!folder|target or group)"
    ).search
    said = [line.strip() for line in path.read_text().splitlines() if found(line) and "with_out(" not in line]
    assert said == []


PYTHON = os.environ.get("LIGHTNING_TFM_SWEEPS_PYTHON", "")
WITH_SWEEPS = pytest.mark.skipif(
    not PYTHON, reason="set LIGHTNING_TFM_SWEEPS_PYTHON to check against W&B's package `sweeps`"
)
SCRIPT = """
import json, sys, yaml
from sweeps import SweepConfig, SweepRun, RunState, next_run
from sweeps.config import schema_violations_from_proposed_config
config = yaml.safe_load(open(sys.argv[1]))
violations = schema_violations_from_proposed_config(dict(config))
runs, found = [], []
config = SweepConfig(config)
if sys.argv[2] == "random":
    config["method"] = "random"
    config.pop("early_terminate", None)
for number in range(int(sys.argv[3])):
    run = next_run(config, runs)
    if run is None:
        break
    run.state = RunState.finished
    run.summary_metrics = {"dev/ppl": 5.0}
    runs.append(run)
    found.append({key: spec["value"] for key, spec in run.config.items()})
print(json.dumps([list(map(str, violations)), found]))
"""


def theirs(name: str, method: str, count: int) -> tuple[list[str], list[dict]]:
    command = [PYTHON, "-c", SCRIPT, str(Path("sweeps") / name), method, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    violations, found = json.loads(done.stdout.splitlines()[-1])
    return violations, found


def as_set(points: list[dict]) -> set[str]:
    return {json.dumps(point, sort_keys=True) for point in points}


@pytest.mark.long
@WITH_SWEEPS
def test_a_table_is_valid_and_yields_our_runs() -> None:
    violations, found = theirs("table3.yaml", "grid", 1000)
    sweep = read_sweep("sweeps/table3.yaml")
    assert violations == []
    assert as_set(found) == as_set([{"row": row, "seed": seed} for row in sweep.rows for seed in sweep.seeds])


@pytest.mark.long
@WITH_SWEEPS
def test_a_grid_is_valid_and_yields_our_points() -> None:
    violations, found = theirs("heads.yaml", "grid", 1000)
    assert violations == []
    assert as_set(found) == as_set(grid(read_search("sweeps/heads.yaml").space(Experiment())))


@pytest.mark.long
@WITH_SWEEPS
def test_a_search_is_valid_and_draws_from_our_ranges() -> None:
    violations, found = theirs("search.yaml", "random", 50)
    assert violations == [] and len(found) == 50
    for parameter in read_search("sweeps/search.yaml").space(Experiment()):
        for point in found:
            value = point[parameter.name]
            inside = value in parameter.listed if parameter.listed else parameter.low <= value <= parameter.high
            assert inside, (parameter.name, value)


@pytest.mark.long
@WITH_SWEEPS
def test_their_controller_refuses_a_tie_and_names_it(tmp_path: Path) -> None:
    file = tmp_path / "tied.yaml"
    file.write_text(
        "method: grid\nmetric: {name: dev/ppl, goal: minimize}\nparameters:\n  model.h: {values: [4, 8]}\n"
        "  model.d_k: {tie: model.d_model / model.h}\n"
        'command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]\n'
    )
    assert read_search(file).ties
    with pytest.raises(subprocess.CalledProcessError) as error:
        theirs(str(file), "grid", 1)
    assert "invalid hyperparameter configuration: model.d_k" in error.value.stderr
