"""NumPy may change what its Generator draws: that is found, said, and recorded."""

import numpy as np

from lightning_tfm import rng
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.runs import rng_check
from lightning_tfm.runs.environment import inexact


def test_the_draws_are_those_that_were_committed():
    assert rng_check.changed() == [] and rng_check.said() == ""
    assert set(rng_check.FIRST) == set(rng_check.first_draws())


def test_another_generator_is_found_and_recorded(monkeypatch):
    monkeypatch.setattr(rng_check, "generator", lambda *parts: np.random.Generator(np.random.PCG64(7)))
    assert rng_check.changed() == list(rng_check.FIRST)
    reasons = inexact(Experiment(), Hardware(accelerator="cpu"))
    assert len(reasons) == 1 and "other initial weights and orders" in reasons[0]


def test_initial_weights_and_orders_are_drawn_by_these_methods_alone():
    """The methods of `keys.generator` that the model and the plan call are all committed."""
    import ast
    from pathlib import Path

    package = Path(rng.__file__).parent
    called: set[str] = set()
    for path in (package / "model/init.py", package / "data/plan.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if owner.startswith("generator(") or owner == "random":
                    called.add(node.func.attr)
    assert called == set(rng_check.FIRST)
