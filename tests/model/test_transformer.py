"""Shapes, tying and initial weights of the built model. Masks, and what else every scheme must hold: test_positions."""

import math

import pytest
import torch

from lightning_tfm.config import Model
from lightning_tfm.model.transformer import Transformer

B, S, T, V = 2, 7, 5, 31
SIZES = {"N": 3, "d_model": 38, "d_ff": 41, "h": 11, "d_k": 26, "d_v": 13, "max_positions": 37}
"""no two alike, so that no axis can stand for another"""


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(4, V, shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_shapes(norm):
    model = Transformer(Model(**(SIZES | {"norm": norm})), V).double().eval()
    source, target = ids(B, S), ids(B, T)
    memory = model.encode(source, None)
    assert memory.shape == (B, S, 38)
    assert model.decode(target, memory, None).shape == (B, T, 38)
    assert model(source, target).shape == (B, T, V)
    k, v = model.decoder[1].cross_attention.keys_values(memory)
    assert k.shape == (B, 11, S, 26) and v.shape == (B, 11, S, 13)


def test_one_matrix_for_source_target_and_output():
    model = Transformer(Model(**SIZES), V).eval()
    matrices = [name for name, p in model.named_parameters() if V in p.shape]
    assert matrices == ["embedding_WD"]
    source, target = torch.tensor([[5, 6]]), torch.tensor([[7, 8]])
    seen = {"source": model.encode(source, None), "target": model.embed_target(target, 0)}
    weights = {"output": model.logits(torch.eye(38))}
    with torch.no_grad():
        model.embedding_WD[5] += 1.0
        assert not torch.equal(model.encode(source, None), seen["source"])
        assert torch.equal(model.embed_target(target, 0), seen["target"])
        model.embedding_WD[7] += 1.0
        assert not torch.equal(model.embed_target(target, 0), seen["target"])
        moved = (model.logits(torch.eye(38)) - weights["output"]).T
    assert (
        torch.allclose(moved[[5, 7]], torch.ones(2, 38), atol=1e-6) and moved.abs().sum() == moved[[5, 7]].abs().sum()
    )


def test_embeddings_are_scaled_by_the_root_of_the_width():
    model = Transformer(Model(**(SIZES | {"positions": "none"})), V).eval()
    assert torch.equal(model.embed_target(torch.tensor([[9]]), 0)[0, 0], model.embedding_WD[9] * math.sqrt(38))


# --- initial weights ---

CHANGES = [
    {"N": 2},
    {"d_ff": 43},
    {"h": 5},
    {"h": 22, "d_k": 13},
    {"d_k": 6},
    {"d_v": 17},
    {"norm": "pre"},
    {"positions": "learned"},
    {"positions": "shaw"},
    {"attention_bias": True},
    {"P_drop": 0.5},
    {"target_spaces": 3},
]


def parts(model: Transformer) -> dict[str, torch.Tensor]:
    """Weights by name; fused projections by the name of each part."""
    found = {}
    for name, p in model.named_parameters():
        module = model.get_submodule(name.rpartition(".")[0])
        if name.endswith(".weight") and hasattr(module, "parts"):
            for part, rows in zip(module.parts, p.split(list(module.parts.values())), strict=True):
                found[f"{name}.{part}"] = rows
        else:
            found[name] = p
    return found


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_rows_share_what_they_have_in_common(change):
    ours = parts(Transformer(Model(**SIZES), V, seed=3))
    theirs = parts(Transformer(Model(**(SIZES | change)), V, seed=3))
    common = [name for name in ours if name in theirs and ours[name].shape == theirs[name].shape]
    assert "embedding_WD" in common and len(common) > len(ours) // 3
    for name in common:
        assert torch.equal(ours[name], theirs[name]), name


def test_other_seeds_and_names_draw_other_weights():
    first, second = (parts(Transformer(Model(**SIZES), V, seed=seed)) for seed in (0, 1))
    drawn = [name for name, p in first.items() if p.dim() == 2]
    for name in drawn:
        assert not (first[name] == second[name]).any(), name
    flat = [first[name].flatten()[:100] for name in drawn]
    assert len({tuple(x.tolist()) for x in flat}) == len(drawn)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("init", ["xavier", "xavier_residual", "unit_scaling"])
def test_ranges_of_the_initial_weights(init, norm):
    model = Transformer(Model(**(SIZES | {"init": init, "positions": "shaw", "norm": norm})), V)
    sublayers = {"encoder": 2 * SIZES["N"], "decoder": 3 * SIZES["N"]}
    for name, p in parts(model).items():
        if "embedding" in name or "table" in name:
            assert abs(float(p.detach().std()) * math.sqrt(p.shape[1]) - 1) < 0.1, name
        elif p.dim() == 2:
            fan_out, fan_in = p.shape
            a = math.sqrt(3 / fan_in) if init == "unit_scaling" else math.sqrt(6 / (fan_in + fan_out))
            if init == "xavier_residual" and name.endswith(("W_O.weight", "W_2.weight")):
                a /= math.sqrt(sublayers[name.split(".")[0]])
            assert 0.99 * a < p.abs().max() <= a * (1 + 1e-6), name
            assert abs(float(p.detach().std()) / (a / math.sqrt(3)) - 1) < 0.05, name
        else:
            assert torch.equal(p, torch.full_like(p, 1.0 if name.endswith("norm.weight") else 0.0)), name


def test_only_what_writes_into_the_residual_stream_is_scaled():
    """The same draws as xavier's, bit for bit, but for W_O and W_2 of every sub-layer."""
    plain, scaled = (
        parts(Transformer(Model(**(SIZES | {"init": init})), V, seed=3)) for init in ("xavier", "xavier_residual")
    )
    writers = [name for name in plain if name.endswith(("W_O.weight", "W_2.weight"))]
    assert len(writers) == 5 * SIZES["N"]
    for name, p in plain.items():
        if name in writers:
            factor = (2 if name.startswith("encoder") else 3) * SIZES["N"]
            assert torch.allclose(scaled[name] * math.sqrt(factor), p, rtol=1e-6, atol=0), name
        else:
            assert torch.equal(scaled[name], p), name
