"""Our sweep files against W&B's own controller, the package `sweeps`, which wants an older numpy than we do.

LIGHTNING_TFM_SWEEPS_PYTHON names the interpreter of an environment of its own:
python -m venv E; E/bin/pip install sweeps
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lightning_tfm.config import Experiment
from lightning_tfm.study.sweeps import grid, read_search, read_sweep

PYTHON = os.environ.get("LIGHTNING_TFM_SWEEPS_PYTHON", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON, reason="set LIGHTNING_TFM_SWEEPS_PYTHON to check against W&B's package `sweeps`"),
]
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


def test_a_table_is_valid_and_yields_our_runs() -> None:
    violations, found = theirs("table3.yaml", "grid", 1000)
    sweep = read_sweep("sweeps/table3.yaml")
    assert violations == []
    assert as_set(found) == as_set([{"row": row, "seed": seed} for row in sweep.rows for seed in sweep.seeds])


def test_a_grid_is_valid_and_yields_our_points() -> None:
    violations, found = theirs("heads.yaml", "grid", 1000)
    assert violations == []
    assert as_set(found) == as_set(grid(read_search("sweeps/heads.yaml").space(Experiment())))


def test_a_search_is_valid_and_draws_from_our_ranges() -> None:
    violations, found = theirs("search.yaml", "random", 50)
    assert violations == [] and len(found) == 50
    for parameter in read_search("sweeps/search.yaml").space(Experiment()):
        for point in found:
            value = point[parameter.name]
            inside = value in parameter.listed if parameter.listed else parameter.low <= value <= parameter.high
            assert inside, (parameter.name, value)


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
