"""A finished run as a study sees it: with the dev score of the study's own evaluation, which may have come later."""

import math
from dataclasses import replace
from pathlib import Path

from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Missing, RunRecord, Score, read_record, read_score

OTHERWISE = "scored by a different evaluation (decoding, weights or dev set)"
"""why a record does not belong in a study whose dev text it has not been scored on, or not so"""


def read_later(path: Path) -> Score | Missing | None:
    """The score that a file below a run's folder holds, or why it holds none; None where there is no file."""
    return read_score(path) if path.is_file() else None


def with_score(record: RunRecord, score: Score | Missing | None) -> RunRecord | Missing:
    """The record with a dev score that was made later, if any; or why there is no record."""
    if score is None or isinstance(score, Missing):
        return score or record
    own = record.scores.get("dev")
    if not score.run and own is not None and own.evaluation_hash == score.evaluation_hash and not _alike(own, score):
        why = f"{score.split}.json is not the score that result.json holds, but another run's"
        return Missing(why, damaged=True)
    return record if own == score else replace(record, scores=record.scores | {"dev": score})


def under_evaluation(record: RunRecord, score: Score | Missing | None, evaluation: str) -> RunRecord | Missing:
    """As `with_score`, where it is of this evaluation; else why there is none."""
    whole = with_score(record, score)
    return whole if isinstance(whole, Missing) or whole.scored_by(evaluation) else Missing(OTHERWISE)


def read_scored(folder: RunFolder, evaluation: str, split: str) -> RunRecord | Missing:
    """The record, with the dev score of this evaluation if one was made later; or why there is no record.

    The reader checks whether its score is of this evaluation: `RunRecord.scored_by`.
    """
    record, later = read_record(folder.result), read_later(folder.scores(evaluation) / f"{split}.json")
    return record if isinstance(record, Missing) else with_score(record, later)


def _alike(ours: Score, theirs: Score) -> bool:
    """Whether two scores may come from the same weights on two machines."""
    return ours.tokens == theirs.tokens and math.isclose(ours.nll, theirs.nll, rel_tol=1e-5)


def read_under_evaluation(folder: RunFolder, evaluation: str, split: str) -> RunRecord | Missing:
    """The record with a dev score of this evaluation; else why there is none."""
    record = read_scored(folder, evaluation, split)
    return record if isinstance(record, Missing) else under_evaluation(record, None, evaluation)


def without_other_test(record: RunRecord, evaluation: str) -> RunRecord:
    """The record without test scores of another evaluation; as it is where `evaluation` is empty, since not known."""
    test = record.scores.get("test")
    if not evaluation or test is None or test.evaluation_hash == evaluation:
        return record
    return replace(record, scores={name: s for name, s in record.scores.items() if name.partition("_")[0] != "test"})
