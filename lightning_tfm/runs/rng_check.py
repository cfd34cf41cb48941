"""The random numbers behind initial weights and orders, compared with those of the releases they were made for.

Philox's words are fixed for good, but what NumPy's Generator makes of them is not: a release may change it (NEP 19).
Another NumPy would then train other runs under the same names.
"""

import hashlib
from importlib.metadata import version

from lightning_tfm.rng import generator

FIRST = {"standard_normal": "ca6fd564ae468b28", "random": "7bd16b647658f1e0", "permutation": "ec08d4938141c23e"}
"""method of numpy.random.Generator -> the first 16 hex digits of the sha256 of its first draws"""


def first_draws() -> dict[str, str]:
    """As FIRST, by the NumPy that is installed."""
    made = {
        "standard_normal": generator("draws", 1).standard_normal((61, 67)).round(9),  # libraries differ in a last bit
        "random": generator("draws", 2).random((61, 67)),
        "permutation": generator("draws", 3).permutation(100_003),
    }
    return {name: hashlib.sha256(drawn.tobytes()).hexdigest()[:16] for name, drawn in made.items()}


def changed_methods() -> list[str]:
    """The methods whose draws no longer match those written here."""
    return [name for name, digest in first_draws().items() if digest != FIRST[name]]


def rng_note() -> str:
    """A line for a record and for people where draws have changed, else empty."""
    names = ", ".join(changed_methods())
    return f"NumPy {version('numpy')} draws other numbers ({names}): other initial weights and orders" * bool(names)
