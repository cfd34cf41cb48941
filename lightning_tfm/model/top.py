"""The best pieces of each row of a large vocabulary, on a CPU."""

import torch
from torch import Tensor

BLOCK = 128
LARGE = 32 * BLOCK, 1 << 20
"""pieces, and values in all, from which two small searches are quicker than one"""


def top(x_BTW: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As x_BTW.topk(k): the k best lie in the k blocks with the largest maxima.

    Where values are equal, so that several answers would be right, it is topk itself that answers.
    """
    W = x_BTW.shape[-1]
    if W < LARGE[0] or x_BTW.numel() < LARGE[1] or k > BLOCK // 8 or x_BTW.device.type != "cpu":
        return x_BTW.topk(k, -1)
    x_RW = x_BTW.flatten(0, 1)
    whole = W // BLOCK * BLOCK
    best_RN = x_RW[:, :whole].unflatten(1, (-1, BLOCK)).amax(2)
    if whole < W:
        best_RN = torch.cat((best_RN, x_RW[:, whole:].amax(1, keepdim=True)), 1)
    most_RK, block_RK = best_RN.topk(k, 1)
    ids_RC = (block_RK[:, :, None] * BLOCK + torch.arange(BLOCK)).flatten(1)
    among_RC = x_RW.gather(1, ids_RC.clamp(max=W - 1)).masked_fill_(ids_RC >= W, -torch.inf)
    value_RK, place_RK = among_RC.topk(k, 1)
    blocks, candidates = (best_RN >= most_RK[:, -1:]).sum(), (among_RC >= value_RK[:, -1:]).sum()
    if int(torch.maximum(blocks, candidates)) > len(x_RW) * k or bool((value_RK[:, 1:] == value_RK[:, :-1]).any()):
        return x_BTW.topk(k, -1)
    piece_RK = ids_RC.gather(1, place_RK)
    return value_RK.view(*x_BTW.shape[:2], k), piece_RK.view(*x_BTW.shape[:2], k)
