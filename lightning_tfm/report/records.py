"""Records -> cells: what every run of a study scored, sentence by sentence, and why a cell is empty.

Reads result.json, scores/<evaluation>/<split>.* and metrics.jsonl of each run, and the references of the dev text. A
record that does not belong in its cell is left out with the reason; nothing is ever averaged over such cells.
"""

import json
import math
import sys
from collections import Counter as Votes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lightning_tfm.config import training_hash
from lightning_tfm.corpus_metrics import Counted, counter_class, counter_of, signature_now
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, OF_TEXT, PPL, WORD, Metric, paper_metrics
from lightning_tfm.report.stats import resampling
from lightning_tfm.runs.divergence import Divergence, Undefined
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Missing, RunRecord, Score
from lightning_tfm.runs.rescored import OTHERWISE, read_scored
from lightning_tfm.study.row_tuning import TuningSummary, read_tuning
from lightning_tfm.study.rows import Row, differences
from lightning_tfm.study.sequential import Course, read_looks
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of
from lightning_tfm.sums import DamagedFile, check_files, intact
from lightning_tfm.watch.run_state import Curve, RunState

Key = tuple[str, int]
"""(row, seed)"""
Boots = dict[str, dict[Key, np.ndarray]]
"""metric -> (row, seed) -> scores of this run on the resampled test sets; no entry where sentences are not at hand"""
Counter = Callable[[Metric], Counted | None]
TOLERANCE = 1e-6
"""relative difference allowed between a score and the sum of its sentences"""


def collect_cells(study: Ablation, root: Path, course: Course | None) -> "dict[Key, FilledCell | Missing]":
    """(row, seed) -> the run that belongs there, with its record and curve, or why there is none. `course`: of a study
    whose seeds are added by looks."""
    cells: dict[Key, FilledCell | Missing] = {}
    for row in study.every_row:
        for seed in study.seeds:
            why = course.why_left_out(row.name, seed) if course else None
            cells[row.name, seed] = _cell(study, root, row, seed) if why is None else Missing(why)
    return cells


def _cell(study: Ablation, root: Path, row: Row, seed: int) -> "FilledCell | Missing":
    folder = RunFolder(root, study.cell(row, seed).training_hash)
    record = read_scored(folder, study.evaluation_of(row), study.base.data.dev)
    if not folder.result.exists():
        return _why_not(folder)
    if isinstance(record, Missing):
        return record
    curve = Curve.of(folder.path, record, study.data_of(row).prints.dev[:16])
    if curve.wrong:
        return Missing(curve.wrong, damaged=True)
    course = curve.course(record.V)
    if isinstance(course, Divergence):
        return Missing(str(course), diverged=True)
    return FilledCell(row.name, seed, folder.path, record, curve.validations, course)


def _why_not(folder: RunFolder) -> Missing:
    run = RunState.of(folder.path)
    at = "" if run.step is None or run.steps is None else f" at step {run.step} of {run.steps}"
    if run.state == "running":
        return Missing(f"running{at}")
    if run.state == "damaged":
        return Missing(run.words, damaged=True)
    if run.outcome is not None and run.state != "interrupted":
        return Missing(f"{run.outcome.outcome}{at}: {run.outcome.reason}", diverged=run.outcome.outcome == "nan_loss")
    return Missing(f"interrupted{at}" if at else "not run yet")


@dataclass(frozen=True)
class FilledCell:
    """One finished run that belongs in the table."""

    row: str
    seed: int
    folder: Path
    record: RunRecord
    validations: dict[int, float] = field(default_factory=dict)
    """step -> dev perplexity"""
    course: Undefined | None = None
    """where nobody can say whether its training diverged"""
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    """metric -> what its score adds up, of each sentence, [S, X] (resampling.py): without counts where the references
    are gone, and without those of metrics that the record lacks; empty where nothing is tested"""

    @property
    def dev(self) -> Score:
        return self.record.scores["dev"]

    @property
    def ppl(self) -> float:
        return float(self.dev.ppl)

    @property
    def sentences(self) -> int:
        return len(self.sums[PPL.name])

    def score(self, metric: Metric) -> float:
        value = metric.of(self.dev)
        assert value is not None, "cells without it are left out where it is tested"
        return float(value)

    def value(self, metric: str) -> float:
        """What is tested."""
        return METRICS[metric].transform(self.score(METRICS[metric]))

    def collected(self, name: str) -> Any:
        """What `report --collect` wrote into the run's folder, or None. Raises DamagedFile."""
        path = self.folder / "report" / f"{name}.json"
        try:
            record = json.loads(path.read_bytes())
            wrong = None if intact(record) else "its checksum does not match"
        except FileNotFoundError:
            return None
        except ValueError as error:
            wrong = str(error)
        if wrong:
            raise DamagedFile(f"{path}: damaged ({wrong}): remove it; report --collect makes it again")
        return record


@dataclass(frozen=True)
class Cells:
    study: Ablation
    root: Path
    filled: dict[Key, FilledCell]
    empty: dict[Key, Missing]
    course: Course | None = None
    """how seeds are added while looking (study/sequential.py); None for fixed ones"""
    sources: list[str] = field(default_factory=list)
    """lines of the dev text, as are `references`; empty where the data store is gone, and where nothing is tested"""
    references: list[str] = field(default_factory=list)
    reference: str | None = None
    """row that differences are to, where it is not base (sweep --reference)"""
    tuning: TuningSummary | None = None
    outdated: dict[str, int] = field(default_factory=dict)
    """added metric -> runs whose score by another version of it is left out"""

    @property
    def against(self) -> str | None:
        """The row that all others are compared with."""
        return self.reference or self.study.base_row

    @property
    def metrics(self) -> list[str]:
        """What is tested: what every record holds, the nll per word where rows have other pieces, what all had added
        and has a finite value, as the logarithm of 0 has not"""
        every = [
            {n for n in cell.dev.measures if n in METRICS and math.isfinite(cell.value(n))}
            for cell in self.filled.values()
        ]
        whole = {name for name in METRICS if every and name in set.intersection(*every)}
        whole |= {*paper_metrics(self.study.base.data.translated), *[WORD.name] * self.study.by_word}
        return [name for name in METRICS if name in whole]

    @property
    def foreign(self) -> list[str]:
        """Rows with other pieces than the one that all are compared with: no perplexity of theirs is comparable."""
        return self.study.foreign(self.against)

    @property
    def diverged(self) -> dict[str, list[int]]:
        """row -> its seeds that diverged, of rows that have any."""
        seeds: dict[str, list[int]] = {}
        for (row, seed), why in self.empty.items():
            if why.diverged:
                seeds.setdefault(row, []).append(seed)
        return seeds

    @cached_property
    def comparable(self) -> "Cells":
        """What is tested: hidden rows among the others, without the rows that have diverged seeds, whose other seeds
        are not a sample of the row."""
        without = self.diverged
        filled = {key: cell for key, cell in self.filled.items() if key[0] not in without}
        return replace(self, study=self.study.whole, filled=filled)

    @cached_property
    def boots(self) -> Boots:
        """Every run on the same resamples, made once."""
        boots: Boots = {}
        for metric in self.metrics:
            tables = {key: cell.sums.get(metric) for key, cell in sorted(self.filled.items())}
            by_sentence = {key: table for key, table in tables.items() if table is not None and len(table) > 1}
            if by_sentence and len(by_sentence) == len(tables):
                scores = resampling.resampled(list(by_sentence.values()), score_of(METRICS[metric]))
                boots[metric] = dict(zip(by_sentence, scores, strict=True))
        return boots

    @cached_property
    def runs(self) -> list[FilledCell]:
        """Each run once: not again those of a row that is another row."""
        twins = self.study.twins()
        return [cell for (row, _), cell in self.filled.items() if row not in twins]

    @property
    def signatures(self) -> dict[str, str]:
        """metric -> the signature that all its scores have, of those that have one."""
        scores = [cell.dev for cell in self.filled.values()]
        of_text = [(OF_TEXT.name, dev.signature) for dev in scores if dev.signature]
        return dict(of_text + [(name, added.signature) for dev in scores for name, added in dev.measures.items()])

    @property
    def curves(self) -> dict[Key, dict[int, float]]:
        """(row, seed) -> step -> dev perplexity."""
        return {key: cell.validations for key, cell in self.filled.items()}

    def of(self, row: str) -> list[FilledCell]:
        """A row's cells, in the order of seeds."""
        return [self.filled[row, seed] for seed in sorted(self.study.seeds) if (row, seed) in self.filled]

    def collected(self, name: str) -> dict[str, list[Any]]:
        """Row -> what was collected of its runs, of the rows that have any and did not diverge. Raises DamagedFile."""
        without = self.diverged
        rows = [row.name for row in self.study.rows if row.name not in without]
        records = {row: [cell.collected(name) for cell in self.of(row)] for row in rows}
        return {row: there for row, every in records.items() if (there := [record for record in every if record])}


def score_of(metric: Metric) -> Callable[[np.ndarray], np.ndarray]:
    """What makes a score, as tested, from its sums, [..., X]."""
    score = counter_class(metric).score if metric.counted else resampling.ratio
    return (lambda sums_X: np.log(score(sums_X))) if metric.counted and metric.log else score


def read_cells(study: Ablation, root: Path, course: Course | None = None) -> Cells:
    """Every cell with its record and curve, each read once. `course`: by default what looks.json says."""
    course = course or read_looks(folder_of(root, study.name))
    cells = matching_cells(study, root, collect_cells(study, root, course))
    return replace(cells, course=course, tuning=read_tuning(folder_of(root, study.name)))


def with_sentences(cells: Cells) -> Cells:
    """The cells with what their scores add up, sentence by sentence: what can be tested."""
    study, split = cells.study, cells.study.base.data.dev
    sources, references = dev_texts(study, cells.root)

    @cache
    def counter(metric: Metric) -> Counted | None:
        return counter_of(metric, references, study.base.evaluation) if references else None

    evaluations = {row.name: study.evaluation_of(row) for row in study.every_row}
    filled: dict[Key, FilledCell] = {}
    empty = dict(cells.empty)
    for key, cell in cells.filled.items():
        scores = RunFolder(cells.root, cell.record.training_hash).scores(evaluations[cell.row])
        try:
            filled[key] = replace(cell, sums=_sentences(cell.record, scores, split, counter))
        except (OSError, ValueError, UnicodeDecodeError, DamagedFile) as error:
            empty[key] = Missing(f"its scores cannot be read: {error}")
    return replace(cells, filled=filled, empty=empty, sources=sources, references=references)


def matching_cells(study: Ablation, root: Path, collected: "Mapping[Key, FilledCell | Missing]") -> Cells:
    """The cells of a table: of those that were collected only what belongs in it.

    A record with another signature than most is left out with its perplexity: cells are whole. Of an added metric, the
    record is as if it had not been added; so it is where a user-defined class has changed since.
    """
    rows = {row.name: row for row in study.every_row}
    empty: dict[Key, Missing] = {}
    filled: dict[Key, FilledCell] = {}
    for (name, seed), cell in collected.items():
        why = cell if isinstance(cell, Missing) else misfit(cell.record, study, rows[name], seed)
        if isinstance(cell, FilledCell) and why is None:
            filled[name, seed] = cell
        elif why is not None:
            empty[name, seed] = why
    common = commonest([cell.dev.signature for cell in filled.values()])
    signatures: dict[str, str] = {}
    for name in _added_metrics(cell.dev for cell in filled.values()):
        there = [cell.dev.measures[name].signature for cell in filled.values() if name in cell.dev.measures]
        signatures[name] = signature_now(METRICS[name]) or commonest(there)
    outdated, twins = Votes[str](), study.twins()
    for key, cell in list(filled.items()):
        own, dev = cell.dev.measures, cell.dev
        if cell.row not in twins:
            outdated.update(name for name in own if name in signatures and own[name].signature != signatures[name])
        measures = {name: added for name, added in own.items() if added.signature == signatures.get(name)}
        scores = cell.record.scores | {"dev": replace(dev, measures=measures)}
        filled[key] = replace(cell, record=replace(cell.record, scores=scores))
        if dev.signature != common:
            why_not = f"a different signature: {dev.signature}, the table's is {common}"
            empty[key] = Missing(f"{OF_TEXT.label} with {why_not}")
            del filled[key]
    return Cells(study, root, filled, empty, outdated=dict(outdated))


def _added_metrics(scores: Iterable[Score]) -> list[str]:
    """Metrics that any of these have more than others. A user-defined class that is gone is said to be so."""
    names = []
    for name in dict.fromkeys(name for score in scores for name in score.measures):
        try:
            names += [name] * (name in METRICS or (":" in name and METRICS[name].more))
        except UserError as error:
            print(f"lightning-tfm: {error}; it is left out", file=sys.stderr)
    return names


def commonest(signatures: Sequence[str]) -> str:
    """The one that most have, of several the first by name; empty where there is none."""
    votes = Votes(signatures)
    return min(votes, key=lambda signature: (-votes[signature], signature), default="")


def misfit(record: RunRecord, study: Ablation, row: Row, seed: int) -> Missing | None:
    """Why the record does not belong in the cell (row, seed) of the study's table; None where it does.

    It belongs there if its training identity is that of base + exactly the row's change + seed, and its dev score was
    made by the one evaluation that all cells share.
    """
    if training_hash(record.identity) != record.training_hash:
        return Missing("the record's identity does not yield its training hash")
    if reason := record.contradiction:
        return Missing(reason)
    if study.cell(row, seed).training_hash != record.training_hash:
        other = differences(study.identity_of(row, seed), record.identity, "the cell asks for")
        return Missing("a different experiment: " + "; ".join(other))
    if "dev" not in record.scores:
        return Missing("no dev score")
    dev = record.scores["dev"]
    if dev.evaluation_hash != study.evaluation_of(row):
        return Missing(OTHERWISE)
    if study.data and dev.nll_per_word is None:
        again = f"lightning-tfm validate {record.training_hash[:16]}"
        return Missing(f"no NLL per reference word (an older record): {again}")
    if math.isinf(dev.ppl):
        nats = f"nll {dev.nll / dev.tokens:,.0f} per token"
        why = f"its training diverged: dev PPL is infinite ({nats}), which no mean can hold"
        return Missing(why, diverged=True)
    if not (dev.ppl > 0 and (dev.bleu is None or 0 <= dev.bleu <= 100)):
        return Missing(f"its dev ppl is {dev.ppl}, its dev bleu {dev.bleu}")
    return None


def _sentences(record: RunRecord, scores: Path, split: str, counter: Counter) -> dict[str, np.ndarray]:
    """FilledCell.sums. Raises OSError, ValueError or DamagedFile."""
    dev = record.scores["dev"]
    check_files(scores, dev.files if (scores / f"{split}.json").is_file() else {})  # read with the record
    every = {m.name: _sums(m, scores, split, counter) for m in METRICS.values() if m.of(dev) is not None}
    sums = {name: of_metric for name, of_metric in every.items() if of_metric is not None}
    nll, tokens = sums[PPL.name].sum(0)
    if not math.isclose(nll, dev.nll, rel_tol=TOLERANCE) or tokens != dev.tokens:
        raise ValueError("the sentences do not add up to the score of the text")
    return sums


def counts_file(split: str, metric: Metric) -> str:
    """Name of the file that holds a metric's counts where a run came without its translations (report/archive.py)."""
    return f"{split}.counts.tsv" if metric == OF_TEXT else f"{split}.{metric.name}.counts.tsv"


def _sums(metric: Metric, scores: Path, split: str, counter: Counter) -> np.ndarray | None:
    """[S, X], of the translations or, where they were left behind, as counted on their machine."""
    if not metric.counted:
        return read_columns(scores / f"{split}.sentences.tsv", metric.columns)
    packed = scores / counts_file(split, metric)
    if packed.is_file():
        table = np.array([[int(x) for x in line.split("\t")] for line in read_lines(packed)], dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != counter_class(metric).WIDTH:
            raise ValueError(f"{packed.name} is incomplete")
        return table
    hypotheses, count = read_lines(scores / f"{split}.hyp.txt"), counter(metric)
    return count(hypotheses) if count else None


def read_columns(path: Path, names: Sequence[str]) -> np.ndarray:
    """These columns of a table of sentences, [S, columns]. Raises OSError or ValueError."""
    head, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    columns = [head.split("\t").index(name) for name in names]
    parts = [line.split("\t") for line in lines]
    if not parts or any(len(part) <= max(columns) for part in parts):
        raise ValueError(f"{path.name} is incomplete")
    table = np.array([[float(part[i]) for i in columns] for part in parts])
    if not np.isfinite(table).all():
        raise ValueError(f"{path.name} holds numbers that are not finite")
    return table


def read_lines(path: Path) -> list[str]:
    """Lines of a text, split at line feeds only. Raises OSError or UnicodeDecodeError."""
    return path.read_bytes().decode().split("\n")[:-1]


def dev_texts(study: Ablation, root: Path) -> tuple[list[str], list[str]]:
    """Source and reference lines of the dev text, empty where the data store is gone."""
    store = root / "data" / study.store
    if not (store / "card.json").is_file():
        return [], []
    split = Prepared(store).split(study.base.data.dev)
    return split.source_text(), split.target_text()
