"""Source and target of a batch as one text each, for one stack (config: stack). Shapes: see `transformer`; L = S + T.

Row b holds its n_b source pieces, then its T target positions, then what padding the source had. So the target begins
right after the source, positions are those of one text, and all padding is at the end but what the target brings.
"""

import torch
from torch import Tensor

from lightning_tfm.pieces import PAD


class Joined:
    """The order of a batch's positions in one text. `most` is the longest that the positional scheme can hold: where
    the two padded sides are longer, the columns beyond the longest row are left out."""

    def __init__(self, source_BS: Tensor, target_BT: Tensor, most: int):
        S, self.T = source_BS.shape[1], target_BT.shape[1]
        self.length_B1 = (source_BS != PAD).sum(1, keepdim=True)
        self.L = S + self.T
        if most < self.L:
            self.L = int((self.length_B1[:, 0] + (target_BT != PAD).sum(1)).max())
        at_L = torch.arange(self.L, device=source_BS.device)
        of_target = torch.where(at_L < self.length_B1 + self.T, at_L - self.length_B1 + S, at_L - self.T)
        self.order_BL = torch.where(at_L < self.length_B1, at_L, of_target)
        self.both = S + self.T

    def join(self, source_BSX: Tensor, target_BTX: Tensor) -> Tensor:
        """[..., B, S, X] and [..., B, T, X] -> [..., B, L, X]."""
        both = torch.cat((source_BSX, target_BTX), -2).flatten(-3, -2)
        return both.index_select(-2, _rows(self.order_BL, self.both)).unflatten(-2, self.order_BL.shape)

    def of_target(self, x_BLD: Tensor) -> Tensor:
        """[B, L, D] -> the target's positions [B, T, D]."""
        at_T = torch.arange(self.T, device=x_BLD.device)
        at_BT = (self.length_B1 + at_T).clamp(max=self.L - 1)  # beyond are only pads of the target
        return x_BLD.flatten(0, 1).index_select(0, _rows(at_BT, self.L)).unflatten(0, at_BT.shape)

    def prefix(self) -> Tensor:
        """bool [B, 1, L, L]: the keys that a query sees, the whole source and what came before."""
        at_L = torch.arange(self.L, device=self.length_B1.device)
        return ((at_L <= at_L[:, None]) | (at_L < self.length_B1[:, :, None]))[:, None]

    def among(self, keep_BHLL: Tensor | None) -> Tensor | None:
        """A mask of weights, as long as the text."""
        return None if keep_BHLL is None else keep_BHLL[:, :, : self.L, : self.L]


def _rows(at_BT: Tensor, width: int) -> Tensor:
    """Places in rows of this many columns -> places in all rows one after another."""
    return (at_BT + width * torch.arange(len(at_BT), device=at_BT.device)[:, None]).flatten()
