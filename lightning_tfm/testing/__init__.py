"""Suites of checks to inherit, one for each kind of class that a user may add. They run under pytest unchanged.

from lightning_tfm.testing import SchemeSuite

class TestMine(SchemeSuite):
    scheme = "my_module.MyScheme"
"""

from lightning_tfm.testing.attention import AttentionSuite
from lightning_tfm.testing.corpus import CorpusSuite
from lightning_tfm.testing.feed_forward import FeedForwardSuite, NormSuite
from lightning_tfm.testing.layer import LayerSuite
from lightning_tfm.testing.schedule import ScheduleSuite
from lightning_tfm.testing.scheme import SchemeSuite

__all__ = [
    "AttentionSuite",
    "CorpusSuite",
    "FeedForwardSuite",
    "LayerSuite",
    "NormSuite",
    "ScheduleSuite",
    "SchemeSuite",
]
