"""The half hour on a GPU, rehearsed on a CPU at tiny sizes: every stage comes to its end and says what it found."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import gpu
from benchmarks.gpu import stages
from tests.helpers.tiny import in_child

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu")
    limits = {name: (600, what) for name, (_, what) in gpu.STAGES.items()}

    def run(command, **how):
        """`facts` as it is, the others in forks: an interpreter of its own needs longer to import than most to run."""
        if command[3] == "facts":
            return subprocess.run(command, **how)
        in_child(stages.main, command[3:])
        return SimpleNamespace(returncode=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "STAGES", limits)  # a busy machine is no slow GPU
        patch.setattr(gpu, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))
        code = gpu.main(["--tiny", "--minutes", "60", "--out", str(out)])
    found = json.loads((out / "gpu.json").read_text())
    assert code == 0, {name: stage["ended"] for name, stage in found["stages"].items()}  # and the output has the logs
    return found


def test_every_stage_comes_to_its_end(record):
    assert list(record["stages"]) == list(gpu.STAGES)
    for name, stage in record["stages"].items():
        assert stage["ended"] == "whole" and stage["found"], name
        assert not [line for line in stage["found"] if "failed" in line], name
    assert all(line["came_through"] == line["count"] for line in record["stages"]["small"]["found"])


def test_what_a_cpu_can_check_is_checked(record):
    found = {line["what"]: line for line in record["stages"]["exact"]["found"]}
    passed = {what for what, line in found.items() if line.get("passed")}
    assert {"gradients are those of a cpu", "the same step twice", "killed and resumed"} <= passed
    not_here = {what for what, line in found.items() if str(line.get("why", "")).startswith("not possible here")}
    assert {"no step waits", "masks are numpys"} <= not_here
    assert found.keys() == passed | not_here | {"attention"}


def test_ceilings_are_of_nine_products_in_three_precisions(record):
    products = [line for line in record["stages"]["ceilings"]["found"] if line["what"] == "product"]
    assert len(products) == 27 and all(line["tflops"] >= 0 for line in products)
