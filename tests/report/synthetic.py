"""Studies as they would lie on disk, with planted effects and noise, without any training."""

import atexit
import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lightning_tfm.bleu import text_size
from lightning_tfm.config import Data, Experiment, Hardware, Miniature, Training, to_dict, training_hash
from lightning_tfm.corpus_metrics import Bleu
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.prepare import prepare
from lightning_tfm.model.size import count_parameters
from lightning_tfm.queue.prepare_data_rows import rows_data
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Seconds, Texts, to_plain
from lightning_tfm.study.rows import Fingerprints, Row, all_rows, apply
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import folder_of, save
from lightning_tfm.study.sweeps import Parameter, Pruner
from lightning_tfm.training.schedule import EventSchedule
from tests.helpers.records import record_of

BASE = Experiment(
    data=Data(corpus="builtin", pairs=400, vocab_size=300, max_len=128),
    training=Training(tokens=800, warmup=400, steps=100_000),
    miniature=Miniature(width=8, depth=2, steps=1000),
)


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
        rows: Sequence[str] | Sequence[Row],
        seeds: Sequence[int],
        name: str = "made",
        by_word: bool = False,
        base: Experiment = BASE,
    ):
        """`by_word`: records hold the nll per reference word and character, as those of today do."""
        self.base = base
        known = all_rows()
        chosen = [row if isinstance(row, Row) else known[row] for row in rows]
        self.root, self.rng = root, np.random.default_rng(8)
        made = store_of(base.data)
        shutil.copytree(made, root / "data" / made.name, dirs_exist_ok=True)
        self.prepared: Prepared = prepare(base.data, root)
        prints = Fingerprints(self.prepared.train_fingerprint, self.prepared.fingerprint("val"))
        store = self.prepared.folder.name
        V = self.prepared.tokenizer.V
        self.study = Ablation(
            name=name,
            base=base,
            rows=chosen,
            seeds=list(seeds),
            prints=prints,
            V=V,
            store=store,
            data=rows_data(base, self.prepared, chosen, root),
        )
        save(self.study, root)
        self.references = self.prepared.split("val").target_text()
        self.tokens = self.prepared.split("val").target_lengths + 1
        self.by_word = by_word
        self.counts = Bleu(self.references, "13a")

    def write_all(
        self, effects: Mapping[str, float] = {}, seed_sd: float = 0.02, skip: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Every cell but `skip`. `effects`: row -> difference in log PPL, which moves BLEU too."""
        for row in self.study.rows:
            for seed in self.study.seeds:
                if (row.name, seed) not in skip:
                    self.write(row, seed, effects.get(row.name, 0.0) + self.rng.normal(0, seed_sd))

    def folder(self, row: Row, seed: int) -> RunFolder:
        return RunFolder(self.root, training_hash(self.study.identity_of(row, seed)))

    def write(self, row: Row, seed: int, effect: float, **changes: Any) -> RunFolder:
        """One run; `changes` replace keys of its dev score."""
        rng, identity, data = self.rng, self.study.identity_of(row, seed), self.study.data_of(row)
        tokens = self.tokens
        if data.store != self.study.store:
            tokens = Prepared(self.root / "data" / data.store).split("val").target_lengths + 1
        sizes = [text_size(line) for line in self.references]
        words, characters = (sum(x) for x in zip(*sizes, strict=True))
        folder = RunFolder(self.root, training_hash(identity))
        exact = apply(self.base, row, seed).scaled()
        # what a sentence costs does not depend on its pieces
        nll = self.tokens * np.maximum(math.log(5) + effect + rng.normal(0, 0.15, len(self.tokens)), 0.01)
        hypotheses = [self._translation(line, 0.25 + effect) for line in self.references]
        name = self.study.evaluation_of(row)
        of_word = {"words": words, "characters": characters}
        of_word |= {"nll_per_word": nll.sum() / words, "nll_per_character": nll.sum() / characters}
        made = record_of(
            apply(self.base, row, seed),
            data.prints,
            data.V,
            ppl=math.exp(nll.sum() / tokens.sum()),
            nll=float(nll.sum()),
            tokens=int(tokens.sum()),
            **(of_word if self.by_word else {}),
            bleu=float(Bleu.score(self.counts(hypotheses).sum(0))),
            sentences=len(nll),
            flops=10**11 + count_parameters(exact.model, data.V)["total"] * 480_000,
            seconds=Seconds(train=60.0, data=1.0, validate=2.0, decode=3.0, total=66.0 + seed),
            data=Texts(corpus="builtin", store=data.store, train=data.prints.train, dev="d"),
        )
        dev = replace(made.scores["dev"], **changes)
        made = replace(made, scores={"dev": dev})
        scores = folder.scores(name)
        scores.mkdir(parents=True, exist_ok=True)
        rows = enumerate(zip(nll.tolist(), tokens, sizes, strict=True))
        lines = [f"{i}\t{x!r}\t{t}\t-1.0" + f"\t{w}\t{c}" * self.by_word + "\n" for i, (x, t, (w, c)) in rows]
        head = "line\tnll\ttokens\tscore" + "\twords\tcharacters" * self.by_word
        (scores / "val.sentences.tsv").write_text(f"{head}\n" + "".join(lines))
        (scores / "val.hyp.txt").write_text("".join(f"{h}\n" for h in hypotheses))
        (scores / "val.json").write_text(json.dumps(to_plain(dev)))
        (folder.path / "experiment.json").write_text(json.dumps(to_dict(exact)))
        (folder.path / "identity.json").write_text(json.dumps(identity))
        end = dev.ppl if isinstance(dev.ppl, float) else 5.0
        steps = exact.training.steps
        at = [s for s in range(1, steps + 1) if EventSchedule.of(Hardware(), exact.training).validates(s)]
        curve = [{"step": s, "dev_ppl": end * (1 + 8 * math.exp(-5 * s / steps)), "dev_nll": 1.0} for s in at]
        (folder.path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in curve))
        (folder.path / "result.json").write_text(json.dumps(to_plain(made)))
        return folder

    def _translation(self, line: str, wrong: float) -> str:
        words = line.split(" ")
        hit = self.rng.random(len(words)) < wrong
        return " ".join("x" if h else w for h, w in zip(hit, words, strict=True))


SPACE = [
    Parameter("training.lr_factor", "log_uniform_values", [], 0.1, 2.0),
    Parameter("model.P_drop", "uniform", [], 0.0, 0.4),
    Parameter("model.N", "categorical", [2, 4, 6]),
    Parameter("model.positions", "categorical", ["sinusoidal", "learned"]),
    Parameter("training.warmup", "int_uniform", [], 100, 1000),
]


def write_search(root: Path, trials: int, hostile: str = "", **changes: Any) -> Search:
    """A search of that many trials as `tune` leaves it: every sixth is stopped early, every ninth failed.

    The runs have their validations, but for the tenth one, which is not here.
    """
    rng = np.random.default_rng(3)
    aims = {"dev/ppl": "minimize", "parameters": "minimize"}
    search = Search(
        name="found",
        base=BASE,
        space=SPACE,
        sampler="tpe",
        seed=0,
        trials=trials,
        objectives=aims,
        constraints={},
        pruner=Pruner("median"),
        prints=Fingerprints("t", "d"),
        V=300,
        store="x",
    )
    search = replace(search, **changes)
    save(search, root)
    lines = []
    for i in range(trials):
        change = {
            "training.lr_factor": float(np.exp(rng.uniform(np.log(0.1), np.log(2)))),
            "model.P_drop": float(rng.uniform(0, 0.4)),
            "model.N": int(rng.choice([2, 4, 6])),
            "model.positions": str(rng.choice(["sinusoidal", "learned"])),
            "training.warmup": int(rng.integers(100, 1001)),
        }
        state = "pruned" if i % 6 == 5 else "fail" if i % 9 == 8 else "complete"
        values = [5 + 3 * abs(math.log(change["training.lr_factor"])) + rng.normal(0, 0.2), 1e5 * change["model.N"]]
        values = values if state == "complete" else [None, None]
        line = {"trial": f"t{i:04d}", "state": state} | change | dict(zip(search.objectives, values, strict=False))
        reason = "" if state == "complete" else f"stopped {hostile}"
        run, end = f"{i:016x}", values[0] or 9.0
        lines.append(line | {"steps_seen": 100, "run": run, "feasible": i != 2, "reason": reason})
        if i != 10:
            (root / "runs" / run).mkdir(parents=True)
            steps = range(20, 101 if state == "complete" else 61, 20)
            curve = [{"step": s, "dev_ppl": end * (1 + 8 * math.exp(-s / 20))} for s in steps]
            (root / "runs" / run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in curve))
    folder = folder_of(root, "found")
    (folder / "trials.json").write_text(json.dumps(lines))
    shares = {p.name: share for p, share in zip(SPACE, (0.7, 0.15, 0.1, 0.05, 0.0), strict=True)}
    told = {"trials": trials, "stopped": trials // 6}
    found = [{"objective": name, "importance": shares} | told for name in search.objectives]
    (folder / "importance.json").write_text(json.dumps(found))
    return search
