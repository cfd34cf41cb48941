"""A finished run as a study sees it: with the dev score of the study's own evaluation, which may have come later."""

import math
from dataclasses import replace

from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import Missing, RunRecord, Score, read, read_score

OTHERWISE = "scored by a different evaluation (decoding, weights or dev text)"
"""why a record does not belong in a study whose dev text it has not been scored on, or not so"""


def read_scored(folder: RunFolder, evaluation: str, split: str) -> RunRecord | Missing:
    """The record, with the dev score of this evaluation if one was made later; or why there is no record.

    The reader checks whether its score is of this evaluation: `RunRecord.scored_by`.
    """
    found, later = read(folder.result), folder.scores(evaluation) / f"{split}.json"
    if isinstance(found, Missing) or not later.is_file():
        return found
    score = read_score(later)
    if isinstance(score, Missing):
        return score
    own = found.scores.get("dev")
    if not score.run and own is not None and own.evaluation_hash == score.evaluation_hash and not _alike(own, score):
        return Missing(f"{later.name} is not the score that result.json holds, but another run's", damaged=True)
    return replace(found, scores=found.scores | {"dev": score})


def _alike(one: Score, other: Score) -> bool:
    """Whether two scores may come from the same weights on two machines."""
    return one.tokens == other.tokens and math.isclose(one.nll, other.nll, rel_tol=1e-5)


def read_as_scored(folder: RunFolder, evaluation: str, split: str) -> RunRecord | Missing:
    """The record with a dev score of this evaluation; else why there is none."""
    found = read_scored(folder, evaluation, split)
    if isinstance(found, Missing):
        return found
    return found if found.scored_by(evaluation) else Missing(OTHERWISE)
