"""The usual loop around torch.nn.Transformer: embeddings tied and scaled, sinusoids, torch's cross entropy and Adam."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.contestants.loop import PAD, training
from benchmarks.contestants.protocol import serve


class Model(nn.Module):
    """Encoder and decoder without the extra final norms; dropout where the paper has it, not inside sub-layers."""

    def __init__(self, sizes: dict[str, Any]):
        super().__init__()
        d_model = sizes["d_model"]
        self.core = nn.Transformer(
            d_model, sizes["h"], sizes["N"], sizes["N"], sizes["d_ff"], sizes["P_drop"], batch_first=True
        )
        self.core.encoder.norm = self.core.decoder.norm = None
        for layer in [*self.core.encoder.layers, *self.core.decoder.layers]:
            layer.dropout.p = 0.0
            for attention in (layer.self_attn, getattr(layer, "multihead_attn", layer.self_attn)):
                attention.dropout = 0.0
        self.embedding = nn.Embedding(sizes["V"], d_model, PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        position, i = torch.arange(512.0)[:, None], torch.arange(0, d_model, 2)
        angle = position * 10000.0 ** (-i / d_model)
        self.register_buffer("sinusoids", torch.stack((angle.sin(), angle.cos()), -1).flatten(1))
        self.register_buffer("future", nn.Transformer.generate_square_subsequent_mask(512).isinf())
        self.dropout = nn.Dropout(sizes["P_drop"])

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.sinusoids[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        T = target.shape[1]
        x = self.core(
            self.embed(source),
            self.embed(target),
            tgt_mask=self.future[:T, :T],
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return F.linear(x, self.embedding.weight)


def train(folder: Path, sizes: dict[str, Any]):
    model = Model(sizes)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        logits = model(source, target_in)
        return F.cross_entropy(
            logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=sizes["eps_ls"]
        )

    return training(folder, model, optimizer, loss)


if __name__ == "__main__":
    serve({"train": train})
