"""Rows that change the training text or the pieces it is cut into: each has its own prepared data.

Their perplexities are per different pieces, so such rows are compared by the nll per reference word.
"""

from dataclasses import dataclass
from typing import Any

from lightning_tfm.study.rows import ROW_DATA, Fingerprints


@dataclass(frozen=True)
class RowData:
    """Prepared data, as far as a study knows them."""

    prints: Fingerprints
    V: int
    """pieces of the vocabulary"""
    store: str
    """name under <root>/data"""


def data_key(change: dict[str, Any]) -> str:
    """What a row changes in the data, as a key to its prepared data; empty if it changes nothing."""
    return ", ".join(f"{key}={change[key]}" for key in ROW_DATA if key in change)
