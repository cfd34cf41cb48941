"""NumPy may change what its Generator draws: that is found, said, and recorded."""

import numpy as np

from lightning_tfm import keys
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.runs import draws
from lightning_tfm.runs.environment import inexact


def test_the_draws_are_those_that_were_committed():
    assert draws.changed() == [] and draws.said() == ""
    assert set(draws.FIRST) == set(draws.first_draws())


def test_another_generator_is_found_and_recorded(monkeypatch):
    monkeypatch.setattr(draws, "generator", lambda *parts: np.random.Generator(np.random.PCG64(7)))
    assert draws.changed() == list(draws.FIRST)
    reasons = inexact(Experiment(), Hardware(accelerator="cpu"))
    assert len(reasons) == 1 and "other initial weights and orders" in reasons[0]


def test_initial_weights_and_orders_are_drawn_by_these_methods_alone():
    """The methods of `keys.generator` that the model and the plan call are all committed."""
    import ast
    from pathlib import Path

    package = Path(keys.__file__).parent
    called: set[str] = set()
    for path in (package / "model/init.py", package / "data/plan.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if owner.startswith("generator(") or owner == "random":
                    called.add(node.func.attr)
    assert called == set(draws.FIRST)
