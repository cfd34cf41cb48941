"""One stack of N layers over source and target as one text (config: stack), in place of encoder and decoder.

L = S + T. Row b holds its n_b source pieces, then its T target positions, then what padding the source had. So the
target begins right after the source, positions are those of one text, and all padding is at the end but what the target
brings. The stack is held as `decoder`, of layers that are an encoder's; `encoder` has none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.model.attention import KeyValueCache
from lightning_tfm.model.config import Model
from lightning_tfm.model.dropout import Dropout
from lightning_tfm.model.positions import NoPositions
from lightning_tfm.model.transformer import EncoderLayer, Ids, SequenceModel, Transformer
from lightning_tfm.special_tokens import PAD


class ConcatenatedBatch:
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


def _rows(at_BT: Tensor, width: int) -> Tensor:
    """Places in rows of this many columns -> places in all rows one after another."""
    return (at_BT + width * torch.arange(len(at_BT), device=at_BT.device)[:, None]).flatten()


class OneStack(SequenceModel):
    """`prefix` sees the whole source and of the target what came before, `causal` only what came before."""

    decoder: Sequence[EncoderLayer]

    def build(self, c: Model) -> None:
        self.target_space_D = None
        self.encoder_positions, self.decoder_positions = NoPositions(self.sizes), self.at_embedding()
        self.decoder_dropout = Dropout(c.P_drop)
        layers = [EncoderLayer(c, s, i, True) for i, s in enumerate(self.at_attention(c.stack != "prefix"))]
        for layer in layers:
            layer.causal = c.stack == "causal"
        self.encoder = cast(Sequence[EncoderLayer], nn.ModuleList())
        self.decoder = cast(Sequence[EncoderLayer], nn.ModuleList(layers))
        self.encoder_norm = nn.Identity()

    def hidden(self, source_BS: Tensor, target_BT: Tensor, allowed: Tensor | None) -> Tensor:
        text = ConcatenatedBatch(source_BS, target_BT, self.max_length)
        pieces_BLD = text.join(self.look_up(source_BS, True), self.look_up(target_BT, False))
        x_BLD = self.decoder_dropout(self.with_positions(pieces_BLD, self.decoder_positions))
        mask = None if self.config.stack == "causal" else text.prefix()
        for layer in self.decoder:
            x_BLD = layer(x_BLD, mask)
        return self.decoder_norm(text.of_target(x_BLD))

    def dropouts(self) -> list[Dropout]:
        return [self.decoder_dropout, *(r.dropout for o in self.decoder for r in (o.residual_1, o.residual_2))]

    def by_layer(self, batch: Ids, source: Iterable[Tensor], target: Iterable[Tensor]) -> list[Tensor]:
        text = ConcatenatedBatch(batch.source_BS, batch.target_in_BT, self.max_length)
        return [text.join(*pair) for pair in zip(source, target, strict=True)]

    def batch_mask(self, keep_BHTT: Tensor, batch: Ids) -> Tensor:
        beyond = ConcatenatedBatch(batch.source_BS, batch.target_in_BT, self.max_length).L - keep_BHTT.shape[-1]
        return F.pad(keep_BHTT, (0, beyond, 0, beyond))


@dataclass
class SameLength:
    """Rows of a search whose sources have `length` pieces, so that their targets begin at one position."""

    length: int
    rows: Tensor
    caches: list[KeyValueCache]


class OneStackDecoder:
    """One piece at a time, as beam_search.CachedDecoder; sources of one length go through it together.

    Each has positions and cache of its own length, whatever positional scheme or layer type there is: no row sees what
    others of the batch are. What was decoded before is held for every beam, the source with it.
    """

    def __init__(self, model: OneStack, source_BS: Tensor):
        self.model, self.groups = model, list[SameLength]()
        lengths_B = (source_BS != PAD).sum(1)
        at_once = model.config.layer == "attention"  # other types keep their state one piece at a time
        for n in lengths_B.unique().tolist():
            rows = (lengths_B == n).nonzero()[:, 0]
            group = SameLength(n, rows, [layer.self_attention.new_cache() for layer in model.decoder])
            for start, pieces in enumerate(source_BS[rows, :n].split(n if at_once else 1, 1)):
                self._through(model.embed_target(pieces, start, of_source=True), group, start)
            self.groups.append(group)

    def step(self, pieces_R: Tensor, position: int) -> Tensor:
        x_RD = self.model.embedding_WD.new_empty(len(pieces_R), self.model.config.d_model)
        for group in self.groups:
            start = group.length + position
            x_R1D = self.model.embed_target(pieces_R[group.rows, None], start)
            x_RD[group.rows] = self._through(x_R1D, group, start)[:, 0].to(x_RD.dtype)
        return self.model.log_probabilities(x_RD)

    def _through(self, x_BTD: Tensor, group: SameLength, start: int) -> Tensor:
        for layer, cache in zip(self.model.decoder, group.caches, strict=True):
            x_BTD = layer(x_BTD, None, cache, start)
        return x_BTD

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        for group in self.groups:
            places = torch.isin(rows, group.rows).nonzero()[:, 0]
            for cache in group.caches:
                cache.select(torch.searchsorted(group.rows, rows[places]))
            group.rows = places
        if sentences is not None:
            self.groups = [group for group in self.groups if len(group.rows)]


def make_model(config: Model, V: int, seed: int = 0) -> SequenceModel:
    """The model that an experiment names: two stacks as in the paper, or one."""
    return (OneStack if config.one_stack else Transformer)(config, V, seed)
