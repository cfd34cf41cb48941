"""Random numbers that depend on names, not on a state: every draw starts from a key.

Philox 4x64-10 is a counter-based generator (Salmon et al. 2011): the same key and counter give the same numbers on any
machine, in any order, with nothing to save or restore.
"""

import hashlib

import numpy as np


def key(*parts: object) -> np.ndarray:
    """128-bit Philox key, shape [2] of uint64, from the printed forms of `parts`."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)


def generator(*parts: object) -> np.random.Generator:
    """Generator keyed only by `parts`."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))
