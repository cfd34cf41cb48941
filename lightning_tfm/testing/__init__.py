"""Suites of checks to inherit, one for each kind of class that a user may add. They run under pytest unchanged.

from lightning_tfm.testing import SchemeSuite

class TestMine(SchemeSuite):
    scheme = "my_module.MyScheme"
"""

from lightning_tfm.testing.corpus import CorpusSuite
from lightning_tfm.testing.parts import (
    AttentionSuite,
    FeedForwardSuite,
    LayerSuite,
    NormSuite,
    ScheduleSuite,
    SchemeSuite,
)

__all__ = [
    "AttentionSuite",
    "CorpusSuite",
    "FeedForwardSuite",
    "LayerSuite",
    "NormSuite",
    "ScheduleSuite",
    "SchemeSuite",
]
