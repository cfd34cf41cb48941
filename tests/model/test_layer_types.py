"""The layer types that ship, each held to its formula; to the suite of users' own: test_positions."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_tfm.config import Experiment, Model, training_identity
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.model.layer_types import LayerSizes, find_layer, make_layer
from lightning_tfm.model.size import layer_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import inner_width

D, K = 6, 3


def made(layer: str, causal: bool, **change) -> torch.nn.Module:
    """One layer in float64, its weights all at random."""
    c = Model(**({"d_model": D, "h": 2, "d_k": 3, "d_v": 3, "kernel": K, "layer": layer} | change))
    module = make_layer(c, None, causal, 1).double()
    torch.manual_seed(3)
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return module.requires_grad_(False)


def glued(y: torch.Tensor, module: torch.nn.Module) -> torch.Tensor:
    """Gate and W_O."""
    value, gate = y.chunk(2, -1)
    return value / (1 + (-gate).exp()) @ module.W_O.weight.T


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("layer", "k", "spread"), [("convolution", 3, 1), ("convolution", 4, 1), ("dilated", 3, 2)])
def test_a_convolution_is_its_formula(layer, k, spread, causal):
    """Position by position; the second layer of a dilated stack looks 2 apart."""
    module, x = made(layer, causal, kernel=k), torch.randn(2, 9, D, dtype=torch.float64)
    before = (k - 1) * spread if causal else k // 2 * spread
    y = torch.zeros(2, 9, 2 * D, dtype=torch.float64) + module.W.bias
    for t in range(9):
        for j in range(k):
            seen = t - before + j * spread
            if 0 <= seen < 9:
                y[:, t] += x[:, seen] @ module.W.weight[:, :, j].T
    torch.testing.assert_close(module(x, None, causal), glued(y, module), atol=1e-12, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_a_separable_convolution_is_one_whose_matrices_are_products(causal):
    module, x = made("separable", causal), torch.randn(2, 7, D, dtype=torch.float64)
    full = made("convolution", causal)
    full.W.weight = torch.nn.Parameter(module.pointwise.weight[:, :, None] * module.depthwise.weight[None, :, 0])
    full.W.bias = torch.nn.Parameter(module.pointwise(module.depthwise.bias))
    full.W_O.weight = module.W_O.weight
    torch.testing.assert_close(module(x, None, causal), full(x, None, causal), atol=1e-12, rtol=0)


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_a_recurrent_encoder_is_torchs_bidirectional_one(layer):
    """With texts of unequal length packed, as torch has it."""
    module, x = made(layer, False), torch.randn(3, 5, D, dtype=torch.float64)
    lengths = torch.tensor([5, 2, 4])
    both = type(module.onward)(D, D // 2, bidirectional=True, batch_first=True).double()
    for name, p in both.named_parameters():
        ours = module.back if name.endswith("_reverse") else module.onward
        p.data = ours.get_parameter(name.removesuffix("_reverse")).data
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(both(packed)[0], batch_first=True)
    inside = torch.arange(5) < lengths[:, None]
    found = module(x, inside[:, None, None], False)
    torch.testing.assert_close(found[inside], (y @ module.W_O.weight.T)[inside], atol=1e-12, rtol=0)


@pytest.mark.parametrize("T", [4, 9, 10, 23])
@pytest.mark.parametrize("r", [1, 4, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_restricted_attention_is_attention_under_a_mask(causal, r, T):
    module, x = made("restricted", causal, neighbourhood=r), torch.randn(2, T, D, dtype=torch.float64)
    full = made("attention", causal)
    full.load_state_dict(module.state_dict())
    offset = torch.arange(T) - torch.arange(T)[:, None]
    seen = (offset <= 0) & (offset > -r) if causal else (offset >= -(r // 2)) & (offset < r - r // 2)
    expected = full(x, seen[None, None], False)
    torch.testing.assert_close(module(x, None, causal), expected, atol=1e-12, rtol=0)
    assert int(seen.sum(1).max()) <= r


class Largest(TorchDispatchMode):
    """The largest tensor that an operator made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.numel = max(self.numel, found.numel())
        return found


def test_restricted_attention_holds_no_matrix_of_all_pairs():
    def largest(n: int) -> int:
        module = made("restricted", False, neighbourhood=5)
        with Largest() as seen:
            module(torch.randn(1, n, D, dtype=torch.float64), None, False)
        return seen.numel

    assert largest(400) < 4.1 * largest(100)


# --- sizes ---


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layer", ["lstm", "gru", "convolution", "separable", "dilated"])
@pytest.mark.parametrize("d_model", [8, 64, 512])
def test_a_width_by_parameters_is_the_nearest_to_attention(layer, causal, d_model):
    sizes = {"d_model": d_model, "h": 8, "d_k": d_model // 8, "d_v": d_model // 8}
    model, wanted = Model(**sizes, layer=layer, layer_width="parameters"), 4 * d_model**2
    width = inner_width(model, causal)
    found = layer_parameters(model, causal)
    step = 2 if layer in ("lstm", "gru") and not causal else 1
    for other in (width - step, width + step):
        if other >= step:
            sized = torch.nn.ModuleList([find_layer(layer)(LayerSizes(d_model, other, 3, 8, True, causal, 0))])
            assert abs(sum(p.numel() for p in sized.parameters()) - wanted) >= abs(found - wanted)
    if d_model >= 64:
        assert found == pytest.approx(wanted, rel=0.03)


# --- what enters a name, what is refused ---


def named(**change) -> dict:
    return training_identity(Experiment(model=Model(**change)), "t", {})


def test_fields_that_cannot_act_do_not_enter_an_identity():
    assert named(kernel=5, neighbourhood=3) == named()
    assert named(layer="lstm", kernel=5, neighbourhood=3) == named(layer="lstm")
    assert named(layer="restricted", kernel=5) == named(layer="restricted")
    assert named(layer="convolution", neighbourhood=5) == named(layer="convolution") != named()
    assert named(layer="convolution", kernel=5) != named(layer="convolution")
    assert named(layer="restricted", neighbourhood=5) != named(layer="restricted")
    assert named(layer="mine.Mine", kernel=5, neighbourhood=3)["model"]["neighbourhood"] == 3
    assert named(layer="gru", layer_width="parameters") != named(layer="gru")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer": "lstm", "positions": "rotary"}, r"model\.positions=rotary needs full self-attention, which"),
        ({"layer": "restricted", "positions": "shaw"}, r"model\.positions=shaw needs full self-attention"),
        (
            {"layer_width": "parameters"},
            r"model\.layer_width=parameters is for lstm, .*, not for model\.layer=attention",
        ),
        ({"kernel": 0}, r"model\.kernel=0: must be above 0"),
        ({"neighbourhood": 0}, r"model\.neighbourhood=0: must be above 0"),
    ],
)
def test_what_does_not_go_together_is_refused(change, words):
    with pytest.raises(UserError, match=words):
        check(Experiment(model=Model(**change)))


def test_rotary_goes_with_restricted_attention():
    check(Experiment(model=Model(layer="restricted", positions="rotary")))
    with pytest.raises(UserError, match=r"model\.layer=gru has none"):
        Transformer(Model(N=1, d_model=8, layer="gru", positions="rotary"), 9)
    with pytest.raises(UserError, match=r"model\.layer=restricted has few"):
        Transformer(Model(N=1, d_model=8, layer="restricted", positions="alibi"), 9)
    with pytest.raises(UserError, match="did you mean 'separable'"):
        Transformer(Model(N=1, d_model=8, layer="separabel"), 9)
