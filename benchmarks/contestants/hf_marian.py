"""Hugging Face MarianMT, built from a configuration; AdamW fused, as its Trainer has it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel

from benchmarks.contestants.loop import BOS, EOS, PAD, sources, training
from benchmarks.contestants.protocol import serve


def build(sizes: dict[str, Any]) -> MarianMTModel:
    config = MarianConfig(
        vocab_size=sizes["V"],
        d_model=sizes["d_model"],
        encoder_layers=sizes["N"],
        decoder_layers=sizes["N"],
        encoder_attention_heads=sizes["h"],
        decoder_attention_heads=sizes["h"],
        encoder_ffn_dim=sizes["d_ff"],
        decoder_ffn_dim=sizes["d_ff"],
        activation_function="relu",
        dropout=sizes["P_drop"],
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_position_embeddings=512,
        scale_embedding=True,
        tie_word_embeddings=True,
        share_encoder_decoder_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


def train(folder: Path, sizes: dict[str, Any]):
    model = build(sizes)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, weight_decay=0.0, fused=True)

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        logits = model(input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target_in).logits
        return F.cross_entropy(
            logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=sizes["eps_ls"]
        )

    return training(folder, model, optimizer, loss)


@torch.no_grad()
def take(model: MarianMTModel, weights: dict[str, Tensor], sizes: dict[str, Any]) -> None:
    """Give `model` our weights: no attention biases, our sinusoids, our epsilon."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    core = model.model
    core.shared.weight.copy_(weights["embedding_WD"])
    position, i = torch.arange(512.0)[:, None], torch.arange(0, sizes["d_model"], 2)
    angle = position * 10000.0 ** (-i / sizes["d_model"])
    table = torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
    width = sizes["h"] * sizes["d_k"]
    for side, stack in (("encoder", core.encoder), ("decoder", core.decoder)):
        stack.embed_positions.weight.copy_(table[: stack.embed_positions.weight.shape[0]])
        for number, layer in enumerate(stack.layers):
            ours = {
                k.removeprefix(f"{side}.{number}."): v for k, v in weights.items() if k.startswith(f"{side}.{number}.")
            }
            q, k, v = ours["self_attention.W_QKV.weight"].split(width)
            _attention(layer.self_attn, q, k, v, ours["self_attention.W_O.weight"])
            norms = [layer.self_attn_layer_norm, layer.final_layer_norm]
            if side == "decoder":
                k, v = ours["cross_attention.W_KV.weight"].split(width)
                _attention(
                    layer.encoder_attn, ours["cross_attention.W_Q.weight"], k, v, ours["cross_attention.W_O.weight"]
                )
                norms.insert(1, layer.encoder_attn_layer_norm)
            for n, norm in enumerate(norms, 1):
                norm.weight.copy_(ours[f"residual_{n}.norm.weight"])
                norm.bias.copy_(ours[f"residual_{n}.norm.bias"])
                norm.eps = 1e-6
            for theirs, mine in ((layer.fc1, "W_1"), (layer.fc2, "W_2")):
                theirs.weight.copy_(ours[f"feed_forward.{mine}.weight"])
                theirs.bias.copy_(ours[f"feed_forward.{mine}.bias"])


def _attention(attention, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> None:
    for name, weight in (("q_proj", q), ("k_proj", k), ("v_proj", v), ("out_proj", o)):
        getattr(attention, name).weight.copy_(weight)


def decode(folder: Path, sizes: dict[str, Any], early: bool | str):
    model = build(sizes)
    take(model, torch.load(folder / "weights.pt"), sizes)
    model.tie_weights()
    model.eval()

    @torch.no_grad()
    def translate(number: int) -> list[list[int]]:
        source, limit = sources(folder, number)
        ids = model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=4,
            length_penalty=0.6,
            early_stopping=early,
            max_new_tokens=limit,
            do_sample=False,
        )
        return [[x for x in row if x not in (PAD, BOS, EOS)] for row in ids.tolist()]

    return translate, {}


if __name__ == "__main__":
    serve(
        {
            "train": train,
            "decode": lambda folder, sizes: decode(folder, sizes, True),
            "decode_exact": lambda folder, sizes: decode(folder, sizes, "never"),
        }
    )
