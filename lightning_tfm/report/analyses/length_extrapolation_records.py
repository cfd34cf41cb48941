"""What every run of a study scored on lines beyond the training length (data.long), line by line."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lightning_tfm.report.records import Cells, FilledCell, commonest, read_columns
from lightning_tfm.runs.record import ByLength, LengthClass, Missing, Score, read_score
from lightning_tfm.sums import DamagedFile, check_files

COLUMNS = ("nll", "tokens", "source")


@dataclass(frozen=True)
class LongRun:
    """One run's score by length, and its lines."""

    row: str
    seed: int
    score: Score
    lines_S3: np.ndarray
    """(nll, pieces of the reference, pieces of the source) of each line"""

    @property
    def by_length(self) -> ByLength:
        assert self.score.by_length is not None, "only such scores are read"
        return self.score.by_length

    def at(self, side: str) -> dict[float, LengthClass]:
        """End of a class -> the class."""
        return {one.upto: one for one in self.by_length.classes if one.side == side}


@dataclass(frozen=True)
class LongRuns:
    """All that belong together: of one evaluation."""

    runs: dict[tuple[str, int], LongRun]
    missing: list[str] = field(default_factory=list)
    """why others are not there"""

    def of(self, row: str) -> list[LongRun]:
        return [run for (name, _), run in sorted(self.runs.items()) if name == row]


def read_runs(cells: Cells) -> LongRuns:
    """Runs whose score by length can be read and is of the evaluation that most share."""
    data = cells.study.base.data
    found: dict[tuple[str, int], LongRun] = {}
    missing: dict[str, list[str]] = {}
    for (row, seed), cell in cells.filled.items():
        why = "another vocabulary, in which lengths are others"
        run = Missing(why) if row in cells.foreign else _read(cell, data.long, data.training_length)
        if isinstance(run, Missing):
            missing.setdefault(run.reason.replace("STUDY", cells.study.name), []).append(f"{row}/{seed}")
        else:
            found[row, seed] = run
    common = commonest([run.score.evaluation_hash for run in found.values()])
    for key in [key for key, run in found.items() if run.score.evaluation_hash != common]:
        missing.setdefault("scored on other lines, or otherwise", []).append(f"{key[0]}/{key[1]}")
        del found[key]
    return LongRuns(found, [f"{why}: {', '.join(names)}" for why, names in missing.items()])


def scores_by_length(cell: FilledCell, split: str, limit: int) -> Iterator[Score]:
    """A run's scores by length: that of its record, and those that were made later."""
    later = (read_score(path) for path in sorted(cell.folder.glob(f"scores/*/{split}.json")))
    for score in (cell.record.scores.get("long"), *later):
        if isinstance(score, Score) and score.by_length is not None and score.by_length.limit == limit:
            yield score


def _read(cell: FilledCell, split: str, limit: int) -> LongRun | Missing:
    score = next(scores_by_length(cell, split, limit), None)
    if score is None:
        return Missing("not scored by length, which lightning-tfm report STUDY --collect does")
    folder = cell.folder / "scores" / score.evaluation_hash[:16]
    try:
        beside = read_score(folder / f"{split}.json")
        check_files(folder, beside.files if isinstance(beside, Score) else {})
        lines_S3 = read_columns(folder / f"{split}.sentences.tsv", COLUMNS)
    except (OSError, ValueError, DamagedFile) as error:
        return Missing(f"its scores by length cannot be read: {error}")
    if not math.isclose(lines_S3[:, 0].sum(), score.nll, rel_tol=1e-6) or lines_S3[:, 1].sum() != score.tokens:
        return Missing("its lines do not add up to the score by length")
    return LongRun(cell.row, cell.seed, score, lines_S3)
