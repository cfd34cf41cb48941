"""x-transformers' XTransformer with flash attention; positions are learned, projections have no biases."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from x_transformers import XTransformer

from benchmarks.contestants.loop import PAD, training
from benchmarks.contestants.protocol import serve


def build(sizes: dict[str, Any]) -> XTransformer:
    P_drop = sizes["P_drop"]
    side = {
        "num_tokens": sizes["V"],
        "max_seq_len": 512,
        "depth": sizes["N"],
        "heads": sizes["h"],
        "attn_dim_head": sizes["d_k"],
        "attn_flash": True,
        "attn_sublayer_dropout": P_drop,
        "ff_sublayer_dropout": P_drop,
        "ff_mult": sizes["d_ff"] / sizes["d_model"],
        "ff_custom_activation": nn.ReLU(),
        "emb_dropout": P_drop,
        "pre_norm": False,
    }
    options = {f"{prefix}_{name}": value for prefix in ("enc", "dec") for name, value in side.items()}
    return XTransformer(dim=sizes["d_model"], tie_token_emb=True, **options)


def train(folder: Path, sizes: dict[str, Any]):
    model = build(sizes)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        mask = source != PAD
        memory = model.encoder(source, mask=mask, return_embeddings=True)
        logits = model.decoder.net(target_in, context=memory, context_mask=mask)
        return F.cross_entropy(
            logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=sizes["eps_ls"]
        )

    return training(folder, model, optimizer, loss)


if __name__ == "__main__":
    serve({"train": train})
