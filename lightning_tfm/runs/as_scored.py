"""A finished run as a study sees it: with the dev score of the study's own evaluation, which may have come later."""

from dataclasses import replace

from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import OTHERWISE, Missing, RunRecord, read, read_score


def read_scored(folder: RunFolder, evaluation: str, split: str) -> RunRecord | Missing:
    """The record, with the dev score of this evaluation where one was made later; or why there is no record.

    Whether its score is of this evaluation is for the reader to ask: `RunRecord.scored_by`.
    """
    found, later = read(folder.result), folder.scores(evaluation) / f"{split}.json"
    if isinstance(found, Missing) or not later.is_file():
        return found
    score = read_score(later)
    return score if isinstance(score, Missing) else replace(found, scores=found.scores | {"dev": score})


def read_as_scored(folder: RunFolder, evaluation: str, split: str) -> RunRecord | Missing:
    """The record with a dev score of this evaluation; else why there is none."""
    found = read_scored(folder, evaluation, split)
    if isinstance(found, Missing):
        return found
    reason = found.contradiction or ("" if found.scored_by(evaluation) else OTHERWISE)
    return Missing(reason) if reason else found
