"""`python -m benchmarks gpu` keeps what it has whatever becomes of a stage."""

import json
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from benchmarks import gpu
from benchmarks.gpu import stages as real_stages
from tests.helpers.tiny import forget_ours, in_child


@pytest.fixture
def stages(monkeypatch, tmp_path):
    """`run(programs)`: stages that are these Python programs; what each writes is its first line."""

    def run(programs: dict[str, str], seconds: float = 60.0) -> tuple[int, dict]:
        whole = gpu.subprocess.run

        def instead(command, **how):
            name = command[3]
            line = f"import time; open({str(tmp_path / name) + '.jsonl'!r}, 'w').write({json.dumps({'a': 1})!r})\n"
            return whole([sys.executable, "-S", "-c", line + programs[name]], **how)

        monkeypatch.setattr(gpu.subprocess, "run", instead)
        monkeypatch.setattr(gpu, "STAGES", dict.fromkeys(programs, (2, "")))
        code = gpu.run(list(programs), tmp_path, seconds, tiny=True)
        return code, json.loads((tmp_path / "gpu.json").read_text())["stages"]

    return run


def test_a_stage_that_fails_or_hangs_keeps_its_lines_and_stops_no_other(stages, capfd):
    code, found = stages({"one": "raise SystemExit('no such device')", "two": "time.sleep(60)", "three": "pass"})
    assert code == 1 and [stage["found"] for stage in found.values()] == [[{"a": 1}]] * 3
    assert [stage["ended"] for stage in found.values()] == [
        "exit code 1, see one.log",
        "stopped after 2 seconds",
        "whole",
    ]
    assert "one: exit code 1, see one.log, 1 lines\nno such device\ntwo: " in capfd.readouterr().out


def test_what_the_minutes_do_not_reach_is_said(stages):
    code, found = stages({"one": "pass"}, seconds=1.0)
    assert code == 1 and found["one"] == {"ended": "not begun: the minutes are used up", "found": []}


def test_unknown_stages_are_refused(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--stages", "facts,guesses"])
    assert "unknown stages guesses" in capsys.readouterr().err


def test_the_first_stages_fit_ten_minutes_and_all_of_them_thirty():
    assert sum(gpu.STAGES[name][0] for name in gpu.FIRST.split(",")) <= 600
    assert sum(seconds for seconds, _ in gpu.STAGES.values()) <= 1800


def test_first_is_the_stages_that_ten_minutes_hold(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(gpu, "run", lambda names, *_: asked.extend(names) or 0)
    assert gpu.main(["--stages", "first", "--out", str(tmp_path)]) == 0
    assert asked == gpu.FIRST.split(",")


def test_the_clock_starts_when_nothing_was_compiled_for_twenty_steps(tmp_path):
    from types import SimpleNamespace

    from benchmarks.gpu.setting import WARM, Pace, Place

    watch = Pace(Place(tmp_path, True, "today"), seconds=0.0)
    compiled = iter([1, 2, 2, 2, 3] + [3] * WARM)
    watch.compiled, trainer = lambda: next(compiled), SimpleNamespace(should_stop=False)
    batch = SimpleNamespace(target_tokens=7, source_tokens=5)
    for _ in range(4 + WARM):
        watch.on_train_batch_end(trainer, None, None, batch, 0)
        assert watch._began is None
    for _ in range(2):
        watch.on_train_batch_end(trainer, None, None, batch, 0)
    assert (watch.steps, watch.tokens, watch.warm, trainer.should_stop) == (1, 7, True, True)


def test_sentences_of_the_benchmark_are_slices_of_one_array():
    from benchmarks.gpu.setting import News

    text = News(500, 60, 40)
    for side, draw in enumerate((text.source, text.target)):
        for i in (0, 7, 499):
            piece = draw(i)
            assert piece.base is text.pieces and len(piece) == text.lengths[side][i] - 1
            assert piece.min() >= 4 and piece.max() < 60


def test_the_stages_need_neither_optuna_nor_wandb_nor_sacrebleu():
    """Nor pydantic: whoever rents a GPU takes the machine as it is."""

    def without_them() -> None:
        forget_ours("optuna", "wandb", "sacrebleu", "pydantic", "triton")
        for name in ("benchmarks.gpu.stages", "lightning_tfm.study.settings"):
            import_module(name)

    in_child(without_them)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu")
    limits = {name: (600, what) for name, (_, what) in gpu.STAGES.items()}

    def run(command, **how):
        """`facts` as it is, the others in forks: an interpreter of its own needs longer to import than most to run."""
        if command[3] == "facts":
            return subprocess.run(command, **how)
        in_child(real_stages.main, command[3:])
        return SimpleNamespace(returncode=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "STAGES", limits)  # a busy machine is no slow GPU
        patch.setattr(gpu, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))
        code = gpu.main(["--tiny", "--minutes", "60", "--out", str(out)])
    found = json.loads((out / "gpu.json").read_text())
    assert code == 0, {name: stage["ended"] for name, stage in found["stages"].items()}  # and the output has the logs
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_stage_comes_to_its_end(record):
    assert list(record["stages"]) == list(gpu.STAGES)
    for name, stage in record["stages"].items():
        assert stage["ended"] == "whole" and stage["found"], name
        assert not [line for line in stage["found"] if "failed" in line], name
    assert all(line["came_through"] == line["count"] for line in record["stages"]["small"]["found"])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_a_cpu_can_check_is_checked(record):
    found = {line["what"]: line for line in record["stages"]["exact"]["found"]}
    passed = {what for what, line in found.items() if line.get("passed")}
    assert {"gradients are those of a cpu", "the same step twice", "killed and resumed"} <= passed
    not_here = {what for what, line in found.items() if str(line.get("why", "")).startswith("not possible here")}
    assert {"no step waits", "masks are numpys"} <= not_here
    assert found.keys() == passed | not_here | {"attention"}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ceilings_are_of_nine_products_in_three_precisions(record):
    products = [line for line in record["stages"]["ceilings"]["found"] if line["what"] == "product"]
    assert len(products) == 27 and all(line["tflops"] >= 0 for line in products)
