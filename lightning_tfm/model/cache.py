"""What decoding keeps from one piece to the next. Shapes: see `transformer`; G heads of keys and values."""

import torch
from torch import Tensor


class State:
    """What a layer keeps: tensors with the rows of the batch in dimension `rows_at`; none before the first piece."""

    def __init__(self, rows_at: int = 0) -> None:
        self.tensors: tuple[Tensor, ...] = ()
        self.rows_at = rows_at

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder rows of the batch."""
        self.tensors = tuple(tensor.index_select(self.rows_at, rows) for tensor in self.tensors)


class KeyValueCache:
    """Keys and values of the pieces decoded so far, one self-attention layer: [B, G, T, K] and [B, G, T, V]."""

    def __init__(self) -> None:
        self.k_BHTK: Tensor | None = None
        self.v_BHTV: Tensor | None = None

    def append(self, k_BH1K: Tensor, v_BH1V: Tensor) -> tuple[Tensor, Tensor]:
        if self.k_BHTK is None or self.v_BHTV is None:
            self.k_BHTK, self.v_BHTV = k_BH1K, v_BH1V
        else:
            self.k_BHTK = torch.cat((self.k_BHTK, k_BH1K), 2)
            self.v_BHTV = torch.cat((self.v_BHTV, v_BH1V), 2)
        return self.k_BHTK, self.v_BHTV

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder rows of the batch."""
        if self.k_BHTK is not None and self.v_BHTV is not None:
            self.k_BHTK, self.v_BHTV = self.k_BHTK.index_select(0, rows), self.v_BHTV.index_select(0, rows)
