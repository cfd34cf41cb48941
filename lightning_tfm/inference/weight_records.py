"""What a report shows and only a model can provide, written into the run's folder.

`<run>/report/calibration.json`, `attention.json`, `softmax.json` and `positions.json` are records like any other; the
report only reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.data.batch import make_batch
from lightning_tfm.data.module import evaluation_batches
from lightning_tfm.data.token_store import Split
from lightning_tfm.inference.attention_hooks import Look, Place, attention_places, watch_attention
from lightning_tfm.inference.find import experiment_of
from lightning_tfm.inference.load import Trained
from lightning_tfm.inference.schemes import schemes
from lightning_tfm.inference.softmax import softmaxes
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.special_tokens import EOS
from lightning_tfm.sums import with_checksum

BINS = 15
"""of equal width, as in Guo et al. 2017"""
LENGTHS = (6, 10, 15)
"""source pieces of the sentences whose attention is shown, or pieces where there is no source: the first of the dev
text nearest to each"""


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


MAKERS: dict[str, Callable[[Trained, Split], dict[str, Any]]] = {
    "calibration": calibration,
    "attention": attention,
    "softmax": softmaxes,
    "positions": schemes,
}
"""name of the record -> what makes it of a text"""
