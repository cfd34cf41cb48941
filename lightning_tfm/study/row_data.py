"""Rows that change the training text or the pieces it is cut into: each has prepared data of its own.

Their perplexities are per other pieces, so such rows are compared by the nll per reference word.
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
    """What a row changes of the data, as text by which its prepared data are found; empty where it changes nothing."""
    return ", ".join(f"{key}={change[key]}" for key in ROW_DATA if key in change)
