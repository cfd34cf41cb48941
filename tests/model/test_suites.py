"""Every part of a model that ships is held to the suite that users' own inherit: by its name, with nothing to add."""

from dataclasses import replace
from typing import Any

import pytest

from lightning_tfm.config import Model
from lightning_tfm.registry import ATTENTIONS, FEED_FORWARDS, KINDS, LAYERS, NORMS, SCHEMES
from lightning_tfm.testing import AttentionSuite, FeedForwardSuite, LayerSuite, NormSuite, SchemeSuite
from lightning_tfm.testing.model import ModelSuite

SUITES = {SCHEMES.field: SchemeSuite, FEED_FORWARDS.field: FeedForwardSuite}
SUITES |= {NORMS.field: NormSuite, LAYERS.field: LayerSuite, ATTENTIONS.field: AttentionSuite}
SLOW = (
    "relu gelu relu2 geglu layer attention gru separable dilated restricted learned_scaled kerple fire shaw t5 softmax "
    "sigmoid differential"
).split()
"""what differs little from another that is held to its suite each time"""
SIZES: dict[str, dict[str, Any]] = {
    "gru": {"layer_width": "parameters"},
    "convolution": {"layer_width": "parameters", "kernel": 4},
    "restricted": {"neighbourhood": 3},
    "shaw_values": {"clip": 3},
    "mean": {"attention_where": "cross"},  # within one text it would see no order
}
OTHERS = [
    (SCHEMES, "sinusoidal", {"sinusoid_layout": "concatenated"}),
    (LAYERS, "restricted", {"neighbourhood": 4, "kv_heads": 1, "qk_norm": True}),
]


def suite_of(field: str, name: str, sizes: dict[str, Any]) -> type[ModelSuite]:
    suite = SUITES[field]
    named = next(key for key in suite.__annotations__ if key != "sizes")
    made: type[ModelSuite] = type("Shipped", (suite,), {named: name, "sizes": replace(suite.sizes, **sizes)})
    return made


def cases() -> list[Any]:
    found = [(field, name, SIZES.get(name, {})) for field in SUITES for name in KINDS[field]]
    found += [(kind.field, name, sizes) for kind, name, sizes in OTHERS]
    params = []
    for field, name, sizes in found:
        marks = [pytest.mark.long] * (name in SLOW and sizes == SIZES.get(name, {}))
        checks = [check for check in dir(SUITES[field]) if check.startswith("test_")]
        params += [pytest.param(field, name, sizes, check, marks=marks) for check in checks]
    return params


@pytest.mark.parametrize(("field", "name", "sizes", "check"), cases())
def test_what_ships_passes_its_suite(field: str, name: str, sizes: dict[str, Any], check: str) -> None:
    getattr(suite_of(field, name, sizes)(), check)()


@pytest.mark.parametrize("field", SUITES)
def test_a_part_that_ships_counts_its_parameters(field: str) -> None:
    model = Model()
    for name, part in KINDS[field].items():
        suite = suite_of(field, name, {})()
        assert suite.parameters(replace(model, **{field.partition(".")[2]: name})) is not None, part
