"""Logits against a plain loop over sentences, heads, queries and keys, written from the papers' equations.

It shares no code with the package and reads the weights by name. Shapes are those torch.nn.Transformer cannot have:
d_k, d_v and d_model / h all differ.
"""

import math

import numpy as np
import pytest
import torch

from lightning_tfm.config import Model
from lightning_tfm.model.transformer import Transformer

V, LENGTHS, TARGETS = 17, (7, 5), (6, 6)
SIZES = {"N": 2, "d_model": 14, "d_ff": 11, "h": 3, "d_k": 4, "d_v": 5, "P_drop": 0.0, "max_positions": 19}


class Plain:
    """The network of one sentence, in NumPy float64."""

    def __init__(self, config: Model, weights: dict[str, np.ndarray]):
        self.c, self.w = config, weights

    def linear(self, name: str, x: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        y = self.w[f"{name}.weight"][rows] @ x
        bias = self.w.get(f"{name}.bias")
        return y if bias is None else y + bias[rows]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean()
        return (
            self.w[f"{name}.weight"] * centred / math.sqrt((centred**2).mean() + self.c.norm_eps)
            + self.w[f"{name}.bias"]
        )

    def position(self, stack: str, pos: int) -> np.ndarray:
        d = self.c.d_model
        if self.c.positions == "learned":
            return self.w[f"{stack}_positions.table_TD"][pos]
        if self.c.positions != "sinusoidal":
            return np.zeros(d)
        if self.c.sinusoid_layout == "interleaved":  # 3.5
            waves = [(pos / 10000 ** (2 * i / d)) for i in range(d // 2)]
            return np.array([f(x) for x in waves for f in (math.sin, math.cos)])
        step = math.log(10000) / (d // 2 - 1)  # tensor2tensor, get_timing_signal_1d
        waves = [pos * math.exp(-step * i) for i in range(d // 2)]
        return np.array([math.sin(x) for x in waves] + [math.cos(x) for x in waves])

    def embed(self, stack: str, ids: list[int]) -> list[np.ndarray]:
        rows = [
            self.w["embedding_WD"][piece] * math.sqrt(self.c.d_model) + self.position(stack, pos)
            for pos, piece in enumerate(ids)
        ]
        if stack == "encoder" and self.c.target_spaces:
            rows = [row + self.w["target_space_D"][0] for row in rows]
        return rows

    def rotated(self, x: np.ndarray, pos: int) -> np.ndarray:
        """Su et al. 2021, eq. 15, one complex number for each pair of channels."""
        pairs = x[0::2] + 1j * x[1::2]
        turned = pairs * np.exp([1j * pos * 10000 ** (-2 * i / len(x)) for i in range(len(pairs))])
        return np.stack([turned.real, turned.imag], 1).ravel()

    def attention(self, name: str, xs, memory, query, key, value, output, causal: bool, relative: bool):
        """`query`, `key`, `value`: (name of the matrix, its first row there)."""
        c, out = self.c, []
        for t, x in enumerate(xs):
            heads = []
            for head in range(c.h):

                def project(which, width, vector, head=head):
                    matrix, first = which
                    start = first + head * width
                    return self.linear(f"{name}.{matrix}", vector, slice(start, start + width))

                q = project(query, c.d_k, x)
                scores, values = [], []
                for s, m in enumerate(memory):
                    if causal and s > t:
                        continue
                    k = project(key, c.d_k, m)
                    if relative and c.positions == "rotary":
                        score = self.rotated(q, t) @ self.rotated(k, s) / math.sqrt(c.d_k)
                    elif relative and c.positions == "shaw":  # Shaw et al. 2018, eq. 4
                        a = self.w[f"{name}.scheme.table_RK"][max(-c.clip, min(c.clip, s - t)) + c.clip]
                        score = q @ (k + a) / math.sqrt(c.d_k)
                    elif relative and c.positions == "alibi":  # Press et al. 2022, section 3
                        score = q @ k / math.sqrt(c.d_k) - 2 ** (-8 * (head + 1) / c.h) * abs(t - s)
                    else:
                        score = q @ k / math.sqrt(c.d_k)  # eq. 1
                    scores.append(score)
                    values.append(project(value, c.d_v, m))
                weights = [math.exp(score - max(scores)) for score in scores]
                heads.append(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))
            out.append(self.linear(f"{name}.{output}", np.concatenate(heads)))
        return out

    def self_attention(self, name: str, xs, causal: bool):
        wide = self.c.h * self.c.d_k
        parts = ("W_QKV", 0), ("W_QKV", wide), ("W_QKV", 2 * wide)
        return self.attention(name, xs, xs, *parts, "W_O", causal, True)

    def cross_attention(self, name: str, xs, memory):
        parts = ("W_Q", 0), ("W_KV", 0), ("W_KV", self.c.h * self.c.d_k)
        return self.attention(name, xs, memory, *parts, "W_O", False, False)

    def feed_forward(self, name: str, xs):
        return [self.linear(f"{name}.W_2", np.maximum(0, self.linear(f"{name}.W_1", x))) for x in xs]  # eq. 2

    def residual(self, name: str, xs, sublayer):
        if self.c.norm == "pre":
            return [x + y for x, y in zip(xs, sublayer([self.norm(f"{name}.norm", x) for x in xs]), strict=True)]
        return [self.norm(f"{name}.norm", x + y) for x, y in zip(xs, sublayer(xs), strict=True)]

    def logits(self, source: list[int], target: list[int]) -> np.ndarray:
        memory = self.embed("encoder", source)
        for i in range(self.c.N):
            here = f"encoder.{i}"
            memory = self.residual(
                f"{here}.residual_1", memory, lambda xs, a=here: self.self_attention(f"{a}.self_attention", xs, False)
            )
            memory = self.residual(
                f"{here}.residual_2", memory, lambda xs, a=here: self.feed_forward(f"{a}.feed_forward", xs)
            )
        rows = self.embed("decoder", target)
        if self.c.norm == "pre":
            memory = [self.norm("encoder_norm", x) for x in memory]
        for i in range(self.c.N):
            here = f"decoder.{i}"
            rows = self.residual(
                f"{here}.residual_1", rows, lambda xs, a=here: self.self_attention(f"{a}.self_attention", xs, True)
            )
            rows = self.residual(
                f"{here}.residual_2", rows, lambda xs, a=here: self.cross_attention(f"{a}.cross_attention", xs, memory)
            )
            rows = self.residual(
                f"{here}.residual_3", rows, lambda xs, a=here: self.feed_forward(f"{a}.feed_forward", xs)
            )
        if self.c.norm == "pre":
            rows = [self.norm("decoder_norm", x) for x in rows]
        return np.array([self.w["embedding_WD"] @ x for x in rows])


CASES = [
    {"positions": p, "norm": n}
    for p in ("sinusoidal", "learned", "none", "rotary", "shaw", "alibi")
    for n in ("post", "pre")
]
CASES += [
    {"sinusoid_layout": "concatenated"},
    {"attention_bias": True},
    {"attention_bias": True, "target_spaces": 3, "sinusoid_layout": "concatenated", "init": "unit_scaling"},
    {"h": 1, "d_k": 2, "d_v": 29},
    {"positions": "shaw", "h": 2, "d_k": 6, "d_v": 1, "clip": 3},  # which some distances exceed
    {"positions": "alibi", "h": 4},
    {"norm_eps": 0.1},
]


@pytest.mark.parametrize("options", CASES, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_logits_are_those_of_the_equations(options, precision):
    config = Model(**(SIZES | options))
    model = Transformer(config, V, seed=5).to(precision).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():  # gains and biases too
            p.add_(0.1 * torch.randn_like(p))
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    plain = Plain(config, weights)
    source = torch.zeros(2, max(LENGTHS), dtype=torch.long)
    target = torch.randint(1, V, (2, max(TARGETS)))
    for row, length in enumerate(LENGTHS):
        source[row, :length] = torch.randint(1, V, (length,))
    with torch.no_grad():
        logits = model(source, target).double().numpy()
    expected = np.stack(
        [plain.logits(source[i, : LENGTHS[i]].tolist(), target[i, : TARGETS[i]].tolist()) for i in range(2)]
    )
    assert np.abs(expected).max() > 0.3
    assert np.abs(logits - expected).max() <= (1e-5 if precision is torch.float32 else 1e-12)
