"""A text scored by a model: perplexity and BLEU, line by line, and by length where it is there for that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from lightning_tfm.config import Evaluation, Experiment, evaluation_hash
from lightning_tfm.data.long import CLASSES, FARTHEST, PER_LIMIT, LongText, class_of
from lightning_tfm.data.module import evaluation_batches
from lightning_tfm.data.prepared import Prepared, Text
from lightning_tfm.runs.directory import Attempt
from lightning_tfm.runs.record import ByLength, LengthClass, Measure, Score, to_plain
from lightning_tfm.runs.weights import scored
from lightning_tfm.scoring import bleu, text_size
from lightning_tfm.sums import of_files, signed
from lightning_tfm.training.evaluate import Line, evaluate_lines, perplexity
from lightning_tfm.training.module import TransformerModule


@dataclass(frozen=True)
class Scored:
    """What a model made of a text, line by line."""

    lines: list[Line]
    hypotheses: list[str]
    references: list[str]
    source_lengths: np.ndarray
    """pieces with the end token, as are `target_lengths`"""
    target_lengths: np.ndarray


def score_split(
    module: TransformerModule,
    text: Text,
    split_name: str,
    how: Evaluation,
    rank: int,
    world: int,
    attempt: Attempt,
) -> Score | None:
    """Perplexity and BLEU of one split; rank 0 writes the score, the translations and the per-line record.

    None on the other ranks.
    """
    split = text.split(split_name)
    lines = evaluate_lines(module, evaluation_batches(split)[rank::world], len(split), how)
    if rank != 0:
        return None
    experiment = replace(module.experiment, evaluation=how)
    name = evaluation_hash(experiment, text.fingerprint(split_name))
    hypotheses = [text.tokenizer.decode(line.pieces or []) for line in lines]
    references = split.target_text()
    scored, found = bleu(hypotheses, references, how.bleu_tokenize), perplexity(lines)
    found_more = counting().measured(how.metrics, hypotheses, references, how.bleu_tokenize) if how.metrics else {}
    sizes = [text_size(reference) for reference in references]
    words, characters = map(sum, zip(*sizes, strict=True))
    score = Score(
        split=split_name,
        weights=how.weights,
        ppl=found.ppl,
        nll=found.nll,
        tokens=found.tokens,
        bleu=scored.value,
        signature=scored.signature,
        sentences=len(lines),
        words=words,
        characters=characters,
        nll_per_word=found.nll / words if words else None,
        nll_per_character=found.nll / characters if characters else None,
        evaluation_hash=name,
        measures={key: Measure(one.value, one.signature) for key, one in found_more.items()},
    )
    ends = (split.source_lengths + 1, split.target_lengths + 1)
    if isinstance(text, LongText):
        made = Scored(lines, hypotheses, references, *ends)
        score = replace(score, by_length=by_length(made, text.limit, how.bleu_tokenize))
    folder = attempt.folder.scores(name)
    translated, table = folder / f"{split_name}.hyp.txt", folder / f"{split_name}.sentences.tsv"
    attempt.write(translated, "".join(f"{line}\n" for line in hypotheses).encode())
    attempt.write(table, _table(lines, sizes, ends[0]).encode())
    score = replace(score, files=of_files([translated, table]))
    whose = replace(score, run=attempt.folder.path.name)
    attempt.write_json(folder / f"{split_name}.json", signed(to_plain(whose)))
    return score


def counting() -> Any:
    """The module of metrics beside BLEU: most runs ask for none and need not know it."""
    return import_module(".counting", "lightning_tfm")


def check_metrics(text: Text, split: str, how: Evaluation) -> None:
    """Raise UserError, before anything is trained, where the references of a split cannot be scored so."""
    if how.metrics:
        references = text.split(split).target_text()
        counting().measured(how.metrics, references, references, how.bleu_tokenize)


def score_anew(attempt: Attempt, e: Experiment, prepared: Prepared) -> None:
    """Score the dev text of `e` by its evaluation with a finished run, which was scored by another.

    Raises UserError where the weights are gone.
    """
    module = TransformerModule(e, prepared.tokenizer.V)
    module.transformer.load_state_dict(scored(attempt.folder, e))
    attempt.write_progress(e.training.steps, e.training.steps, 0.0, f"translate {e.data.dev}")
    score_split(module.eval(), prepared, e.data.dev, e.evaluation, 0, 1, attempt)


def by_length(made: Scored, limit: int, tokenize: str) -> ByLength:
    """The score of each class of lengths that has lines: by the longer side, by the source's and by the target's.

    And of all lines from half a training length to a whole one, and of all beyond, as two classes of the side `both`.
    """
    sides = {"longer": np.maximum(made.source_lengths, made.target_lengths)}
    sides |= {"source": made.source_lengths, "target": made.target_lengths}
    found = []
    for side, lengths in sides.items():
        classes = class_of(lengths, limit)
        for i in range(CLASSES):
            there = np.flatnonzero(classes == i).tolist()
            if there:
                found.append(_class(made, there, (side, i / PER_LIMIT, (i + 1) / PER_LIMIT), tokenize))
    for above, upto in ((1 / PER_LIMIT, 1), (1, FARTHEST)):
        there = np.flatnonzero((sides["longer"] > above * limit) & (sides["longer"] <= upto * limit)).tolist()
        found.append(_class(made, there, ("both", float(above), float(upto)), tokenize))
    return ByLength(limit=limit, classes=found)


def _class(made: Scored, there: Sequence[int], named: tuple[str, float, float], tokenize: str) -> LengthClass:
    side, above, upto = named
    lines = [made.lines[i] for i in there]
    total = perplexity(lines)
    pieces = [len(line.pieces or []) + 1 for line in lines]
    hypotheses, references = [made.hypotheses[i] for i in there], [made.references[i] for i in there]
    return LengthClass(
        side=side,
        above=above,
        upto=upto,
        sentences=len(lines),
        nll=total.nll,
        tokens=total.tokens,
        bleu=bleu(hypotheses, references, tokenize).value,
        pieces=sum(pieces),
        early=sum(2 * made_of < line.tokens for made_of, line in zip(pieces, lines, strict=True)),
    )


def _table(lines: list[Line], sizes: list[tuple[int, int]], source_lengths: np.ndarray) -> str:
    head = "line\tnll\ttokens\tscore\twords\tcharacters\tsource\tpieces\n"
    rows = enumerate(zip(lines, sizes, source_lengths.tolist(), strict=True))
    return head + "".join(
        f"{i}\t{x.nll!r}\t{x.tokens}\t{x.score!r}\t{w}\t{c}\t{source}\t{len(x.pieces or []) + 1}\n"
        for i, (x, (w, c), source) in rows
    )
