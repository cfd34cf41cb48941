"""The schemes that ship with the package, each held to the suite that users' own inherit."""

from dataclasses import replace

import torch

from lightning_tfm.config import Model
from lightning_tfm.model.schemes import SCHEMES
from lightning_tfm.model.size import count_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.testing import SchemeSuite


class Shipped(SchemeSuite):
    def parameters(self, model: Model) -> int:
        return count_parameters(model, 31)["positions"]


class TestSinusoidal(Shipped):
    scheme = "sinusoidal"


class TestConcatenatedSinusoids(Shipped):
    scheme, sizes = "sinusoidal", replace(SchemeSuite.sizes, sinusoid_layout="concatenated")


class TestLearned(Shipped):
    scheme, bounded = "learned", True


class TestNone(Shipped):
    scheme, sees_order = "none", False


class TestRotary(Shipped):
    scheme = "rotary"


class TestShaw(Shipped):
    scheme = "shaw"


class TestALiBi(Shipped):
    scheme = "alibi"


def test_every_scheme_is_here():
    here = {cls.scheme for cls in Shipped.__subclasses__()}
    assert here == SCHEMES.keys()


def order_matters(positions: str) -> float:
    """How far the encoder's output moves, rows put back, when its input is reversed."""
    config = replace(SchemeSuite.sizes, positions=positions)
    model = Transformer(config, 31).double().eval()
    source = torch.randint(4, 31, (2, 7), generator=torch.Generator().manual_seed(7))
    return float((model.encode(source, None) - model.encode(source.flip(1), None).flip(1)).abs().max().detach())


def test_a_reversal_is_seen_by_all_but_none_and_alibi():
    blind = {positions for positions in SCHEMES if order_matters(positions) < 1e-12}
    assert blind == {"none", "alibi"}  # ALiBi sees distances, which a reversal keeps
