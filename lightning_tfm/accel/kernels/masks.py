"""Dropout masks drawn where they are used, bit for bit those of training/masks.py, which is their formula.

Philox4x64-10 (Salmon et al. 2011): the counter (block, sentence, step, side) under the key gives four 64-bit numbers,
sixteen 16-bit words, of which word i of a sentence decides element i in the order (stream, position, channel). NumPy
raises the counter before it draws, so that the first block of a sentence is block 1.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightning_tfm.accel.kernels import kernel

FACTOR_0, FACTOR_1 = tl.constexpr(0xD2E7470EE14C6C93), tl.constexpr(0xCA5A826395121157)
WEYL_0, WEYL_1 = tl.constexpr(0x9E3779B97F4A7C15), tl.constexpr(0xBB67AE8584CAA73B)
LEAST, MOST = 32, 256
"""blocks of sixteen words that one program draws"""
VARYING = ("key", "index", "lengths", "B", "L", "step", "side", "limit")
"""arguments that one compiled kernel takes at any value, 1 and multiples of sixteen included"""


def draw(out, kept, key, index, lengths, B, L, D, step, side, limit, BLOCK: tl.constexpr):
    """out [streams, B, L, D]: `kept` where a word, read as signed, is at least `limit`, else 0; beyond a sentence's
    length the word is 0. Programs (row = stream * B + sentence, part of a row): only the first axis of a grid may pass
    65,535."""
    row = tl.program_id(0)
    sentence = row % B
    cells = tl.load(lengths + sentence) * D  # words of this sentence in one stream
    begin = (row // B) * cells
    block = begin // 16 + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k0 = tl.load(key).to(tl.uint64, bitcast=True)
    k1 = tl.load(key + 1).to(tl.uint64, bitcast=True)
    c0 = (block + 1).to(tl.uint64)
    c1 = tl.zeros_like(c0) + tl.load(index + sentence).to(tl.uint64)
    c2 = tl.zeros_like(c0) + step.to(tl.uint64)
    c3 = tl.zeros_like(c0) + side.to(tl.uint64)
    for _ in tl.static_range(10):
        high_0, low_0 = tl.umulhi(c0, FACTOR_0), c0 * FACTOR_0
        high_1, low_1 = tl.umulhi(c2, FACTOR_1), c2 * FACTOR_1
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0 += WEYL_0
        k1 += WEYL_1
    numbers = tl.join(tl.join(c0, c2), tl.join(c1, c3)).reshape(BLOCK, 4, 1)
    shifts = (16 * tl.arange(0, 4)).to(tl.uint64)[None, None, :]
    words = (numbers >> shifts).to(tl.int16).reshape(BLOCK, 16)
    cell = (block * 16 - begin)[:, None] + tl.arange(0, 16)[None, :]
    words = tl.where(cell < cells, words, 0)
    value = tl.where(words >= limit.to(tl.int16), tl.load(kept), 0)
    tl.store(out + row.to(tl.int64) * L * D + cell, value, mask=(cell >= 0) & (cell < L * D))


def masks(
    kept: Tensor, key: Tensor, index_B: Tensor, lengths_B: Tensor, shape: tuple[int, int, int], where: tuple[int, int],
    dropped: int,
) -> Tensor:  # fmt: skip
    """[streams, B, L, D] on the device and in the dtype of `kept`, which holds 1 / (1 - P).

    `key` holds the two halves of the Philox key as int64, `shape` is (streams, L, D), `where` is (step, side); words
    below `dropped` of 65536 drop their element. Nothing waits for the device.
    """
    (streams, L, D), (step, side), B = shape, where, len(index_B)
    out = torch.empty(streams, B, L, D, dtype=kept.dtype, device=kept.device)
    if out.numel():
        blocks = L * D // 16 + 2 * bool(D % 16)  # a block may span two streams
        block = min(MOST, max(LEAST, triton.next_power_of_2(D // 2)))  # of eight positions: the same in every batch
        numbers = (B, L, D, step, side, dropped - 32768)
        grid = (streams * B, triton.cdiv(blocks, block))
        kernel(draw, VARYING)[grid](out, kept, key, index_B, lengths_B, *numbers, BLOCK=block)
    return out
