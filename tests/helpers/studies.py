"""Studies, searches and runs as they would lie on disk, of which nobody trained a step: the one maker of all tests.

`record`, `summary_row` and their like are single objects; Generator writes a table with planted effects that the report
reads down to its sentences; Folder a results folder of runs in every state, quick to make and of any size.
"""

import atexit
import json
import math
import random
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lightning_tfm.bleu import text_size
from lightning_tfm.config import (
    Data,
    Experiment,
    Hardware,
    Miniature,
    Training,
    evaluation_hash,
    override,
    to_dict,
    training_hash,
    training_identity,
)
from lightning_tfm.corpus_metrics import Bleu
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.prepare import prepare
from lightning_tfm.model.size import count_parameters
from lightning_tfm.queue.prepare_data_rows import rows_data
from lightning_tfm.report.records import Cells, FilledCell, matching_cells
from lightning_tfm.report.stats.evidence import NUMBERS, Evidence
from lightning_tfm.report.summary import Difference, Scores, Summary, SummaryRow
from lightning_tfm.report.wording.claims import ClaimSummary
from lightning_tfm.runs.folder import Attempt, RunFolder
from lightning_tfm.runs.record import (
    Git,
    Machine,
    Missing,
    Parameters,
    RunRecord,
    Score,
    Seconds,
    Texts,
    TrainSeconds,
    to_plain,
)
from lightning_tfm.study.rows import Fingerprints, Paper, Row, all_rows, apply
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of, save
from lightning_tfm.study.sweeps import Parameter, Pruner
from lightning_tfm.training.schedule import EventSchedule

PAPERS = all_rows()
NOT_PUBLISHED = Paper(None, None, None)
PRINTS = Fingerprints("t" * 64, "d" * 64)
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
DEV = Score(
    split="val", weights="last", ppl=2.0, nll=6.93, tokens=10, bleu=50.0, signature=SIGNATURE, sentences=4,
    evaluation_hash="e" * 64,
)  # fmt: skip
RECORD = RunRecord(
    training_hash="a" * 64, identity={"row": "any"}, parameters=Parameters(total=7), V=300, steps=6,
    target_tokens=80_000, source_tokens=80_000, flops=10**11, tokens_per_second=1300.0, scores={"dev": DEV},
    seconds=Seconds(train=1.0, validate=2.0, data=1.0, decode=3.0, total=7.0),
    hardware=Machine(host="box", cpu="a CPU", cpus=2, processes=1, threads=1),
    versions={"python": "3.11", "torch": "2.13.0"}, git=Git(commit="0123456789abcdef", changed=False),
    data=Texts(corpus="builtin", store="store", train="t", dev="d"), attempts=1, started=1.7e9, ended=1.7e9 + 66,
)  # fmt: skip


def own_row(name: str, change: Mapping[str, Any] = {}, group: str = "X", line: int = 1, **more: Any) -> Row:
    """A row of the user's own file, of which the paper publishes nothing."""
    return Row(name, group, dict(change), NOT_PUBLISHED, f"mine.yaml:{line}", **more)


def rows_of(names: Iterable[str | Row]) -> list[Row]:
    """The paper's rows by their names, others as they are."""
    return [PAPERS[name] if isinstance(name, str) else name for name in names]


def ablation(rows: Iterable[str | Row] = ("base",), seeds: Iterable[int] = (1,), **changes: Any) -> Ablation:
    """A table that is nowhere on disk; `changes` replace its other fields."""
    default = {"name": "made", "base": Experiment(), "prints": PRINTS, "V": 300, "store": "store"}
    return Ablation(rows=rows_of(rows), seeds=list(seeds), **(default | changes))


def record(**changes: Any) -> RunRecord:
    """A finished run. `changes` replace fields of it or of its dev score: record(ppl=3.0, steps=20)."""
    of_score = {f.name for f in fields(Score)}
    dev = replace(DEV, **{key: value for key, value in changes.items() if key in of_score})
    rest = {key: value for key, value in changes.items() if key not in of_score}
    return replace(RECORD, **{"scores": {"dev": dev}} | rest)


def record_of(e: Experiment, prints: Fingerprints = PRINTS, V: int = 300, **changes: Any) -> RunRecord:
    """`record` of an experiment (at the paper's scale), as its run would have identified itself."""
    identity, exact = training_identity(e, prints.train, {}), e.scaled()
    own = {"identity": identity, "training_hash": training_hash(identity), "experiment": to_dict(exact), "V": V}
    own |= {"parameters": Parameters(**count_parameters(exact.model, V)), "steps": exact.training.steps}
    own |= {"evaluation_hash": evaluation_hash(e, prints.dev), "data": replace(RECORD.data, train=prints.train)}
    return record(**own | changes)


def leave(attempt: Attempt, **changes: Any) -> None:
    """End a run with `record`."""
    named = {"training_hash": attempt.folder.training_hash} | changes
    attempt.write_json(attempt.folder.result, to_plain(record(**named)))


def difference(verdict: str, **numbers: Any) -> Difference:
    """With these numbers of its evidence, None for the others; without any, none was looked for."""
    evidence = Evidence(**dict.fromkeys(NUMBERS), n=1, n_base=1) if numbers else None
    return Difference(verdict, "", None, evidence=replace(evidence, **numbers) if evidence else None)


def summary_row(name: str, verdict: str = "", base: bool = False, **numbers: Any) -> SummaryRow:
    """A row of a report with this verdict in perplexity; none for base."""
    other = Difference("undecided", "", None)
    of_ppl, of_bleu = (None, None) if base else (difference(verdict, **numbers), other)
    ppl, bleu = Scores(5.0, None, {"1": 5.0}, of_ppl), Scores(25.0, None, {"1": 25.0}, of_bleu)
    return SummaryRow("A", name, base, {}, {}, [], None, 1, None, None, NOT_PUBLISHED, {}, {"ppl": ppl, "bleu": bleu})


def summary(rows: list[SummaryRow], claims: Sequence[ClaimSummary] = ()) -> Summary:
    """A report of these rows."""
    return Summary(
        study="made", scale="", signature="", seeds=[1], corpus="builtin", languages=["xa", "xb"], tested=True,
        clear={}, finished=len(rows), cells=len(rows), claims=list(claims), rows=rows,
    )  # fmt: skip


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """A file of one JSON object per line, such as metrics.jsonl."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in records))


def rescore(result: Path, **changes: Any) -> None:
    """Change keys of the dev score in a record on disk."""
    plain = json.loads(result.read_bytes())
    plain["scores"]["dev"] |= changes
    write_json(result, plain)


# --- tables with planted effects ---

BASE = Experiment(
    data=Data(corpus="builtin", pairs=400, vocab_size=300, max_len=128),
    training=Training(tokens=800, warmup=400, steps=100_000),
    miniature=Miniature(width=8, depth=2, steps=1000),
)
TWICE_THE_STEPS = replace(BASE, training=replace(BASE.training, steps=200_000))
"""a base that shares no run with BASE"""


@cache
def store_of(data: Data) -> Path:
    """The token store of `data`, made once in a process."""
    root = tempfile.mkdtemp(prefix="stores")
    atexit.register(shutil.rmtree, root)
    return prepare(data, Path(root)).folder


class Generator:
    """Writes a study. Perplexity of a row is `ppl` times its effect, of a seed log-normal around it."""

    def __init__(
        self,
        root: Path,
        rows: Iterable[str | Row],
        seeds: Iterable[int],
        name: str = "made",
        by_word: bool = False,
        base: Experiment = BASE,
    ):
        """`by_word`: records hold the nll per reference word and character, as those of today do."""
        self.base, self.root, self.rng, self.by_word = base, root, np.random.default_rng(8), by_word
        shutil.copytree(store_of(base.data), root / "data" / store_of(base.data).name, dirs_exist_ok=True)
        self.prepared: Prepared = prepare(base.data, root)
        prints = Fingerprints(self.prepared.train_fingerprint, self.prepared.fingerprint("val"))
        store, V = self.prepared.folder.name, self.prepared.tokenizer.V
        table = ablation(rows, seeds, name=name, base=base, prints=prints, V=V, store=store)
        self.study = save(replace(table, data=rows_data(base, self.prepared, table.rows, root)), root)
        self.references = self.prepared.split("val").target_text()
        self.tokens = self.prepared.split("val").target_lengths + 1
        self.counts = Bleu(self.references, "13a")

    def write_all(
        self, effects: Mapping[str, float] = {}, seed_sd: float = 0.02, skip: Iterable[tuple[str, int]] = ()
    ) -> None:
        """Every cell but `skip`. `effects`: row -> difference in log PPL, which moves BLEU too."""
        left_out = set(skip)
        for row in self.study.rows:
            for seed in self.study.seeds:
                if (row.name, seed) not in left_out:
                    self.write(row, seed, effects.get(row.name, 0.0) + self.rng.normal(0, seed_sd))

    def folder(self, row: Row, seed: int) -> RunFolder:
        return RunFolder(self.root, training_hash(self.study.identity_of(row, seed)))

    def write(self, row: Row, seed: int, effect: float, **changes: Any) -> RunFolder:
        """One run; `changes` replace keys of its dev score."""
        rng, data, tokens = self.rng, self.study.data_of(row), self.tokens
        if data.store != self.study.store:
            tokens = Prepared(self.root / "data" / data.store).split("val").target_lengths + 1
        sizes = [text_size(line) for line in self.references]
        words, characters = (sum(x) for x in zip(*sizes, strict=True))
        folder, e = self.folder(row, seed), apply(self.base, row, seed)
        exact = e.scaled()
        # what a sentence costs does not depend on its pieces
        nll = self.tokens * np.maximum(math.log(5) + effect + rng.normal(0, 0.15, len(self.tokens)), 0.01)
        hypotheses = [self._translation(line, 0.25 + effect) for line in self.references]
        of_word = {"words": words, "characters": characters}
        of_word |= {"nll_per_word": nll.sum() / words, "nll_per_character": nll.sum() / characters}
        made = record_of(
            e, data.prints, data.V, ppl=math.exp(nll.sum() / tokens.sum()), nll=float(nll.sum()),
            tokens=int(tokens.sum()), **(of_word if self.by_word else {}), sentences=len(nll),
            bleu=float(Bleu.score(self.counts(hypotheses).sum(0))),
            flops=10**11 + count_parameters(exact.model, data.V)["total"] * 480_000,
            seconds=Seconds(train=60.0, data=1.0, validate=2.0, decode=3.0, total=66.0 + seed),
            data=Texts(corpus="builtin", store=data.store, train=data.prints.train, dev="d"),
        )  # fmt: skip
        dev = replace(made.scores["dev"], **changes)
        scores = folder.scores(self.study.evaluation_of(row))
        write_json(scores / "val.json", to_plain(dev))
        rows = enumerate(zip(nll.tolist(), tokens, sizes, strict=True))
        lines = [f"{i}\t{x!r}\t{t}\t-1.0" + f"\t{w}\t{c}" * self.by_word + "\n" for i, (x, t, (w, c)) in rows]
        head = "line\tnll\ttokens\tscore" + "\twords\tcharacters" * self.by_word
        (scores / "val.sentences.tsv").write_text(f"{head}\n" + "".join(lines))
        (scores / "val.hyp.txt").write_text("".join(f"{h}\n" for h in hypotheses))
        end, steps = dev.ppl if isinstance(dev.ppl, float) else 5.0, exact.training.steps
        at = [s for s in range(1, steps + 1) if EventSchedule.of(Hardware(), exact.training).validates(s)]
        curve = [{"step": s, "dev_ppl": end * (1 + 8 * math.exp(-5 * s / steps)), "dev_nll": 1.0} for s in at]
        write_lines(folder.metrics, curve)
        write_json(folder.experiment, to_dict(exact))
        write_json(folder.identity, self.study.identity_of(row, seed))
        write_json(folder.result, to_plain(replace(made, scores={"dev": dev})))
        return folder

    def _translation(self, line: str, wrong: float) -> str:
        words = line.split(" ")
        hit = self.rng.random(len(words)) < wrong
        return " ".join("x" if h else w for h, w in zip(hit, words, strict=True))


def cells_of(study: Ablation, records: Mapping[tuple[str, int], RunRecord | Missing]) -> Cells:
    """The cells of a study from records that lie nowhere."""
    runs = {key: r if isinstance(r, Missing) else FilledCell(*key, Path(), r) for key, r in records.items()}
    return matching_cells(study, Path(), runs)


# --- searches ---

SPACE = [
    Parameter("training.lr_factor", "log_uniform_values", [], 0.1, 2.0),
    Parameter("model.P_drop", "uniform", [], 0.0, 0.4),
    Parameter("model.N", "categorical", [2, 4, 6]),
    Parameter("model.positions", "categorical", ["sinusoidal", "learned"]),
    Parameter("training.warmup", "int_uniform", [], 100, 1000),
]


def search(**changes: Any) -> Search:
    """A search that is nowhere on disk."""
    made = Search(
        name="found", base=BASE, space=SPACE, sampler="tpe", seed=0, trials=10, objectives={"dev/ppl": "minimize"},
        constraints={}, pruner=Pruner(), prints=Fingerprints("t", "d"), V=300, store="x",
    )  # fmt: skip
    return replace(made, **changes)


def write_search(root: Path, trials: int, hostile: str = "", **changes: Any) -> Search:
    """A search of that many trials as `tune` leaves it: every sixth is stopped early, every ninth failed.

    The runs have their validations, but for the tenth one, which is not here.
    """
    rng, aims = np.random.default_rng(3), {"dev/ppl": "minimize", "parameters": "minimize"}
    made = save(search(**{"trials": trials, "objectives": aims, "pruner": Pruner("median")} | changes), root)
    lines = []
    for i in range(trials):
        change = {
            # NumPy's exp has another last digit on another processor
            "training.lr_factor": round(math.exp(rng.uniform(math.log(0.1), math.log(2))), 9),
            "model.P_drop": float(rng.uniform(0, 0.4)),
            "model.N": int(rng.choice([2, 4, 6])),
            "model.positions": str(rng.choice(["sinusoidal", "learned"])),
            "training.warmup": int(rng.integers(100, 1001)),
        }
        state = "pruned" if i % 6 == 5 else "fail" if i % 9 == 8 else "complete"
        values = [5 + 3 * abs(math.log(change["training.lr_factor"])) + rng.normal(0, 0.2), 1e5 * change["model.N"]]
        values = values if state == "complete" else [None, None]
        line = {"trial": f"t{i:04d}", "state": state} | change | dict(zip(made.objectives, values, strict=False))
        reason = "" if state == "complete" else f"stopped {hostile}"
        run, end = f"{i:016x}", values[0] or 9.0
        lines.append(line | {"steps_seen": 100, "run": run, "feasible": i != 2, "reason": reason})
        if i != 10:
            steps = range(20, 101 if state == "complete" else 61, 20)
            curve = [{"step": s, "dev_ppl": end * (1 + 8 * math.exp(-s / 20))} for s in steps]
            write_lines(root / "runs" / run / "metrics.jsonl", curve)
    folder = folder_of(root, "found")
    write_json(folder / "trials.json", lines)
    shares = {p.name: share for p, share in zip(SPACE, (0.7, 0.15, 0.1, 0.05, 0.0), strict=True)}
    counted = {"trials": trials, "stopped": trials // 6}
    write_json(
        folder / "importance.json", [{"objective": name, "importance": shares} | counted for name in made.objectives]
    )
    return made


# --- folders of runs in every state ---

SMALL = Experiment(training=Training(steps=100_000), miniature=Miniature(width=8, depth=2, steps=50))
"""base of what Folder writes: 2,000 steps, logged every 50"""
WORDS = "ta torror venla narva povens kelda morin suta rilla oben".split()
FAR = {"host": "elsewhere", "pid": 1, "boot": "b", "start": 1}
"""a process on another machine, alive as long as its heartbeat is young"""
ENDS = {
    "failed": ("out_of_memory", "RuntimeError: can't allocate memory: you tried to allocate 9 GB"),
    "stopped early": ("pruned", "stopped after step {step} as unpromising"),
    "interrupted": ("interrupted", "stopped by SIGTERM after a checkpoint"),
}
"""state -> outcome and reason"""


class Folder:
    """Writes studies and runs below `root`. All values follow from `seed`."""

    def __init__(self, root: Path, seed: int = 7) -> None:
        self.root, self.random, self.now = root, random.Random(seed), time.time()

    def table(self, name: str, rows: Sequence[str] | None = None, seeds: Iterable[int] = (1, 2, 3)) -> Ablation:
        """An ablation of the paper's rows, not yet begun."""
        return save(ablation(rows or PAPERS, seeds, name=name, base=SMALL, V=800), self.root)

    def search(self, name: str, trials: int, seeds: Sequence[int] = ()) -> Search:
        """A search, not yet begun."""
        made = search(name=name, base=SMALL, space=SPACE[:2], trials=trials, seeds=list(seeds), pruner=Pruner("median"))
        return save(replace(made, prints=PRINTS, V=800, store="store"), self.root)

    def fill(self, study: Ablation, states: Sequence[str] = ("finished",)) -> None:
        """Every cell, in the states that `states` repeats."""
        for i, (row, seed) in enumerate((row, seed) for row in study.rows for seed in study.seeds):
            self.run(apply(study.base, row, seed), states[i % len(states)])

    def filled(
        self, name: str = "table", rows: Sequence[str] = ("base", "A-h1"), seeds: Iterable[int] = (1, 2)
    ) -> Ablation:
        """A table whose runs are all finished."""
        study = self.table(name, rows, seeds)
        self.fill(study)
        return study

    def trial(self, study: Search, number: int, state: str, **change: Any) -> RunFolder:
        """A trial and the study's link to it."""
        experiment = override(study.base, {key.replace("__", "."): value for key, value in change.items()}, "a trial")
        folder, seed = self.run(experiment, state), experiment.training.seed
        link = self.root / "studies" / study.name / "cells" / f"t{number:04d}" / f"{seed}.json"
        write_json(link, {"row": f"t{number:04d}", "seed": seed, "training_hash": folder.training_hash})
        return folder

    def run(self, experiment: Experiment = SMALL, state: str = "finished", texts: bool = True) -> RunFolder:
        """One run (of an experiment at the paper's scale) in one of the states of the dashboard."""
        exact, identity = experiment.scaled(), training_identity(experiment, PRINTS.train, {})
        folder = RunFolder(self.root, training_hash(identity))
        folder.path.mkdir(parents=True, exist_ok=True)
        if state == "waiting":
            return folder
        write_json(folder.identity, identity)
        write_json(folder.experiment, to_dict(exact))
        steps, share = exact.training.steps, 1.0 if state == "finished" else self.random.uniform(0.2, 0.9)
        at = max(1, int(steps * share) // 50 * 50)
        quality = self.random.lognormvariate(0, 0.1)
        write_lines(folder.metrics, self._metrics(steps, at, quality))
        attempt = {"number": 1, "token": "x", "owner": FAR, "time": self.now - 90}
        write_json(folder.attempts / "0001.json", attempt | {"ended": None if state == "running" else self.now - 5})
        if state == "running":
            (folder.attempts / "0001.beat").touch()
        if texts:
            write_lines(folder.path / "samples.jsonl", self._samples(steps, at))
        if state in ("running", "damaged", *ENDS):
            progress = {"step": at, "steps": steps, "tokens_per_second": 9000.5, "phase": "train", "time": self.now - 2}
            write_json(folder.progress, progress)
        if state in ENDS:
            outcome, reason = ENDS[state][0], ENDS[state][1].format(step=at)
            write_json(folder.outcome, {"outcome": outcome, "reason": reason, "step": at, "attempt": 1})
            folder.log.write_text("Traceback (most recent call last):\n  …\n" + reason + "\n")
        if state == "damaged":
            folder.result.write_text('{"status": "finished", "scores": {')
        if state == "finished":
            self._result(folder, experiment, quality)
        return folder

    def _result(self, folder: RunFolder, experiment: Experiment, quality: float) -> None:
        ppl = 2.1 * quality
        made = record_of(
            experiment, V=800, ppl=ppl, nll=1000 * math.log(ppl), tokens=1000, bleu=60 / quality, sentences=200,
            seconds=Seconds(train=60.0, data=2.0, validate=3.0, checkpoint=0.5, decode=4.0, total=69.5),
            train_seconds=TrainSeconds(forward=26.0, backward=29.0, optimizer=4.0), tokens_per_second=9100.0,
            data=Texts(corpus="builtin", store="store", train=PRINTS.train, dev=PRINTS.dev),
            started=self.now - 7200 * self.random.random(), ended=self.now - 3600 * self.random.random(),
        )  # fmt: skip
        write_json(folder.result, to_plain(made))
        scores = folder.scores(evaluation_hash(experiment, PRINTS.dev))
        scores.mkdir(parents=True, exist_ok=True)
        (scores / "val.hyp.txt").write_text("".join(f"{self._sentence(i, 0.3)}\n" for i in range(20)))

    def _sentence(self, number: int, wrong: float) -> str:
        words = random.Random(number).choices(WORDS, k=8)
        return " ".join(self.random.choice(WORDS) if self.random.random() < wrong else word for word in words)

    def _metrics(self, steps: int, at: int, quality: float) -> Iterable[dict[str, float]]:
        for step in range(50, at + 1, 50):
            loss = (1.2 + 5 * math.exp(-6 * step / steps)) * quality + self.random.gauss(0, 0.03)
            rate = min(step / 300, (300 / step) ** 0.5) * 5e-3
            course = {
                "target_tokens": step * 294,
                "seconds": step * 0.03,
                "grad_norm": 0.3 + 2 * math.exp(-8 * step / steps),
            }
            yield {"step": step, "loss": loss, "nll": loss - 0.4, "lr": rate} | course
            if step % (steps // 8) == 0:
                ppl = 2.1 * quality * (1 + 8 * math.exp(-6 * step / steps))
                yield {"step": step, "dev_nll": math.log(ppl), "dev_ppl": ppl}

    def _samples(self, steps: int, at: int) -> Iterable[dict[str, Any]]:
        sources = [self._sentence(100 + i, 0.0) for i in range(3)]
        yield {"step": 0, "sources": sources, "references": [text.upper() for text in sources]}
        for step in range(steps // 8, at + 1, steps // 8):
            wrong = 0.9 * (1 - step / steps)
            yield {"step": step, "translations": [self._sentence(100 + i, wrong).upper() for i in range(3)]}


def thousand(root: Path, count: int = 1000) -> Folder:
    """`count` runs: tables of all rows at five seeds, a search that is under way, and runs of no study."""
    made, left, number = Folder(root), count, 0
    mixed = ("finished",) * 17 + ("running", "failed", "interrupted")
    while left >= 110:
        number += 1
        study = made.table(f"table-{number:02d}", seeds=range(10 * number, 10 * number + 5))
        made.fill(study, mixed if number == 1 else ("finished",))
        left -= len(study.rows) * 5
    trials = made.search("search", 60)
    for trial in range(min(left, 40)):
        state = ("finished", "stopped early", "finished", "finished", "running")[trial % 5]
        factor, drop = made.random.uniform(0.2, 2), made.random.uniform(0, 0.4)
        made.trial(trials, trial, state, training__lr_factor=factor, model__P_drop=drop)
        left -= 1
    for extra in range(left):
        made.run(replace(SMALL, training=replace(SMALL.training, seed=900 + extra)))
    return made
