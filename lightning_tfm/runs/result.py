"""The record that a run leaves, with the counts of its model and where its steps were made."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lightning_tfm.config import Experiment, Hardware, to_dict
from lightning_tfm.data.module import TranslationData
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.runs.environment import git_state, inexact, machine, versions
from lightning_tfm.runs.record import Parameters, RunRecord, Score, Seconds, Segment, Texts, TrainSeconds, segments
from lightning_tfm.sums import of_files
from lightning_tfm.training.counters import Tally
from lightning_tfm.training.module import TransformerModule

if TYPE_CHECKING:
    from lightning_tfm.runs.train import Run


def record_of(
    run: "Run", data: TranslationData, module: TransformerModule, tally: Tally, scores: dict[str, Score], started: float
) -> RunRecord:
    """What result.json holds of a run whose training `started` at that time, in seconds since 1970."""
    e, hardware, prepared = run.experiment, run.hardware, data.prepared
    model, source, target = module.transformer, tally.tokens["source"], tally.tokens["target"]
    parts = {k: round(v, 3) for k, v in tally.seconds.items()}
    flops, trained = run_flops(model, data, source, target), parts["train"] + parts["data"]
    ran = segments(tally.ran())
    return RunRecord(
        training_hash=run.folder.training_hash,
        identity=run.identity,
        experiment=to_dict(e),
        parameters=count_by_part(model),
        V=prepared.tokenizer.V,
        steps=e.training.steps,
        target_tokens=target,
        source_tokens=source,
        padding=tally.padding(),
        flops=flops,
        seconds=Seconds(**parts, total=round(sum(parts.values()), 3)),
        train_seconds=TrainSeconds(**{k: round(v, 3) for k, v in tally.parts.items()}),
        tokens_per_second=round(target / trained, 1),
        flops_per_second=round(flops / trained),
        scores=scores,
        hardware=machine(hardware),
        versions=versions(),
        git=git_state(),
        data=Texts(
            corpus=e.data.corpus,
            store=prepared.folder.name,
            train=prepared.train_fingerprint,
            dev=prepared.fingerprint(e.data.dev),
            tokenizer=prepared.tokenizer.fingerprint,
            too_long=prepared.too_long(e.data.max_len),
        ),
        inexact=list(dict.fromkeys(reason for segment in ran for reason in segment.inexact)),
        attempts=run.attempt.number,
        started=started,
        ended=time.time(),
        ran=ran,
        files=of_files([run.folder.metrics]),
    )


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


# --- where the steps were made ---

Plain = dict[str, Any]
"""a record.Segment as a checkpoint holds it"""


def attempt_provenance(e: Experiment, hardware: Hardware, attempt: int, step: int) -> tuple[Plain, list[Plain]]:
    """This attempt, which resumes after `step`; and what came before it, where the checkpoint does not say."""
    this_attempt = Segment(
        attempt=attempt,
        first=step + 1,
        last=step,
        hardware=machine(hardware),
        versions=versions(),
        git=git_state(),
        inexact=inexact(e, hardware),
    )
    return asdict(this_attempt), [asdict(Segment(last=step))] if step else []
