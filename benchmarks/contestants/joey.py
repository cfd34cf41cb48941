"""JoeyNMT: its model, its loss (which counts correct tokens, too) and its beam search."""

from pathlib import Path
from typing import Any

import torch
from joeynmt.model import build_model
from joeynmt.search import beam_search
from torch import Tensor

from benchmarks.contestants.loop import BOS, EOS, PAD, sources, training
from benchmarks.contestants.protocol import serve


class Vocabulary:
    """What JoeyNMT's models ask of a vocabulary."""

    pad_index, unk_index, bos_index, eos_index, sep_index = PAD, 1, BOS, EOS, None
    specials: tuple[str, ...] = ()
    lang_tags: tuple[str, ...] = ()

    def __init__(self, V: int):
        self.V = V

    def __len__(self) -> int:
        return self.V


def build(sizes: dict[str, Any]):
    stack = {
        "type": "transformer",
        "num_layers": sizes["N"],
        "num_heads": sizes["h"],
        "embeddings": {"embedding_dim": sizes["d_model"], "scale": True, "dropout": sizes["P_drop"]},
        "hidden_size": sizes["d_model"],
        "ff_size": sizes["d_ff"],
        "dropout": sizes["P_drop"],
        "layer_norm": "post",
    }
    vocabulary = Vocabulary(sizes["V"])
    config = {"tied_embeddings": True, "tied_softmax": True, "encoder": stack, "decoder": dict(stack)}
    model = build_model(config, vocabulary, vocabulary)
    for name, module in model.named_modules():  # dropout where the paper has it, not inside sub-layers
        if name.endswith(("att.dropout", "pwff_layer.2")):
            module.p = 0.0
    return model


def train(folder: Path, sizes: dict[str, Any]):
    model = build(sizes)
    model.loss_function = ("crossentropy", sizes["eps_ls"])
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        length = (source != PAD).sum(1)
        total, _, _, _ = model(
            return_type="loss",
            src=source,
            trg_input=target_in,
            trg=target_out,
            src_mask=(source != PAD).unsqueeze(1),
            src_length=length,
            trg_mask=(target_out != PAD).unsqueeze(1),
        )
        return total / (target_out != PAD).sum()

    return training(folder, model, optimizer, loss)


@torch.no_grad()
def take(model, weights: dict[str, Tensor], sizes: dict[str, Any]) -> None:
    """Give `model` our weights: no attention biases."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    model.src_embed.lut.weight.copy_(weights["embedding_WD"])
    width = sizes["h"] * sizes["d_k"]
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, side).layers):
            head = f"{side}.{number}."
            ours = {k.removeprefix(head): v for k, v in weights.items() if k.startswith(head)}
            parts = [*ours["self_attention.W_QKV.weight"].split(width), ours["self_attention.W_O.weight"]]
            if side == "encoder":
                _attention(layer.src_src_att, *parts)
                norms = [layer.layer_norm]
            else:
                _attention(layer.trg_trg_att, *parts)
                keys_values = ours["cross_attention.W_KV.weight"].split(width)
                _attention(
                    layer.src_trg_att,
                    ours["cross_attention.W_Q.weight"],
                    *keys_values,
                    ours["cross_attention.W_O.weight"],
                )
                norms = [layer.x_layer_norm, layer.dec_layer_norm]
            for n, norm in enumerate([*norms, layer.feed_forward.layer_norm], 1):
                norm.weight.copy_(ours[f"residual_{n}.norm.weight"])
                norm.bias.copy_(ours[f"residual_{n}.norm.bias"])
            for index, mine in ((0, "W_1"), (3, "W_2")):
                linear = layer.feed_forward.pwff_layer[index]
                linear.weight.copy_(ours[f"feed_forward.{mine}.weight"])
                linear.bias.copy_(ours[f"feed_forward.{mine}.bias"])


def _attention(attention, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> None:
    for name, weight in (("q_layer", q), ("k_layer", k), ("v_layer", v), ("output_layer", o)):
        getattr(attention, name).weight.copy_(weight)


def decode(folder: Path, sizes: dict[str, Any]):
    model = build(sizes)
    take(model, torch.load(folder / "weights.pt"), sizes)
    model.eval()

    @torch.no_grad()
    def translate(number: int) -> list[list[int]]:
        source, limit = sources(folder, number)
        mask = (source != PAD).unsqueeze(1)
        memory, _, _, _ = model(return_type="encode", src=source, src_length=(source != PAD).sum(1), src_mask=mask)
        ids, _, _ = beam_search(model, 4, memory, None, mask, limit, 0.6)
        rows = [row.tolist() for row in torch.as_tensor(ids)]
        return [[x for x in row if x not in (PAD, EOS)] for row in rows]

    return translate, {}


if __name__ == "__main__":
    serve({"train": train, "decode": decode})
