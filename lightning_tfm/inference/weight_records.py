"""What a report shows and only a model can provide, written into the run's folder.

`<run>/report/calibration.json`, `attention.json`, `softmax.json` and `positions.json` are records like any other; the
report only reads them.

How far softmaxes are saturated, and whether gradients still pass them (footnote 4 of the paper): one over n >= 2 keys
with weights p has the Jacobian J = diag(p) - p p^T, and counts as saturated where trace J = Σ p (1 - p) < SATURATED:
about where one weight is above 0.99. Its entropy is divided by ln n, so that 1 is uniform. The gradient is dL/ds at the
scores s, L the summed nll of the references; "passes saturated ones" is their share of Σ |dL/ds| over all softmaxes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.data.module import evaluation_batches
from lightning_tfm.data.token_store import Split
from lightning_tfm.inference.attention_hooks import KINDS, Look, Place, attention_places, some_lines, watch_attention
from lightning_tfm.inference.load import Trained
from lightning_tfm.model.layer_types import RestrictedSelfAttention
from lightning_tfm.model.positions import EmbeddingScheme, NoPositions, RotationScheme
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.runs.folder import RunFolder, experiment_of
from lightning_tfm.special_tokens import EOS
from lightning_tfm.sums import with_checksum
from lightning_tfm.training.module import TransformerModule

BINS = 15
"""of equal width, as in Guo et al. 2017"""
LENGTHS = (6, 10, 15)
"""source pieces of the sentences whose attention is shown, or pieces where there is no source: the first of the dev
text nearest to each"""
LINES = 100
"""sentence pairs of the dev text, over which softmaxes are counted and biases averaged"""
SATURATED = 0.02
COUNTS = ("softmaxes", "entropy", "saturated", "gradient", "gradient_saturated")
"""sums over softmaxes, of each head: how many, entropy / ln n, saturated ones, Σ |dL/ds| of all, of saturated ones"""
POSITIONS, CHANNELS = 48, 64
"""recorded at most; of more channels every second, third, …"""


def collect_run(folder: RunFolder, dev: str, what: Sequence[str]) -> None:
    """Write the records named in `what`, of the split `dev`, into the run's folder.

    Raises UserError where weights or data are gone.
    """
    trained = Trained.open(folder, experiment_of(folder))
    split = trained.prepared.split(dev)
    (folder.path / "report").mkdir(exist_ok=True)
    for name in what:
        record = MAKERS[name](trained, split)
        write_atomic(folder.path / "report" / f"{name}.json", to_json(with_checksum(record)))


@torch.no_grad()
def calibration(trained: Trained, split: Split) -> dict[str, Any]:
    """How often the likeliest next piece is right, by the probability it was given; the reference is the prefix."""
    confidence, right = [], []
    for batch in evaluation_batches(split):
        logits_BTW = trained.module.transformer(batch.source_BS, batch.target_in_BT)
        top, piece = logits_BTW.softmax(-1).max(-1)
        true = torch.from_numpy(np.arange(top.shape[1]) < batch.target_lengths_B[:, None])
        confidence.append(top[true].double().numpy())
        right.append((piece == batch.target_out_BT)[true].numpy())
    return {"schema": 1, "split": "dev"} | calibration_bins(np.concatenate(confidence), np.concatenate(right))


def calibration_bins(confidence_N: np.ndarray, right_N: np.ndarray) -> dict[str, Any]:
    """Bins of equal width, and the expected calibration error: the mean of |accuracy - confidence| over pieces."""
    where = np.minimum((confidence_N * BINS).astype(int), BINS - 1)
    bins, ece = [], 0.0
    for b in range(BINS):
        inside = where == b
        count = int(inside.sum())
        stated, hit = (float(x[inside].mean()) if count else 0.0 for x in (confidence_N, right_N))
        ece += count / len(confidence_N) * abs(stated - hit)
        bins.append({"count": count, "confidence": round(stated, 6), "accuracy": round(hit, 6)})
    return {"ece": round(ece, 8), "pieces": len(confidence_N), "bins": bins}


def attention(trained: Trained, split: Split) -> dict[str, Any]:
    """Weights of all layers and heads on a few dev sentences, in thousandths: kind -> [layer][head][query][key]."""
    lengths = split.source_lengths if split.source_lengths.any() else split.target_lengths
    lines = [int(np.abs(lengths - length).argmin()) for length in LENGTHS]
    sentences = [{"line": i + 1} | with_pieces(trained, split.source(i), split.target(i)) for i in dict.fromkeys(lines)]
    return {"schema": 1, "split": "dev", "sentences": sentences}


def with_pieces(trained: Trained, source: np.ndarray, target: np.ndarray) -> dict[str, Any]:
    """`weights`, and the pieces that they are between: `source` and `target_in`."""
    piece = trained.prepared.tokenizer.piece
    names: dict[str, Any] = {
        "source": [*(piece(int(x)) for x in source), piece(EOS)],
        "target_in": ["<s>", *(piece(int(x)) for x in target)],
    }
    return names | weights(trained, source, target)


@torch.no_grad()
def weights(trained: Trained, source: np.ndarray, target: np.ndarray) -> dict[str, list]:
    """Attention of one sentence pair, the reference as prefix. Of one stack the parts of its weights between source and
    source, target and target, target and source."""
    by_kind: dict[str, list] = {"encoder": [], "decoder": [], "cross": []}
    transformer = trained.module.transformer

    def note(place: Place, look: Look) -> None:
        by_kind[place.kind].append((look.weights[0] * 1000).round().int().tolist())

    batch = make_batch([source], [target], np.array([0]))
    with watch_attention(attention_places(transformer), note):
        transformer(batch.source_BS, batch.target_in_BT)
    if transformer.config.one_stack and by_kind["decoder"]:
        S, whole = len(source) + 1, np.array(by_kind["decoder"])
        parts = {"encoder": whole[..., :S, :S], "decoder": whole[..., S:, S:], "cross": whole[..., S:, :S]}
        by_kind = {kind: part.tolist() for kind, part in parts.items()}
    return by_kind


# --- softmaxes ---


def softmaxes(trained: Trained, split: Split) -> dict[str, Any]:
    """Of the trained weights, and of those that this run began with: start, end -> kind -> [layer][head][COUNTS]."""
    e = trained.module.experiment
    begun = TransformerModule(e, trained.prepared.tokenizer.V).eval()
    batches = some_lines(split, LINES)
    states = {"start": begun.transformer, "end": trained.module.transformer}
    return {
        "schema": 1,
        "split": "dev",
        "lines": len(batches),
        "threshold": SATURATED,
        "counts": list(COUNTS),
        **{when: measure_softmax(model, batches) for when, model in states.items()},
    }


def measure_softmax(transformer: SequenceModel, batches: list[Batch]) -> dict[str, list]:
    """kind -> [layer][head][COUNTS]. Left out are restricted self-attention, whose blocks hold queries that are
    none, and what mixes other than by one softmax."""
    watched = [
        place
        for place in attention_places(transformer)
        if place.module.mix is None and not isinstance(place.module, RestrictedSelfAttention)
    ]
    total = {(place.kind, place.layer): torch.zeros(place.module.h, len(COUNTS)).double() for place in watched}
    looks: list[tuple[Place, Look]] = []

    def keep(place: Place, look: Look) -> None:
        assert look.scores is not None
        look.scores.retain_grad()
        looks.append((place, look))

    with watch_attention(watched, keep):
        for batch in batches:
            logits_BTW = transformer(batch.source_BS, batch.target_in_BT)
            F.cross_entropy(logits_BTW.flatten(0, 1), batch.target_out_BT.flatten(), reduction="sum").backward()
            for place, look in looks:
                assert look.scores is not None and look.scores.grad is not None
                T, S = look.weights.shape[2:]
                keys_T = torch.full((T,), S) if look.mask is None else look.mask.expand(1, 1, T, S)[0, 0].sum(-1)
                weights_HTS = look.weights.detach()[0]
                total[place.kind, place.layer] += count_saturation(weights_HTS, look.scores.grad[0], keys_T.double())
            looks.clear()
            transformer.zero_grad()
    heads: dict[str, list] = {kind: [] for kind in KINDS}
    for (kind, _), sums in total.items():
        heads[kind].append([[float(f"{x:.7g}") for x in head] for head in sums.tolist()])
    return heads


def count_saturation(p_HTS: Tensor, gradient_HTS: Tensor, keys_T: Tensor) -> Tensor:
    """[H, COUNTS] of one sentence; queries that see only one key are left out. `keys_T`: how many each sees."""
    p, g = p_HTS.double(), gradient_HTS.double().abs().sum(-1)
    several = keys_T > 1
    entropy = -torch.xlogy(p, p).sum(-1)[:, several] / keys_T[several].log()
    flat = ((p * (1 - p)).sum(-1) < SATURATED)[:, several]
    g = g[:, several]
    sums = [torch.ones_like(g), entropy, flat.double(), g, g * flat]
    return torch.stack([x.sum(1) for x in sums], 1)


# --- what a positional scheme does, as numbers: of the trained weights, and of any user-defined class ---


def schemes(trained: Trained, split: Split) -> dict[str, Any]:
    """`stacks`: encoder, decoder -> `kind`, `values`, of every `step`-th channel; empty if positions are not encoded.

    embedding: [position][channel], what is added to embeddings; rotation: [channel][distance], the product of a unit
    vector turned by that distance with itself; bias: [layer and head][distance], the mean of what is added to scores,
    over the queries of the dev text, from `first` on; None where no query had such a key.
    """
    transformer = trained.module.transformer
    with torch.no_grad():
        stacks = _embeddings(transformer) or _rotations(transformer) or _biases(transformer, some_lines(split, LINES))
    return {"schema": 1, "positions": transformer.config.positions, "stacks": stacks}


def _embeddings(transformer: SequenceModel) -> dict[str, Any]:
    named = {"encoder": transformer.encoder_positions, "decoder": transformer.decoder_positions}
    length = min(POSITIONS, transformer.max_length)
    width = transformer.config.d_model
    step = -(-width // CHANNELS)
    blank = torch.zeros(1, length, width)
    return {
        stack: {"kind": "embedding", "step": step, "values": _round(scheme.embed(blank, 1.0, 0)[0, :, ::step])}
        for stack, scheme in named.items()
        if isinstance(scheme, EmbeddingScheme) and not isinstance(scheme, NoPositions)
    }


def _rotations(transformer: SequenceModel) -> dict[str, Any]:
    curves = {}
    for kind, layer, module in attention_places(transformer):
        scheme = getattr(module, "scheme", None)
        if layer == 0 and isinstance(scheme, RotationScheme):
            unit_KHTK = torch.eye(transformer.config.d_k)[:, None, None].expand(-1, 1, POSITIONS, -1)
            turned_KTK = scheme.rotate(unit_KHTK, 0)[:, 0]
            curves[kind] = {"kind": "rotation", "values": _round((turned_KTK * turned_KTK[:, :1]).sum(-1))}
    return curves


def _biases(transformer: SequenceModel, batches: Iterable[Batch]) -> dict[str, Any]:
    """Mean over queries, of each layer and head, by distance."""
    size = 2 * POSITIONS + 1
    sums: dict[tuple[str, int], np.ndarray] = {}
    counts = {kind: np.zeros(size) for kind in ("encoder", "decoder")}

    def add(place: Place, look: Look) -> None:
        if look.bias is None:
            return
        T, S = look.weights.shape[2:]
        apart_TS = np.arange(S) - np.arange(T)[:, None]
        near = abs(apart_TS) <= POSITIONS
        near &= True if look.mask is None else look.mask.expand(1, 1, T, S)[0, 0].numpy()
        where = apart_TS[near] + POSITIONS
        total = sums.setdefault((place.kind, place.layer), np.zeros((place.module.h, size)))
        for h, one_TS in enumerate(look.bias.expand(1, place.module.h, T, S)[0].double().numpy()):
            total[h] += np.bincount(where, one_TS[near], size)
        if place.layer == 0:
            counts[place.kind] += np.bincount(where, minlength=size)

    inside = [place for place in attention_places(transformer) if place.kind != "cross"]
    with watch_attention(inside, add):
        for batch in batches:
            transformer(batch.source_BS, batch.target_in_BT)
    curves = {}
    for kind, count in counts.items():
        if count.any():
            reached = np.flatnonzero(count)
            span = slice(reached[0], reached[-1] + 1)
            heads = np.concatenate([total for (stack, _), total in sorted(sums.items()) if stack == kind])[:, span]
            with np.errstate(invalid="ignore"):
                values = heads / count[span]
            first = int(reached[0]) - POSITIONS
            curves[kind] = {"kind": "bias", "first": first, "values": _round(torch.from_numpy(values))}
    return curves


def _round(values: Tensor) -> list[list[float | None]]:
    """Four digits, None for what is not a number."""
    return [[None if x != x else float(f"{x:.4g}") for x in row] for row in values.tolist()]


MAKERS: dict[str, Callable[[Trained, Split], dict[str, Any]]] = {
    "calibration": calibration,
    "attention": attention,
    "softmax": softmaxes,
    "positions": schemes,
}
"""name of the record -> what makes it of a text"""
