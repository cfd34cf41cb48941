"""What a run's record counts of its model: parameters by part, FLOPs by formula."""

from lightning_tfm.data.module import TranslationData
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.runs.record import Parameters


def count_by_part(model: SequenceModel) -> Parameters:
    """Trainable numbers by part, also with user-defined classes."""
    sums = {"embedding": 0, "encoder": 0, "decoder": 0, "positions": 0}
    for name, parameter in model.named_parameters():
        place = "positions" if "_positions." in name or ".scheme." in name else name.partition(".")[0].split("_")[0]
        sums[place if place in sums else "embedding"] += parameter.numel() if parameter.requires_grad else 0
    return Parameters(**sums, total=sum(sums.values()))


def run_flops(model: SequenceModel, data: TranslationData, source_tokens: int, target_tokens: int) -> int:
    """Training FLOPs by formula (model/size.py); attention pairs from the mean over the pairs that are trained on."""
    source, target, ids = data.lengths()
    source, target = source[ids].astype(float), target[ids].astype(float)
    epochs = target_tokens / target.sum()
    batches = data.experiment.training.steps / epochs
    pairs = AttentionPairs(*(round(x * epochs) for x in AttentionPairs.of(model.config, source, target, batches)))
    return training_flops(model.config, model.V, source_tokens, target_tokens, pairs, model.weights())
