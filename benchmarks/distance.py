"""Does the verb still agree with a distant subject? Claim 5 of docs/claims.md, by the length of a layer's path.

    lightning-tfm sweep sweeps/layers.yaml --name distance --only L-near3,L-near7,L-conv,L-dilated,L-lstm
    python benchmarks/distance.py results experiments/results/claims/distance.json          (some seconds a run)

Main clauses of the built-in grammar in which the finite verb follows its noun at once, or an object relative clause
lies between them whose own verb has another vowel. A model is right where the sentence with the right vowel in the verb
has the smallest nll of four (contrastive, as Sennrich 2017; Tang et al. 2018); chance is 25 %. None is in train.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from lightning_tfm.config import Data
from lightning_tfm.data.batch import make_batch
from lightning_tfm.data.builtin import GENDERS, PLURAL, Builtin, Grammar
from lightning_tfm.data.lexicon import Draw, Lexicon
from lightning_tfm.inference.load import Trained
from lightning_tfm.report.stats.multiplicity import holm
from lightning_tfm.results import load_run, load_study

CLASSES = {"0": (0, 0), "3 to 4": (3, 4), "5 to 6": (5, 6), "7 and more": (7, 99)}
"""words of the target between the noun and its verb"""
SENTENCES = 300
"""of each class"""
VOWELS = GENDERS + PLURAL


@dataclass(frozen=True)
class Planted:
    """A sentence pair and what agrees in it."""

    source: str
    target: list[str]
    verb: int
    """its place in `target`; its vowel is the last letter but one"""
    distance: int

    def targets(self) -> list[str]:
        """The right one, then those with the three wrong vowels."""
        right = self.target[self.verb]
        return [self._with(right[:-2] + v + right[-1]) for v in sorted(VOWELS, key=lambda v: v != right[-2])]

    def _with(self, verb: str) -> str:
        text = " ".join([*self.target[: self.verb], verb, *self.target[self.verb + 1 :]])
        return text[0].upper() + text[1:] + "."


def planted_pairs(data: Data) -> list[Planted]:
    """`SENTENCES` of each class, in the order of CLASSES."""
    train = {source for source, _ in Builtin(data.pairs, data.corpus_seed).lines("train")}
    by_class: dict[str, list[Planted]] = {name: [] for name in CLASSES}
    for pair in _draws(data):
        if all(len(pairs) == SENTENCES for pairs in by_class.values()):
            return [pair for pairs in by_class.values() for pair in pairs]
        for name, (least, most) in CLASSES.items():
            if least <= pair.distance <= most and len(by_class[name]) < SENTENCES and pair.source not in train:
                by_class[name].append(pair)
                train.add(pair.source)
    raise AssertionError("the grammar never ends")


def _draws(data: Data) -> Iterator[Planted]:
    lexicon = Lexicon(data.corpus_seed)
    grammar = Grammar(lexicon, Draw("agreement", data.corpus_seed))
    times = {time[0] for time in lexicon.times}
    while True:
        source, target, subject, _ = grammar._clause("main")
        before, verb = len(subject.source), len(subject.target)
        if source[before] in ("no", "va") or source[-1] in times or "de" in subject.source:
            continue
        distance = 0
        if "ke" in subject.source:
            pronoun = f"w{subject.vowel}n"
            if subject.target[-1][-2] == subject.vowel or pronoun not in subject.target:
                continue  # a subject's clause, whose verb has the same vowel, or the same by chance
            distance = verb - subject.target.index(pronoun)
        text = " ".join(source)
        yield Planted(text[0].upper() + text[1:] + ".", target, verb, distance)


def right(trained: Trained, pairs: list[Planted]) -> list[int]:
    """How many sentences of each class the run gets right."""
    encode = trained.prepared.tokenizer.encode
    nll = []
    for start in range(0, len(pairs), 50):
        some = pairs[start : start + 50]
        source = [ids for ids in encode([pair.source for pair in some]) for _ in VOWELS]
        batch = make_batch(source, encode([t for pair in some for t in pair.targets()]), np.arange(len(source)))
        nll.append(trained.module.sentence_nll(batch))
    best = np.concatenate(nll).reshape(-1, len(VOWELS)).argmin(1) == 0
    return best.reshape(len(CLASSES), SENTENCES).sum(1).tolist()


def measure(root: Path) -> dict[str, Any]:
    """Right sentences of every run of the study `distance`: row, seed, a number for each class."""
    study = load_study("distance", root)
    pairs, right_of = planted_pairs(study.study.base.data), dict[str, dict[str, list[int]]]()
    for run in study.state().cells:
        for cell in run.cell.runs:
            trained = load_run(cell.training_hash[:16], root).trained
            right_of.setdefault(cell.row, {})[str(cell.seed)] = right(trained, pairs)
    return {"classes": [*CLASSES], "sentences": SENTENCES, "torch": torch.__version__, "right": right_of}


def table(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each row: % right in each class; its fall from the first class to the last beyond base's, in points,
    with the 95 % interval over seeds (Welch) and p by Holm over the rows."""
    share = {row: np.array([*seeds.values()]) * 100 / record["sentences"] for row, seeds in record["right"].items()}
    fall = {row: of[:, 0] - of[:, -1] for row, of in share.items()}
    rows = [row for row in share if row != "base"]
    tests = {row: stats.ttest_ind(fall[row], fall["base"], equal_var=False) for row in rows}
    adjusted = dict(zip(rows, holm(np.array([tests[row].pvalue for row in rows])), strict=True))
    return [
        {"row": row, "seeds": len(of), "right": of.mean(0).tolist(), "fall": float(fall[row].mean())}
        | ({"extra": float(fall[row].mean() - fall["base"].mean())} if row in tests else {})
        | ({"interval": [*tests[row].confidence_interval()], "p": float(adjusted[row])} if row in tests else {})
        for row, of in share.items()
    ]


def main() -> None:
    root, out = map(Path, sys.argv[1:])
    record = measure(root)
    out.write_text(json.dumps(record, indent=1) + "\n")
    for line in table(record):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
