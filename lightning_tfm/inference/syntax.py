"""What heads look at, where trees and alignments are known (data/gold.py): how often a head's strongest weight goes to
a word's parent, to the head of its phrase, to the source word that it translates.

From pieces to words, after Clark et al. 2019: a key word has the sum of its pieces' weights, a query word the mean over
its pieces; </s> and <s> are words. In the decoder and over the memory the queries of a word are the steps that predict
its pieces, and in the decoder gold counts where it comes before the word.

Two nulls, and p is the larger of theirs, so that it holds under both. `order`: gold is exchanged between sentences of
as many words, so that a head that looks only at places keeps its share. `untrained`: the rank among heads of the same
layer of untrained models with other seeds, as even these prefer some words, and words are bound to structure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.data.batch import Batch
from lightning_tfm.data.gold import NONE, Gold, gold_pairs
from lightning_tfm.data.module import evaluation_batches
from lightning_tfm.data.token_store import Split
from lightning_tfm.inference.attention_hooks import Place, looking, places
from lightning_tfm.inference.load import Trained
from lightning_tfm.model.layer_types import RestrictedSelfAttention
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.rng import generator

PERMUTATIONS = 999
UNTRAINED = 400
"""heads of each layer in the second null, at least"""
FIRST_SEED = 1_000_000
"""of the untrained models, far from those that people train with"""
MEASURED = (
    ("encoder", "parent"),
    ("encoder", "head"),
    ("decoder", "parent"),
    ("decoder", "head"),
    ("cross", "aligned"),
)
START = "\u2581"
"""SentencePiece's mark of a piece that begins a word"""

Chosen = dict[tuple[str, int], list[np.ndarray]]
"""(kind, layer) -> of each sentence the word that each head chooses, [head, word]"""
Tasks = dict[tuple[str, str], list[np.ndarray]]
"""(kind, relation) -> of each sentence the gold word of each word, or NONE"""


@dataclass(frozen=True)
class Sentence:
    """One line with gold: which word each piece belongs to, the last number that of the end or begin token."""

    line: int
    source_S: np.ndarray
    target_T: np.ndarray
    gold: Gold


def syntax(trained: Trained, split: Split) -> dict[str, Any]:
    """`relations`: kind, relation, how many `words`, the best fixed `distance`, and `layers`: [layer][head] of share, p
    and what the nulls expect. `agreement`: kind -> [layer] of the share of words at which two heads choose one word.
    Both are empty where there is no gold, or no attention to look at."""
    e = trained.module.experiment
    found = sentences(trained, split)
    transformer = trained.module.transformer
    if not found or not watched(transformer):
        return {"schema": 1, "split": "dev", "sentences": 0, "relations": [], "agreement": {}}
    texts = layouts(split, found)
    ours = chosen(transformer, texts, found)
    many = -(-UNTRAINED // e.model.h)
    begun = [
        chosen(make_model(e.model, trained.prepared.tokenizer.V, FIRST_SEED + i).eval(), texts, found)
        for i in range(many)
    ]
    tasks = {task: golds for task, golds in tasks_of(found).items() if any(kind == task[0] for kind, _ in ours)}
    return {
        "schema": 1,
        "split": "dev",
        "sentences": len(found),
        "untrained": many * e.model.h,
        "relations": [relation(task, golds, ours, begun, found) for task, golds in tasks.items()],
        "agreement": agreements(ours, begun),
    }


def sentences(trained: Trained, split: Split) -> list[Sentence]:
    """The lines of the dev text whose structure is known; none of another text, or of one stack for two."""
    e = trained.module.experiment
    gold = None if e.model.one_stack else gold_pairs(e.data, e.data.dev)
    found = []
    for i, lines in enumerate(zip(split.source_text(), split.target_text(), strict=True)):
        if gold is not None and lines in gold:
            sides = [
                words_of([trained.prepared.tokenizer.piece(int(x)) for x in ids], len(line.split(" ")))
                for ids, line in zip((split.source(i), split.target(i)), lines, strict=True)
            ]
            found.append(Sentence(i, sides[0], sides[1], gold[lines]))
    return found


def words_of(pieces: Sequence[str], words: int) -> np.ndarray:
    """The word of each piece, from 0, and that of the token that ends or begins the line: `words`."""
    number = np.cumsum([piece.startswith(START) for piece in pieces]) - 1
    assert number[-1] == words - 1, "as many words as spaces part"
    return np.append(number, words)


def tasks_of(found: list[Sentence]) -> Tasks:
    tasks: Tasks = {task: [] for task in MEASURED}
    for sentence in found:
        gold = sentence.gold
        sides = {"encoder": "source", "decoder": "target"}
        for kind, name in MEASURED:
            here = np.array(gold.aligned if kind == "cross" else getattr(gold, name)[sides[kind]])
            if kind == "decoder":
                here[here >= np.arange(len(here))] = NONE
            tasks[kind, name].append(here)
    return tasks


def watched(transformer: SequenceModel) -> list[Place]:
    """All attention with weights to look at; restricted self-attention's blocks hold queries that are none."""
    return [
        place
        for place in places(transformer)
        if not isinstance(place.module, RestrictedSelfAttention)
        and (place.module.mix is None or place.module.mix.has_weights)
    ]


@dataclass(frozen=True)
class Layout:
    """A batch of lines, those with gold, and by kind which pieces are which words."""

    batch: Batch
    rows: list[int]
    sentences: list[int]
    """of each row"""
    queries: dict[str, Tensor]
    """[rows, 1, word, piece], each word's weights summing to 1"""
    keys: dict[str, Tensor]
    """[rows, 1, piece, word]"""


def layouts(split: Split, found: list[Sentence]) -> list[Layout]:
    number, made = {s.line: i for i, s in enumerate(found)}, []
    for batch in evaluation_batches(split):
        lines = batch.index_B.tolist()
        rows = [row for row, line in enumerate(lines) if line in number]
        here = [number[lines[row]] for row in rows]
        source = _members([found[i].source_S for i in here])
        target = _members([found[i].target_T for i in here])
        # the query of a step predicts the next piece; a step's keys begin with <s>, which is the last of the words
        written = _members([np.roll(found[i].target_T, 1) for i in here])
        queries = {"encoder": _mean(source), "decoder": _mean(target), "cross": _mean(target)}
        keys = {"encoder": source, "decoder": written, "cross": source}
        made.append(Layout(batch, rows, here, queries, keys))
    return made


def _members(words: Sequence[np.ndarray]) -> Tensor:
    """[sentence, 1, piece, word]: 1 where the piece is of the word."""
    pieces, most = max(map(len, words), default=0), max((x.max() + 1 for x in words), default=0)
    found = torch.zeros(len(words), 1, pieces, int(most))
    for i, of in enumerate(words):
        found[i, 0, np.arange(len(of)), of] = 1
    return found


def _mean(members: Tensor) -> Tensor:
    return (members / members.sum(2, keepdim=True).clamp(min=1)).transpose(2, 3)


@torch.no_grad()
def chosen(transformer: SequenceModel, texts: list[Layout], found: list[Sentence]) -> Chosen:
    """The word with the strongest weight, of every head, for every word of every sentence; of equal ones the first.

    It may be </s>, the last number, or <s>, which is NONE - 1.
    """
    seen: dict[tuple[str, int], Tensor] = {}
    here = watched(transformer)
    made: Chosen = {(place.kind, place.layer): [np.empty(0)] * len(found) for place in here}
    with looking(here, lambda place, look: seen.update({(place.kind, place.layer): look.weights})):
        for text in texts:
            transformer.hidden(text.batch.source_BS, text.batch.target_in_BT, text.batch.allowed)
            for (kind, layer), weights in seen.items():
                words_BHMN = text.queries[kind] @ weights[text.rows] @ text.keys[kind]
                none = text.keys[kind].sum(2, keepdim=True) == 0  # words of longer sentences
                best_BHM = words_BHMN.masked_fill(none, -torch.inf).argmax(-1).numpy()
                for i, best_HM in zip(text.sentences, best_BHM, strict=True):
                    gold = found[i].gold
                    words = len(gold.aligned) if kind != "encoder" else len(gold.parent["source"])
                    best = best_HM[:, :words]
                    made[kind, layer][i] = np.where(best == words, NONE - 1, best) if kind == "decoder" else best
            seen.clear()
    return made


def relation(
    task: tuple[str, str], golds: list[np.ndarray], ours: Chosen, begun: list[Chosen], found: list[Sentence]
) -> dict[str, Any]:
    """One relation, over all layers of its kind."""
    words = sum(int((gold != NONE).sum()) for gold in golds)
    distances = Counter(x for gold in golds for x in (gold - np.arange(len(gold)))[gold != NONE].tolist()).most_common(
        1
    )
    layers = []
    for kind, layer in ours:
        if kind == task[0]:
            at = (kind, layer)
            share, expected, order = exchanged(ours[at], golds, alike(kind, found), words)
            chance = np.concatenate([hits(one[at], golds) for one in begun]) / words
            rank = (1 + (chance >= share[:, None]).sum(1)) / (1 + len(chance))
            columns = zip(share, expected, order, np.full(len(share), chance.mean()), rank, strict=True)
            names = ("share", "order", "p_order", "untrained", "p_untrained")
            layers.append([{n: round(float(x), 6) for n, x in zip(names, c, strict=True)} for c in columns])
    distance, count = distances[0]
    best = {"words": distance, "share": round(count / words, 6)}
    return {"kind": task[0], "relation": task[1], "words": words, "distance": best, "layers": layers}


def alike(kind: str, found: list[Sentence]) -> list[np.ndarray]:
    """Sentences of as many words, of both sides over the memory."""
    sizes = [
        (len(s.gold.parent["source"]) * (kind != "decoder"), len(s.gold.aligned) * (kind != "encoder")) for s in found
    ]
    groups: dict[tuple[int, int], list[int]] = {}
    for i, size in enumerate(sizes):
        groups.setdefault(size, []).append(i)
    return [np.array(group) for group in groups.values()]


def hits(choices: Sequence[np.ndarray], golds: Sequence[np.ndarray]) -> np.ndarray:
    """[head]: words whose gold a head chooses."""
    return np.sum([(choice == gold).sum(1) for choice, gold in zip(choices, golds, strict=True)], 0)


def exchanged(
    choices: Sequence[np.ndarray], golds: Sequence[np.ndarray], groups: Sequence[np.ndarray], words: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(share, its mean over the permutations, p) of each head."""
    draw = generator("exchanged gold", 0)
    total = np.zeros((PERMUTATIONS, len(choices[0])))
    for group in groups:
        choice_KHM = np.stack([choices[i] for i in group])
        gold_KM = np.stack([golds[i] for i in group])
        meet_HKK = np.stack([(choice_KHM == gold_M).sum(2) for gold_M in gold_KM], 2).transpose(1, 0, 2)
        order_PK = draw.permuted(np.tile(np.arange(len(group)), (PERMUTATIONS, 1)), axis=1)
        total += meet_HKK[:, np.arange(len(group)), order_PK].sum(-1).T
    own = hits(choices, golds)
    return own / words, total.mean(0) / words, (1 + (total >= own).sum(0)) / (1 + PERMUTATIONS)


def agreements(ours: Chosen, begun: list[Chosen]) -> dict[str, list[dict[str, float]]]:
    """kind -> of each layer the agreement of two of its heads, and that of untrained models; empty of one head."""
    found: dict[str, list[dict[str, float]]] = {}
    for at, choices in ours.items():
        if len(choices[0]) > 1:
            pair = {"trained": agreement(choices), "untrained": float(np.mean([agreement(b[at]) for b in begun]))}
            found.setdefault(at[0], []).append({name: round(x, 6) for name, x in pair.items()})
    return found


def agreement(choices: Sequence[np.ndarray]) -> float:
    """Share of words at which two heads choose one word, mean over the pairs of heads."""
    every_HM = np.concatenate(choices, 1)
    h = len(every_HM)
    same = (every_HM[:, None] == every_HM[None]).mean(-1)
    return float((same.sum() - h) / (h * (h - 1)))
