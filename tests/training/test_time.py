"""Where a run's time went, in its record and in a trace."""

import json

import pytest

from lightning_tfm.config import Hardware
from tests.helpers.tiny import attempt, experiment, in_child, train, write_corpus


def test_the_record_says_where_the_time_went(tmp_path):
    run = in_child(train, experiment(write_corpus(tmp_path / "text"), training__steps=40), tmp_path)
    result = json.loads((run / "result.json").read_bytes())
    seconds, parts = result["seconds"], result["train_seconds"]
    assert set(parts) == {"forward", "backward", "optimizer"} and min(parts.values()) > 0
    assert sum(parts.values()) <= seconds["train"] + 0.002
    print(f"forward, backward and optimizer take {sum(parts.values()) / seconds['train']:.0%} of the time of training")
    assert {"data", "train", "validate", "checkpoint", "decode"} <= set(seconds)
    trained = seconds["train"] + seconds["data"]
    assert result["flops_per_second"] == pytest.approx(result["flops"] / trained, rel=0.01)


def test_the_time_of_parts_survives_a_stop(tmp_path):
    """Parts of an interrupted run are those of both its processes together."""
    e = experiment(write_corpus(tmp_path / "text"), training__steps=40)
    folder = in_child(stopped_at_20, e, tmp_path)
    before = json.loads((folder / "progress.json").read_bytes())["step"]
    assert before == 20
    run = in_child(train, e, tmp_path)
    result = json.loads((run / "result.json").read_bytes())
    assert result["attempts"] == 2
    assert all(seconds > LONG_AGO for seconds in result["train_seconds"].values())


LONG_AGO = 1000.0
"""seconds that the first process says it had spent on each part"""


def stopped_at_20(e, root):
    import os
    import signal

    from lightning_tfm.training.callback import RunCallback

    shown = RunCallback._show

    def show(self, step, phase, force=False):
        shown(self, step, phase, force=True)
        if step == 19:
            parts = self.tally.parts
            self.tally.parts = {part: seconds + LONG_AGO for part, seconds in parts.items()}
            os.kill(os.getpid(), signal.SIGTERM)

    RunCallback._show = show
    code, path = attempt(e, root, Hardware())
    assert code == 143
    return path


def test_a_profile_is_a_trace_of_ten_steps(tmp_path):
    e = experiment(write_corpus(tmp_path / "text"), model__N=1, training__steps=21)
    run = in_child(train, e, tmp_path, Hardware(profile=True, validate_every=21))
    events = json.loads((run / "profile" / "trace.json").read_bytes())["traceEvents"]
    assert sum(event.get("name") == "aten::_fused_adam_" for event in events) == 10
    assert "aten::bmm" in (run / "profile" / "operators.txt").read_text()
