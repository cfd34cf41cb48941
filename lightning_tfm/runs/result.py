"""What a run leaves: result.json, with the counts of its model and where its steps were made."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lightning_tfm.bleu import Score
from lightning_tfm.config import Evaluation, Experiment, Hardware, to_dict
from lightning_tfm.runs.environment import git_state, inexact, machine, versions
from lightning_tfm.runs.model_stats import count_by_part, run_flops
from lightning_tfm.runs.record import RunRecord, Seconds, Segment, Texts, TrainSeconds, segments, to_plain
from lightning_tfm.runs.train import Made, Run
from lightning_tfm.sums import of_files, signed
from lightning_tfm.training.backends_used import backends_used
from lightning_tfm.training.counters import Tally


@dataclass(frozen=True)
class Result:
    """Records a run (train.Recorder)."""

    inexact: list[str] = field(default_factory=list)
    """what is known beforehand for the list of that name"""

    @staticmethod
    def measured(how: Evaluation, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
        """As counting.measured, which only a run that names further metrics loads."""
        from lightning_tfm.corpus_metrics import corpus_scores

        return corpus_scores(how, hypotheses, references)

    def begin(self, run: Run, step: int) -> Tally:
        return Tally(*attempt_provenance(run.experiment, run.hardware, run.attempt.number, step))

    def finish(self, run: Run, made: Made) -> None:
        made.tally.note(backends_used(made.module) + self.inexact)
        run.attempt.write_json(run.folder.result, signed(to_plain(_record(run, made))))


def _record(run: Run, made: Made) -> RunRecord:
    e, hardware, tally, prepared = run.experiment, run.hardware, made.tally, made.data.prepared
    model, source, target = made.module.transformer, tally.tokens["source"], tally.tokens["target"]
    parts = {k: round(v, 3) for k, v in tally.seconds.items()}
    flops, trained = run_flops(model, made.data, source, target), parts["train"] + parts["data"]
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
        scores=made.scores,
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
        inexact=list(dict.fromkeys(reason for one in ran for reason in one.inexact)),
        attempts=run.attempt.number,
        started=made.started,
        ended=time.time(),
        ran=ran,
        files=of_files([run.folder.metrics]),
    )


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
