"""What no part of a model may see, later positions in the decoder and padding, and that it decodes as it trains: asked
of a small model without training.

The suites of testing/ hold every class to it; a run asks it of user-defined classes before its first step.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import Attention
from lightning_tfm.model.beam_search import cached_decoder
from lightning_tfm.model.config import Model
from lightning_tfm.model.feed_forward import FeedForward
from lightning_tfm.model.norms import Norm
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.model.user_init import begin, drawing_by, origins_in_words
from lightning_tfm.registry import own_parts
from lightning_tfm.special_tokens import BOS, EOS, PAD
from lightning_tfm.user_code.modules import with_line

V = 31
SOURCES = ((5, 6, 7, 8, 9, 10, EOS), (11, EOS), (12, 13, 14, 15, EOS))
TARGETS = ((BOS, 16, 17, 18, 19), (BOS, 20, 20, 20, 20), (BOS, 21, 22, 23, 24))
LONG = 72
"""pieces of a text that is longer than every block that ships works in: attention.SHORT, registry.T5_BUCKETS"""
LONGEST = 2 * LONG
"""positions that two of them take in one stack, more than those above with the padding of `padding`"""
CHANGED, LATE = 3, 69
"""position of the target whose piece is exchanged, in the short ones and in a long one"""
WITHIN = 1e-4
"""farthest that float32 results of one formula are apart when matrices of other shapes made them"""


def pad(rows: tuple[tuple[int, ...], ...]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def with_another_piece(model: SequenceModel, at: int = CHANGED) -> tuple[Tensor, Tensor]:
    """The logits, and those with another piece at position `at` of the target: CHANGED, or LATE in a long one."""
    source, target = (pad(SOURCES), pad(TARGETS)) if at == CHANGED else (long_text(LONG), long_text(LONG))
    before = model(source, target)
    target[:, at] += 1
    return before, model(source, target)


def long_text(length: int) -> Tensor:
    """One sequence of this many pieces, none of them the last of V."""
    return 4 + torch.arange(length)[None] * 7 % (V - 5)


def later_position(before: Tensor, after: Tensor, at: int = CHANGED) -> str:
    """How logits of `with_another_piece` depend on a later position; empty where they do not."""
    changed = (before[:, :at] != after[:, :at]).any(2).any(0).nonzero().flatten().tolist()
    if not changed:
        return ""
    which = f"positions 0 to {at - 1}" if at == CHANGED else f"position {changed[0]}"
    return f"{which} changed with the token at position {at}"


def padding(model: SequenceModel, within: float) -> str:
    """How the logits depend on padding; empty where they do not."""
    source, target = pad(SOURCES), pad(TARGETS)
    wide = torch.nn.functional.pad(source, (0, 4), value=PAD)
    off = float((model(wide, target) - model(source, target)).abs().max())
    return "" if off <= within else f"with 4 more columns of padding, the result is off by {off:.1e}"


def neighbours(model: SequenceModel, within: float) -> str:
    """How the logits of a text depend on the others of its batch; empty where they do not."""
    source, target = pad(SOURCES), pad(TARGETS)
    alone = torch.cat([model(pad(SOURCES[i : i + 1]), target[i : i + 1]) for i in range(len(source))])
    off = float((model(source, target) - alone).abs().max())
    return "" if off <= within else f"by itself, not in a batch, a text's result is off by {off:.1e}"


def in_training(model: SequenceModel) -> str:
    """How training sees later positions, or keeps something from one text for the next; empty where it does not."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seeding = model.register_forward_pre_hook(lambda *_: begin("check"))  # of what a class draws itself
    check_repeated(model.train(), "in training, with one seed", "by torch.rand and the like")
    before, after = with_another_piece(model)
    seeding.remove()
    changed = [name for name, tensor in model.eval().state_dict().items() if not torch.equal(tensor, state[name])]
    if changed:
        return f"training changes {changed[0]}, which other texts then meet"
    fault = later_position(before, after)
    return fault and f"in training, {fault}"


def piece_by_piece(model: SequenceModel, within: float) -> str:
    """How decoding with a cache departs from the whole target at once; empty where it does not."""
    source, target = pad(SOURCES), pad(TARGETS)
    wanted_BTW, decoder = model(source, target).log_softmax(-1), cached_decoder(model, source)
    for t in range(target.shape[1]):
        off = float((decoder.step(target[:, t], t) - wanted_BTW[:, t]).abs().max())
        if off > within:
            return (
                f"decoded with a cache, the token at position {t} is off by {off:.1e} (there the queries of "
                "self-attention are the last T of the S positions)"
            )
    return ""


def _check_shape(part: nn.Module, inputs: tuple[Any, ...], output: Any, wanted: tuple[int, ...] = ()) -> None:
    if getattr(output, "shape", None) != (wanted or inputs[0].shape):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        how = (
            f": [B, h, T, d_v] = {wanted} is wanted"
            if wanted
            else f" of {tuple(inputs[0].shape)}: the same shape is wanted"
        )
        raise ValueError(f"{type(part).__name__} makes {shape}{how}")


def _check_mix(P_attention: float, part: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Its shape, and whether it takes what positional schemes and dropout of weights have for it."""
    _check_shape(part, inputs, output, (*inputs[0].shape[:3], inputs[2].shape[3]))
    q, k, v, mask, bias, x, drop = inputs
    if bias is not None and k.shape[2] > 1:
        if torch.equal(part.forward(q, k, v, mask, bias + torch.arange(k.shape[2]), x, drop), output):
            raise ValueError(f"{type(part).__name__} ignores the bias by which model.positions acts: take another")
    if P_attention and torch.equal(part.forward(q, k, v, mask, bias, x, torch.zeros_like), output):
        raise ValueError(f"{type(part).__name__} does not call drop(weights), so model.P_attention must be 0")


def check_constructed_alike(model: SequenceModel, again: SequenceModel) -> None:
    """Raise UserError where the same model, constructed again with the same seed, starts from other numbers."""
    tensors, other = ({**dict(copy.named_parameters()), **dict(copy.named_buffers())} for copy in (model, again))
    apart = [name for name, tensor in tensors.items() if not torch.equal(tensor, other[name])]
    if apart:
        raise UserError(f"constructed twice with one seed, {apart[0]} differs: draw it by torch.randn and the like")


def check_repeated(model: SequenceModel, when: str, how: str) -> None:
    """Raise UserError where the same texts give other logits the second time; `how` it should draw, and `when`."""
    first, second = (model(pad(SOURCES), pad(TARGETS)) for _ in range(2))
    if not torch.equal(first, second) and first.isfinite().all():
        raise UserError(f"{when}, the same text gives other numbers the second time: draw random ones {how}")


@torch.enable_grad()
def without_gradient(model: SequenceModel) -> list[str]:
    """Parameters of user-defined classes that no gradient reaches."""
    model.train().requires_grad_(True)
    begin("check")
    model(pad(SOURCES), pad(TARGETS)).log_softmax(-1)[..., 4:9].sum().backward()
    grads = {name: model.get_parameter(name).grad for name in model.origins}
    return [name for name, grad in grads.items() if grad is None or not grad.any()]


@torch.no_grad()
def check_own_classes(config: Model) -> list[str]:
    """How the parameters of user-defined classes start, and which get no gradient, in lines.

    Raises UserError where a model of these sizes with user-defined classes fails, or sees what it may not. About a
    second: two layers at most; weights off the start, where a gate of 0 would hide what it lets through.
    """
    named = " or ".join(f"{key}='{path}'" for key, path in own_parts(config).items())
    if not named:
        return []
    with drawing_by("check"):
        sizes = replace(
            config, N=min(config.N, 2), max_positions=max(config.max_positions, LONGEST), P_drop=0.0, P_ff=0.0
        )
        try:
            model, draw = make_model(sizes, V, 1).eval(), torch.Generator().manual_seed(7)
            check_constructed_alike(model, make_model(sizes, V, 1))
            for part in model.modules():
                if isinstance(part, Norm | FeedForward):
                    part.register_forward_hook(_check_shape)
                if isinstance(part, Attention) and part.mix is not None:
                    part.mix.register_forward_hook(partial(_check_mix, part.dropout.P))
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.02)
            check_repeated(model, "outside training", "only if self.training")
            before, after = with_another_piece(model)
            fault = later_position(before, after) or padding(model, WITHIN) or piece_by_piece(model, WITHIN)
            fault = fault or later_position(*with_another_piece(model, LATE), LATE)
            fault = fault or neighbours(model, WITHIN) or in_training(model)
            idle = [] if fault else without_gradient(model)
        except UserError as error:
            raise UserError(f"{named}: {error}") from error
        except Exception as error:  # whatever a user-defined class may raise
            raise UserError(f"{named}: {with_line(error, *own_parts(config).values())}") from error
    if fault and before.isfinite().all():
        raise UserError(
            f"{named}: {fault}; no position of the decoder may see a later one, none padding or other texts, and "
            "decoding must give what training sees"
        )
    names = list(dict.fromkeys(f"{model.origins[name].cls}.{model.origins[name].parameter}" for name in idle))
    never = [f"no gradient reaches {', '.join(names)}: never trained"] if names else []
    return origins_in_words(model.origins) + never
