"""Self-attention restricted to a neighbourhood of r positions (section 4 of the paper), at a cost of O(r n d)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import KeyValueCache, SelfAttention, merge_heads, shared
from lightning_tfm.model.positions import BiasScheme, PositionScheme


class NearbyCache(KeyValueCache):
    """The keys and values of the last pieces alone: what the next one needs."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def append(self, k_BH1K: Tensor, v_BH1V: Tensor) -> tuple[Tensor, Tensor]:
        k_BHTK, v_BHTV = super().append(k_BH1K, v_BH1V)
        self.k_BHTK, self.v_BHTV = k_BHTK[:, :, -self.most :], v_BHTV[:, :, -self.most :]
        return self.k_BHTK, self.v_BHTV


class RestrictedSelfAttention(SelfAttention):
    """A query sees r keys: in the decoder its own and the r - 1 before it, in the encoder those around it.

    Where r is even the encoder sees one more before than after. Texts are cut into blocks of r queries, each with the
    2r - 1 keys that any of them sees; where these would be all keys anyway, the whole matrix is masked instead.
    """

    def __init__(self, c: Model, scheme: PositionScheme | None, causal: bool):
        if isinstance(scheme, BiasScheme):
            raise UserError(
                f"model.positions={c.positions} adds to the scores of all keys: model.layer=restricted has few"
            )
        super().__init__(c, scheme)
        self.r = c.neighbourhood
        self.before = self.r - 1 if causal else self.r // 2

    def near(self, T: int, S: int, device: torch.device) -> Tensor:
        """bool [T, S]: which of S keys, of which the first `before` precede the first query, each query sees."""
        offset_TS = torch.arange(S, device=device) - torch.arange(T, device=device)[:, None]
        return (offset_TS >= 0) & (offset_TS < self.r)

    def forward(
        self,
        x_BTD: Tensor,
        allowed: Tensor | None,
        causal: bool,
        cache: KeyValueCache | None = None,
        start: int = 0,
        keep: Tensor | None = None,
    ) -> Tensor:
        assert keep is None, "contradictions.check: no dropout of restricted weights"
        q, k, v = self.heads(x_BTD, start)
        if cache is not None:
            k, v = cache.append(k, v)
            return self.W_O(merge_heads(self.compare(q, shared(k, self.h), shared(v, self.h), None, False)))
        k, v = shared(k, self.h), shared(v, self.h)
        if x_BTD.shape[1] <= 2 * self.r - 1:
            mask = self.whole(x_BTD.shape[1], allowed, x_BTD.device)
            return self.W_O(merge_heads(self.compare(q, k, v, mask, False)))
        return self.W_O(merge_heads(self.blocked(q, k, v, allowed)))

    def whole(self, T: int, allowed: Tensor | None, device: torch.device) -> Tensor:
        """[1 or B, 1, T, T]; a query beyond its text's end sees itself, so that its result is a number."""
        seen = self.near(T, T + self.r - 1, device)[:, self.before : self.before + T][None, None]
        if allowed is None:
            return seen
        return (seen & allowed) | torch.eye(T, dtype=torch.bool, device=device)

    def blocked(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, allowed: Tensor | None) -> Tensor:
        """Every block of r queries with its keys as a sentence of its own -> [B, H, T, V]."""
        B, T = q_BHTK.shape[0], q_BHTK.shape[2]
        r, after = self.r, self.r - 1 - self.before
        blocks = -(-T // r)
        missing = blocks * r - T

        def windows(x_BHTX: Tensor) -> Tensor:
            """-> [B * blocks, H, 2r - 1, X]."""
            wide = F.pad(x_BHTX, (0, 0, self.before, after + missing))
            return wide.unfold(2, 2 * r - 1, r).permute(0, 2, 1, 4, 3).flatten(0, 1)

        true_B1T1 = torch.ones(1, 1, T, 1, device=q_BHTK.device) if allowed is None else allowed[:, :, 0, :, None]
        there = windows(true_B1T1.to(q_BHTK.dtype))[..., 0] > 0  # [(B or 1) * blocks, 1, 2r - 1]
        itself = torch.eye(2 * r - 1, dtype=torch.bool, device=q_BHTK.device)[self.before : self.before + r]
        seen = (self.near(r, 2 * r - 1, q_BHTK.device) & there[:, :, None]) | itself
        if allowed is None:
            seen = seen.repeat(B, 1, 1, 1)
        q = F.pad(q_BHTK, (0, 0, 0, missing)).unflatten(2, (blocks, r)).transpose(1, 2).flatten(0, 1)
        found = self.compare(q, windows(k_BHTK), windows(v_BHTV), seen, False)
        return found.unflatten(0, (B, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :T]

    def new_cache(self) -> KeyValueCache:
        return NearbyCache(self.r)
