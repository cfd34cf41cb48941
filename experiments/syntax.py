"""What heads look at, where trees and alignments are known: the rule, its nulls and what came out are
docs/results/syntax.md.

    python experiments/syntax.py RUN [--out results]     measures a finished run: some 25 CPU seconds
    python experiments/syntax.py syntax.json             prints what was measured before
    … --figure heads.svg                                 draws it, too

Sentences of the built-in languages are drawn from trees. Their sources name the stores of data, so nothing is added to
them: the same grammar draws the same sentences once more, with words that remember what they belong to. Its parent is
the word that it depends on; a phrase with a preposition, `to` or `de`, a relative clause and a joined clause are headed
by the word that begins them. Its head is the noun or verb over it, such function words passed over; of these words the
noun or verb that they begin. A target word is aligned with what it translates: a compound with its head, a number with
one of its digits. In the treebank what `e` joins belongs to the first part, and so does `e`, as in its trees.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.spatial.distance import pdist
from torch import Tensor

import lightning_tfm as lt
from lightning_tfm.config import Data
from lightning_tfm.data.batch import Batch
from lightning_tfm.data.builtin import GENDERS, HELD_OUT, PLURAL, Builtin, Grammar, Phrase
from lightning_tfm.data.lexicon import Draw, Lexicon
from lightning_tfm.data.module import evaluation_batches
from lightning_tfm.data.token_store import Split
from lightning_tfm.data.treebank import LEAVES, Tree, pair
from lightning_tfm.data.trees import BuiltinTrees, Treebank
from lightning_tfm.inference.load import Trained
from lightning_tfm.model.layer_types import RestrictedSelfAttention
from lightning_tfm.report.charts.grid import grid
from lightning_tfm.report.charts.svg import standalone_column
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.rng import generator

NONE = -1
"""no such word"""
PERMUTATIONS = 999
UNTRAINED = 400
"""heads of each layer in the second null, at least"""
FIRST_SEED = 1_000_000
"""of the untrained models, far from those that people train with"""
TASKS = (("encoder", "parent"), ("encoder", "head"), ("decoder", "parent"), ("decoder", "head"), ("cross", "aligned"))
NAMES = {"parent": "the parent", "head": "the phrase head", "aligned": "the aligned word"}

Chosen = dict[tuple[str, int], list[np.ndarray]]
"""(kind, layer) -> of each sentence the word that each head chooses, [head, word]"""
Gold = dict[tuple[str, str], list[int]]
"""of TASKS: the number of a word, from 0, or NONE, of each source word (encoder) or target word. Spaces part words"""


class Word(str):
    parent: "Word | None" = None
    head: "Word | None" = None
    source: "Word | None" = None


def _words(words: Sequence[str]) -> list[Any]:
    """Words, with what is known of those that remember it. Any: the grammar's lists are of plain ones."""
    return [word if isinstance(word, Word) else Word(word) for word in words]


def _attach(words: Sequence[Word], parent: Word, head: Word) -> None:
    """Those that belong nowhere yet."""
    for word in words:
        if word is not parent:
            word.parent, word.head = word.parent or parent, word.head or head


class Traced(Grammar):
    """Draws the sentences of Grammar and keeps the words of their clauses."""

    def __init__(self, lexicon: Lexicon, draw: Draw):
        super().__init__(lexicon, draw)
        self._verbs = {verb.source + ending for verb in lexicon.verbs for ending in ("", "ed")}
        self._adjectives = {adjective.source for adjective in lexicon.adjectives}
        self._nouns = {noun.source for noun in lexicon.nouns}
        self._source = {target: source for source, target in (*lexicon.prepositions, *lexicon.times, ("no", "nit"))}
        for vowel in GENDERS + PLURAL:
            self._source |= {f"w{vowel}r": "va", f"h{vowel}": "il", f"h{vowel}n": "lo"}
        self._opens = {"to", "de", *(source for source, _ in lexicon.prepositions)}
        self._clauses: list[tuple[list[Word], list[Word], Word]] = []

    def draw_gold(self) -> tuple[str, str, Gold]:
        self._clauses.clear()
        lines = self.sentence()
        (source, target, verb), *more = self._clauses
        for source_2, target_2, verb_2 in more:
            # what joins them is the word between, in both languages
            joins, translation = Word(lines[0].split(" ")[len(source)]), Word(lines[1].split(" ")[len(target)])
            joins.parent, joins.head, translation.source = verb, verb_2, joins
            _attach([verb_2], joins, verb)
            source, target = [*source, joins, *source_2], [*target, translation, *target_2]
        return (*lines, _gold(source, target))

    def _clause(self, order: str, *first: Any) -> Any:
        drawn, translated, subject, object_ = super()._clause(order, *first)
        source, verb = self._attach_all(drawn)
        by_name = {word: word for plain, word in zip(drawn, source, strict=True) if plain is not word}
        target = _words(translated)
        for word in target:
            word.source = word.source or by_name.get(self._source.get(word, ""), verb)
        self._clauses.append((source, target, verb))
        return source, target, subject, object_

    def _phrase(self, case: str, depth: int | None) -> Phrase:
        made = super()._phrase(case, depth)
        (source, noun), target = self._attach_all(made.source), _words(made.target)
        target[0].source = target[0].source or noun  # a name
        return Phrase(source, target, made.vowel, made.category)

    def _common(self, case: str) -> Phrase:
        made = super()._common(case)
        source, target = _words(made.source), _words(made.target)
        noun = target[-1].source = source[-1]
        before = [word for word in source[:-1] if word not in self._nouns]
        if before[-1] in self._adjectives:
            target[-2].source = before.pop()
        numbers = [word for word in target if word.source is None]
        for word in numbers:
            hundreds = word is not numbers[-1] or before[-1] == self._words.hundred[0]
            word.source = before[0 if hundreds else -1]
        _attach(source, noun, noun)
        return Phrase(source, target, made.vowel, made.category)

    def _relative(self, head: Phrase, depth: int) -> tuple[list[str], list[str]]:
        drawn, translated = super()._relative(head, depth)
        source, verb = self._attach_all(drawn)
        verb.parent, source[0].parent = source[0], None
        target = _words(translated)
        target[0].source = source[0]
        target[-1].source = next((word for word in source if word == "va" and word.parent is verb), verb)
        for word in target:
            word.source = word.source or verb
        return source, target

    def _attach_all(self, words: list[str]) -> tuple[list[Any], Word]:
        """Words of a clause or phrase, and its verb or noun: over all but what `to`, `de` or a preposition opens."""
        new = [not isinstance(word, Word) for word in words]
        made = _words(words)
        verbs = [word for word, plain in zip(made, new, strict=True) if plain and word in self._verbs]
        over = verbs[0] if verbs else next(word for word in made if word.parent is None)
        opened: Word | None = None
        for word, plain in zip(made, new, strict=True):
            if plain:
                opened = word if word in self._opens else None
            elif opened is not None and word.parent is None:  # the noun of what it opens
                opened.head = word
                _attach([word], opened, over)
        _attach(made, over, over)
        return made, over


def _gold(source: list[Word], target: list[Word]) -> Gold:
    number = {id(word): i for i, word in enumerate(source)} | {id(None): NONE}
    parent, head = ([number[id(getattr(word, name))] for word in source] for name in ("parent", "head"))
    aligned = [number[id(word.source)] for word in target]
    of_target = projection(parent, aligned), projection(head, aligned)
    return dict(zip(TASKS, (parent, head, *of_target, aligned), strict=True))


def projection(up: list[int], aligned: list[int]) -> list[int]:
    """Of each target word the one that translates its source word's nearest ancestor that is translated at all."""
    there = {word: i for i, word in reversed(list(enumerate(aligned))) if word != NONE}
    places = []
    for word in aligned:
        above = up[word] if word != NONE else NONE
        while above != NONE and above not in there:
            above = up[above]
        places.append(there.get(above, NONE))
    return places


def head_child(tree: Tree, content: bool) -> Tree:
    """The child that heads a phrase of the built-in treebank; `content`: not the word that opens it."""
    children = [child for child in tree.children if child.word != "," and child.word != "."]
    if tree.label in ("PP", "SBAR"):
        return children[-1 if content else 0]
    if tree.label == "NP" and not children[0].children:
        words = [child.word for child in children]
        return children[words.index("e") - 1 if "e" in words else -1]
    if tree.label == "S" and children[0].label == "NP":
        return children[1]
    return children[0]


def of_tree(tree: Tree) -> Gold:
    """Of a sentence and its linearised tree, in which the parent of a token is the label whose bracket is open, of a
    label that closes the one that opened."""
    parent, head = dict[int, int](), dict[int, int]()
    for up, content in ((parent, False), (head, True)):
        _attach_leaves(tree, content, count(), up)
    aligned, opened, parents, word = [], list[int](), [], 0
    for i, token in enumerate(pair(tree)[1].split(" ")):
        leaf = token in LEAVES
        parents.append(opened[-1] if opened else NONE)
        aligned.append(word if leaf else NONE)
        word += leaf
        if token.startswith("/"):
            opened.pop()
        elif not leaf:
            opened.append(i)
    above, over = ([up.get(i, NONE) for i in range(word)] for up in (parent, head))
    return dict(zip(TASKS, (above, over, parents, projection(over, aligned), aligned), strict=True))


def _attach_leaves(tree: Tree, content: bool, numbers: Iterator[int], above: dict[int, int]) -> int:
    """The number of the head word of `tree`; all others below it get theirs in `above`."""
    if tree.word:
        return next(numbers)
    heads = {id(child): _attach_leaves(child, content, numbers, above) for child in tree.children}
    own = heads[id(head_child(tree, content))]
    above |= {word: own for word in heads.values() if word != own}
    return own


def gold_pairs(data: Data, split: str) -> dict[tuple[str, str], Gold]:
    """(source line, target line) -> its gold structure, for all lines of a split that is held out.

    The generator draws more than it keeps, as no sentence comes twice, and in the same order.
    """
    if data.corpus not in ("builtin", "trees") or split not in ("val", "test"):
        raise SystemExit(f"data.corpus={data.corpus}, {split}: trees are known of val and test of builtin and trees")
    if data.corpus == "builtin":
        grammar = Traced(Lexicon(data.corpus_seed), Draw(split, data.corpus_seed))
        lines, drawn = Builtin(data.pairs, data.corpus_seed).lines(split), (grammar.draw_gold() for _ in count())
    else:
        bank = Treebank(data.corpus_seed, Draw("trees", split, data.corpus_seed))
        trees = (bank.sentence() for _ in count())
        lines, drawn = BuiltinTrees(data).lines(split), ((*pair(tree), of_tree(tree)) for tree in trees)
    pairs = {}
    for line in lines:
        pairs[line] = next((gold for *both, gold in islice(drawn, 100 * HELD_OUT) if tuple(both) == line), None)
        assert pairs[line] is not None, f"the grammar no longer draws {line[0]!r}"
    return pairs


class Sentence(NamedTuple):
    """Which word each token belongs to, the last number that of the end or begin token."""

    source_S: np.ndarray
    target_T: np.ndarray
    gold: Gold


def sentences_of(trained: Trained, split: Split) -> list[Sentence]:
    """The lines of the dev text, in order."""
    data, piece, sentences = trained.module.experiment.data, trained.prepared.tokenizer.piece, []
    gold = gold_pairs(data, data.dev)
    for i, lines in enumerate(zip(split.source_text(), split.target_text(), strict=True)):
        tokens = [[piece(int(x)) for x in ids] for ids in (split.source(i), split.target(i))]
        words = [words_of(ids, len(line.split(" "))) for ids, line in zip(tokens, lines, strict=True)]
        sentences.append(Sentence(words[0], words[1], gold[lines]))
    return sentences


def words_of(pieces: Sequence[str], words: int) -> np.ndarray:
    """The word of each token, from 0, and that of the one that ends or begins the line: `words`."""
    number = np.cumsum([piece.startswith("\u2581") for piece in pieces]) - 1  # SentencePiece's mark of a word's first
    assert number[-1] == words - 1, "as many words as spaces part"
    return np.append(number, words)


Layout = tuple[Batch, dict[str, Tensor], dict[str, Tensor]]
"""A batch; by kind which tokens are which words: of queries [B, 1, word, token], each word's weights summing to 1, of
keys [B, 1, token, word]"""


def layouts(split: Split, sentences: list[Sentence]) -> list[Layout]:
    made = []
    for batch in evaluation_batches(split):
        here = [sentences[line] for line in batch.index_B]
        source = _members([sentence.source_S for sentence in here])
        target = _members([sentence.target_T for sentence in here])
        # the query of a step predicts the next token; a step's keys begin with <s>, which is the last of the words
        written = _members([np.roll(sentence.target_T, 1) for sentence in here])
        of_source, of_target = (x.transpose(2, 3) / x.sum(2).clamp(min=1)[..., None] for x in (source, target))
        queries = {"encoder": of_source, "decoder": of_target, "cross": of_target}
        made.append((batch, queries, {"encoder": source, "decoder": written, "cross": source}))
    return made


def _members(words: Sequence[np.ndarray]) -> Tensor:
    """[sentence, 1, token, word]: 1 where the token is of the word."""
    members = torch.zeros(len(words), 1, max(map(len, words)), int(max(of.max() for of in words)) + 1)
    for i, of in enumerate(words):
        members[i, 0, np.arange(len(of)), of] = 1
    return members


@torch.no_grad()
def chosen(model: lt.Transformer, texts: list[Layout], sentences: list[Sentence]) -> Chosen:
    """The word with the strongest weight, of every head, for every word of every sentence; of equal ones the first.

    It may be </s>, the last number, or <s>, which is NONE - 1.
    """
    weights: dict[tuple[str, int], Tensor] = {}
    # not restricted self-attention, whose blocks hold queries that are none
    places = [place for place in lt.attention_places(model) if not isinstance(place.module, RestrictedSelfAttention)]
    made: Chosen = {}
    with lt.watch_attention(places, lambda place, look: weights.update({(place.kind, place.layer): look.weights})):
        for batch, queries, keys in texts:
            model.hidden(batch.source_BS, batch.target_in_BT, batch.allowed)
            for (kind, layer), weights_BHTS in weights.items():
                best_words = made.setdefault((kind, layer), [np.empty(0)] * len(sentences))
                words_BHMN = queries[kind] @ weights_BHTS @ keys[kind]
                none = keys[kind].sum(2, keepdim=True) == 0  # words of longer sentences
                best_BHM = words_BHMN.masked_fill(none, -torch.inf).argmax(-1).numpy()
                for i, best_HM in zip(batch.index_B, best_BHM, strict=True):
                    words = int((sentences[i].source_S if kind == "encoder" else sentences[i].target_T)[-1])
                    best = best_HM[:, :words]
                    best_words[i] = np.where(best == words, NONE - 1, best) if kind == "decoder" else best
    return made


def measure(trained: Trained, split: Split) -> dict[str, Any]:
    """`relations`: kind, relation, how many `words`, the best fixed `distance`, and `layers`: [layer][head] of share, p
    and what the nulls expect. `agreement`: kind -> [layer] of the share of words at which two heads choose one word.
    """
    config, sentences = trained.module.experiment.model, sentences_of(trained, split)
    texts = layouts(split, sentences)
    ours, many = chosen(trained.module.transformer, texts, sentences), -(-UNTRAINED // config.h)
    fresh = (lt.Transformer(config, trained.prepared.tokenizer.V, FIRST_SEED + i).eval() for i in range(many))
    untrained = [chosen(model, texts, sentences) for model in fresh]
    agreed: dict[str, list[dict[str, float]]] = {}
    for at, choices in ours.items() if config.h > 1 else ():
        means = {"trained": agreement(choices), "untrained": np.mean([agreement(model[at]) for model in untrained])}
        agreed.setdefault(at[0], []).append({name: round(float(x), 6) for name, x in means.items()})
    relations = [relation(task, ours, untrained, sentences) for task in TASKS if any(at[0] == task[0] for at in ours)]
    head = {"schema": 1, "split": "dev", "sentences": len(sentences), "untrained": many * config.h}
    return head | {"relations": relations, "agreement": agreed}


def relation(task: tuple[str, str], ours: Chosen, untrained: list[Chosen], sentences: list[Sentence]) -> dict[str, Any]:
    """One relation, over all layers of its kind."""
    golds = [np.array(sentence.gold[task]) for sentence in sentences]
    if task[0] == "decoder":  # gold counts where it comes before the word
        golds = [np.where(gold >= np.arange(len(gold)), NONE, gold) for gold in golds]
    apart = Counter(x for gold in golds for x in (gold - np.arange(len(gold)))[gold != NONE].tolist())
    words = apart.total()
    layers = []
    for at, choices in ours.items():
        if at[0] == task[0]:
            share, expected, p = exchanged_shares(choices, golds, alike(task[0], sentences), words)
            chance = np.concatenate([hits(model[at], golds) for model in untrained]) / words
            rank = (1 + (chance >= share[:, None]).sum(1)) / (1 + len(chance))
            heads = {"share": share, "order": expected, "p_order": p, "untrained": chance.mean(), "p_untrained": rank}
            layers.append(pd.DataFrame(heads).round(6).to_dict("records"))
    distance, count = apart.most_common(1)[0]
    best = {"words": distance, "share": round(count / words, 6)}
    return {"kind": task[0], "relation": task[1], "words": words, "distance": best, "layers": layers}


def alike(kind: str, sentences: list[Sentence]) -> list[np.ndarray]:
    """Sentences of as many words, of both sides in cross-attention."""
    sizes = [(of.source_S[-1] * (kind != "decoder"), of.target_T[-1] * (kind != "encoder")) for of in sentences]
    return [group.index.to_numpy() for _, group in pd.DataFrame(sizes).groupby([0, 1], sort=False)]


def hits(choices: Sequence[np.ndarray], golds: Sequence[np.ndarray]) -> np.ndarray:
    """[head]: words whose gold a head chooses."""
    return np.sum([(choice == gold).sum(1) for choice, gold in zip(choices, golds, strict=True)], 0)


def exchanged_shares(
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


def agreement(choices: Sequence[np.ndarray]) -> float:
    """Share of words at which two heads choose one word, mean over the pairs of heads."""
    return 1 - float(pdist(np.concatenate(choices, 1), "hamming").mean())


def heads_of(record: Mapping[str, Any]) -> pd.DataFrame:
    """Every head of every relation. p: the larger of both nulls', after Benjamini and Hochberg over all of them."""
    lines = [
        {"of": task["kind"], "relation": task["relation"], "words": task["words"], "fixed": task["distance"]["share"]}
        | {"distance": task["distance"]["words"], "layer": i, "head": j}
        | head
        for task in record["relations"]
        for i, layer in enumerate(task["layers"], 1)
        for j, head in enumerate(layer, 1)
    ]
    p = benjamini_hochberg(np.array([max(line.pop("p_order"), line.pop("p_untrained")) for line in lines]))
    return pd.DataFrame(lines).assign(p=p)


def picture(heads: pd.DataFrame) -> str:
    """An SVG: by how many percentage points of the words each head is above exchanged gold, layer by head."""
    heads = heads.assign(gain=100 * (heads["share"] - heads["order"]))
    pictures = []
    for (kind, relation), lines in heads.groupby(["of", "relation"], sort=False):
        gain_LH = lines["gain"].to_numpy().reshape(lines["layer"].max(), -1)
        down, across = ({i: str(i + 1) for i in range(n)} for n in gain_LH.shape)
        title = f"{'cross-attention' if kind == 'cross' else kind}: {NAMES[relation]}"
        drawn = grid(title, gain_LH.tolist(), down, across, ("layer", "head"), heads["gain"].abs().max())
        pictures.append((title, drawn))
    return standalone_column("Percentage points above exchanged gold", pictures)


def main() -> None:
    parser = argparse.ArgumentParser(description="What heads look at, against gold trees and alignments.")
    parser.add_argument("run", help="a finished run's folder or the start of its name, or a syntax.json made before")
    parser.add_argument("--out", default="results", help="the folder of results [results]")
    parser.add_argument("--figure", metavar="FILE", help="an SVG of what each head gains over exchanged gold")
    options = parser.parse_args()
    if options.run.endswith(".json"):
        record = json.loads(Path(options.run).read_bytes())
    else:
        run = lt.load_run(options.run, options.out)
        record = measure(run.trained, run.trained.prepared.split(run.trained.module.experiment.data.dev))
        path = run.folder.path / "report" / "syntax.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
    heads = heads_of(record)
    if options.figure:
        Path(options.figure).write_text(picture(heads), encoding="utf-8")
    relations = heads.groupby(["of", "relation"], sort=False)
    significant = relations["p"].transform(lambda p: f"{(p < 0.05).sum()} of {len(p)}")
    best = heads.assign(found=significant).loc[relations["share"].idxmax()]
    print("The best head of each relation:", best.to_string(index=False), sep="\n")
    for kind, layers in record["agreement"].items():
        print(f"\n{kind}: words at which two heads of a layer choose one", pd.DataFrame(layers), sep="\n")


if __name__ == "__main__":
    main()
