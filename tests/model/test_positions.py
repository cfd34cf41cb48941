"""The schemes that ship with the package, each held to the suite that users' own inherit."""

from dataclasses import replace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_tfm.config import Model
from lightning_tfm.model.positions import PositionSizes
from lightning_tfm.model.relative import Shaw, look_up
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


def test_shaw_on_a_gpu_looks_up_by_a_product_and_neither_sorts_nor_adds_atomically():
    """The meta device stands for one: what is not a CPU takes the product."""

    class Names(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[str] = set()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.add(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    found = {}
    for device in ("cpu", "meta"):
        scheme = Shaw(PositionSizes(12, 2, 6, 9, "interleaved")).to(device)
        with Names() as names:
            scheme.bias(torch.zeros(3, 2, 5, 6, device=device, requires_grad=True), 5, 0).sum().backward()
        found[device] = {name for name in names.seen if "gather" in name or "scatter" in name or "index" in name}
    assert found == {"cpu": {"gather", "scatter_add", "scatter_add_"} & found["cpu"], "meta": set()}
    assert "gather" in found["cpu"]


def test_the_product_is_the_look_up_to_the_bit():
    scores = torch.randn(3, 2, 5, 7, requires_grad=True)
    index = torch.randint(7, (5, 9))
    found, expected = look_up(scores, index), scores.gather(3, index.expand(3, 2, 5, 9))
    assert torch.equal(found, expected)
    direction = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((x * direction).sum(), scores)[0] for x in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
