"""What was measured of layer types: Table 1 of the paper (section 4), in numbers. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from lightning_tfm.schema import Kept


@dataclass(frozen=True)
class Exponent:
    """Of one size in a power law: least squares of logarithms, and two standard errors of the fit to either side.

    A count has no noise, so these are not a confidence interval but a misfit: 0 where the count is one power law, large
    where it is a sum of several.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Printed:
    """Table 1 of the paper; what is marked * only the text of section 4 has.

    The table's path of convolutions is log_k n, which the text gives for dilated ones; n / k for contiguous kernels.
    """

    operations: str
    sequential: str
    path: str


PAPER = {
    "attention": Printed("n² d", "1", "1"),
    "restricted": Printed("r n d", "1", "n / r"),
    "lstm": Printed("n d²", "n", "n"),
    "gru": Printed("n d²", "n", "n"),
    "convolution": Printed("k n d²", "1", "n / k *"),
    "separable": Printed("k n d + n d² *", "1", "n / k *"),
    "dilated": Printed("k n d²", "1", "log_k n"),
}


@dataclass(frozen=True)
class LayerMeasures:
    """One type, of the encoder. Keys of `seconds`, `flops`, `chain` and `layers` are lengths n."""

    layer: str
    parameters: int
    between: dict[str, Exponent]
    """by n, d, and k or r: operations of what relates positions to each other, without maps of single positions"""
    whole: dict[str, Exponent]
    """of the whole layer"""
    flops: dict[int, int]
    """operations of the whole layer at d"""
    seconds: dict[int, float]
    """of one pass over one text at d, the least of several"""
    chain: dict[int, int]
    """operators that wait for each other, at most, in the traced graph: views and copies are none, cells unfused, and a
    product over n keys is one"""
    layers: dict[int, int | None]
    """layers after which every output depends on every input; None: more than were tried"""

    @property
    def short(self) -> str:
        """Of a user-defined class its name, without its module."""
        return self.layer.rpartition(".")[2][:11]


@dataclass(frozen=True)
class LayerTable(Kept):
    """All types at the same sizes."""

    d_model: int
    h: int
    kernel: int
    neighbourhood: int
    machine: str
    took: float
    """seconds for all of it"""
    rows: list[LayerMeasures]


def crossing(costs: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """The length from which on `costs` are more than `other`; between two measured ones by straight lines per position.

    Operations per position are straight lines in n, so that theirs is exact. None where it never does, 0 where it does
    from the first length on.
    """
    lengths = sorted(costs.keys() & other.keys())
    more = [n for n in lengths if costs[n] > other[n]]
    if not more or more[-1] != lengths[-1]:
        return None
    below = [n for n in lengths if costs[n] <= other[n]]
    if not below:
        return 0.0
    left, right = below[-1], min(n for n in lengths if n > below[-1])
    a, b = ((costs[n] - other[n]) / n for n in (left, right))
    return left + (right - left) * -a / (b - a)
