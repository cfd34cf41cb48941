"""CTranslate2, float32, with our weights put into its specification of a Transformer."""

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from benchmarks.contestants.protocol import serve

PAD, BOS, EOS = 0, 2, 3


def specification(weights: dict[str, np.ndarray], sizes: dict[str, Any]):
    N, h, d_model, width = sizes["N"], sizes["h"], sizes["d_model"], sizes["h"] * sizes["d_k"]
    spec = ctranslate2.specs.TransformerSpec.from_config(N, h, pre_norm=False)
    position, i = np.arange(512.0)[:, None], np.arange(0, d_model, 2)
    angle = position * 10000.0 ** (-i / d_model)
    table = np.stack((np.sin(angle), np.cos(angle)), -1).reshape(512, d_model).astype(np.float32)
    E = weights["embedding_WD"]
    for side in ("encoder", "decoder"):
        stack = getattr(spec, side)
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = E
        stack.scale_embeddings = True
        stack.position_encodings.encodings = table
        for number, layer in enumerate(stack.layer):
            ours = {
                k.removeprefix(f"{side}.{number}."): v for k, v in weights.items() if k.startswith(f"{side}.{number}.")
            }
            attention = layer.self_attention
            _linear(attention.linear[0], ours["self_attention.W_QKV.weight"])
            _linear(attention.linear[1], ours["self_attention.W_O.weight"])
            norms = [attention.layer_norm]
            if side == "decoder":
                cross = layer.attention
                _linear(cross.linear[0], ours["cross_attention.W_Q.weight"])
                _linear(cross.linear[1], ours["cross_attention.W_KV.weight"])
                _linear(cross.linear[2], ours["cross_attention.W_O.weight"])
                norms.append(cross.layer_norm)
            norms.append(layer.ffn.layer_norm)
            for n, norm in enumerate(norms, 1):
                norm.gamma, norm.beta = ours[f"residual_{n}.norm.weight"], ours[f"residual_{n}.norm.bias"]
            for linear, mine in ((layer.ffn.linear_0, "W_1"), (layer.ffn.linear_1, "W_2")):
                _linear(linear, ours[f"feed_forward.{mine}.weight"], ours[f"feed_forward.{mine}.bias"])
    _linear(spec.decoder.projection, E)
    tokens = [str(i) for i in range(sizes["V"])]
    tokens[PAD], tokens[1], tokens[BOS], tokens[EOS] = "<blank>", "<unk>", "<s>", "</s>"
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = False
    spec.config.add_source_bos = False
    spec.config.decoder_start_token = "<s>"
    assert width == d_model
    return spec, tokens


def _linear(spec, weight: np.ndarray, bias: np.ndarray | None = None) -> None:
    spec.weight = weight
    if bias is not None:
        spec.bias = bias


def decode(folder: Path, sizes: dict[str, Any]):
    weights = dict(np.load(folder / "weights.npz"))
    spec, tokens = specification(weights, sizes)
    spec.validate()
    spec.optimize(quantization=None)
    target = folder / "ct2"
    target.mkdir(exist_ok=True)
    spec.save(str(target))
    translator = ctranslate2.Translator(
        str(target), device="cpu", compute_type="float32", inter_threads=1, intra_threads=sizes["threads"]
    )
    numbers = {token: i for i, token in enumerate(tokens)}

    def translate(number: int) -> list[list[int]]:
        source = np.load(folder / f"translate-{number}.npz")["source"]
        rows = [[tokens[x] for x in row if x != PAD] for row in source.tolist()]
        results = translator.translate_batch(
            rows, beam_size=4, length_penalty=0.6, max_decoding_length=source.shape[1] + 50, max_batch_size=0
        )
        return [[numbers[token] for token in result.hypotheses[0]] for result in results]

    return translate, {}


if __name__ == "__main__":
    serve({"decode": decode})
