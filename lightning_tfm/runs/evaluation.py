"""A text scored by a model: perplexity and BLEU, line by line, and by length (data/sources/length_buckets.py) where
requested."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lightning_tfm.bleu import bleu, text_size
from lightning_tfm.config import Evaluation, Experiment, evaluation_hash
from lightning_tfm.data.dataset import Prepared, Text
from lightning_tfm.data.module import evaluation_batches
from lightning_tfm.data.sources.length_buckets import CLASSES, FARTHEST, PER_LIMIT, LongText, class_of
from lightning_tfm.runs.folder import Attempt
from lightning_tfm.runs.record import ByLength, LengthClass, Measure, Score, to_plain
from lightning_tfm.runs.weights import weights_to_score
from lightning_tfm.sums import of_files, with_checksum
from lightning_tfm.training.evaluate import Line, evaluate_lines, perplexity
from lightning_tfm.training.module import TransformerModule


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

    None on the other ranks. Without a source there is nothing to translate: only perplexity.
    """
    split = text.split(split_name)
    translated = module.experiment.data.translated
    lines = evaluate_lines(module, evaluation_batches(split)[rank::world], len(split), how if translated else None)
    if rank != 0:
        return None
    experiment = replace(module.experiment, evaluation=how)
    name = evaluation_hash(experiment, text.fingerprint(split_name))
    hypotheses = [text.tokenizer.decode(line.pieces or []) for line in lines] if translated else []
    references, loss = split.target_text(), perplexity(lines)
    scored = bleu(hypotheses, references, how.bleu_tokenize) if translated else None
    more = {}
    if how.metrics:
        from lightning_tfm.corpus_metrics import corpus_scores  # only where further metrics are asked for

        more = corpus_scores(how, hypotheses, references)
    sizes, unit = [text_size(reference) for reference in references], "characters"
    if not translated:
        sizes, unit = (
            [(n, len(reference.encode())) for (n, _), reference in zip(sizes, references, strict=True)],
            "bytes",
        )
    words, count = map(sum, zip(*sizes, strict=True))
    of_units: dict[str, Any] = {unit: count, f"nll_per_{unit[:-1]}": loss.nll / count if count else None}
    score = Score(
        split=split_name,
        weights=how.weights,
        ppl=loss.ppl,
        nll=loss.nll,
        tokens=loss.tokens,
        bleu=scored.value if scored else None,
        signature=scored.signature if scored else "",
        sentences=len(lines),
        words=words,
        nll_per_word=loss.nll / words if words else None,
        evaluation_hash=name,
        **of_units,
        measures={key: Measure(measure.value, measure.signature) for key, measure in more.items()},
    )
    ends = (split.source_lengths + 1, split.target_lengths + 1)
    if isinstance(text, LongText):
        of_each = by_length(lines, hypotheses, references, ends, text.limit, how.bleu_tokenize)
        score = replace(score, by_length=of_each)
    folder = attempt.folder.scores(name)
    hyp, table = folder / f"{split_name}.hyp.txt", folder / f"{split_name}.sentences.tsv"
    if translated:
        attempt.write(hyp, "".join(f"{line}\n" for line in hypotheses).encode())
    attempt.write(table, _table(lines, sizes, ends[0], unit).encode())
    score = replace(score, files=of_files([hyp, table] if translated else [table]))
    whose = replace(score, run=attempt.folder.path.name)
    attempt.write_json(folder / f"{split_name}.json", with_checksum(to_plain(whose)))
    return score


def by_length(
    lines: list[Line],
    hypotheses: list[str],
    references: list[str],
    lengths: tuple[np.ndarray, np.ndarray],
    limit: int,
    tokenize: str,
) -> ByLength:
    """The score of each class of lengths that has lines: by the longer side, by the source's and by the target's.

    And of all lines from half a training length to a whole one, and of all beyond, as two classes of the side `both`.
    `lengths`: of sources and targets, in pieces with the end token. A text without a source has no hypotheses.
    """
    sides = {"longer": np.maximum(*lengths), "source": lengths[0], "target": lengths[1]}
    texts = lines, hypotheses, references, tokenize
    buckets = []
    for side, of_lines in sides.items():
        classes = class_of(of_lines, limit)
        for i in range(CLASSES):
            there = np.flatnonzero(classes == i).tolist()
            if there:
                buckets.append(_length_class(there, side, i / PER_LIMIT, (i + 1) / PER_LIMIT, *texts))
    for above, upto in ((1 / PER_LIMIT, 1), (1, FARTHEST)):
        there = np.flatnonzero((sides["longer"] > above * limit) & (sides["longer"] <= upto * limit)).tolist()
        buckets.append(_length_class(there, "both", float(above), float(upto), *texts))
    return ByLength(limit=limit, classes=buckets)


def _length_class(
    there: Sequence[int],
    side: str,
    above: float,
    upto: float,
    lines: list[Line],
    hypotheses: list[str],
    references: list[str],
    tokenize: str,
) -> LengthClass:
    lines = [lines[i] for i in there]
    total = perplexity(lines)
    of_translations: dict[str, Any] = {}
    if hypotheses:
        pieces = [len(line.pieces or []) + 1 for line in lines]
        scored = bleu([hypotheses[i] for i in there], [references[i] for i in there], tokenize).value
        early = sum(2 * made_of < line.tokens for made_of, line in zip(pieces, lines, strict=True))
        of_translations = {"bleu": scored, "pieces": sum(pieces), "early": early}
    named: dict[str, Any] = {"side": side, "above": above, "upto": upto, "sentences": len(lines)}
    return LengthClass(**named, nll=total.nll, tokens=total.tokens, **of_translations)


def check_metrics(text: Text, split: str, how: Evaluation) -> None:
    """Raise UserError, before anything is trained, where the references of a split cannot be scored this way."""
    if how.metrics:
        from lightning_tfm.corpus_metrics import corpus_scores

        references = text.split(split).target_text()
        corpus_scores(how, references, references)


def score_anew(attempt: Attempt, e: Experiment, prepared: Prepared) -> None:
    """Score the dev text of `e` by its evaluation with a finished run, which was scored by another.

    Raises UserError where the weights are gone.
    """
    module = TransformerModule(e, prepared.tokenizer.V)
    module.transformer.load_state_dict(weights_to_score(attempt.folder, e))
    attempt.write_progress(e.training.steps, e.training.steps, 0.0, f"translate {e.data.dev}")
    score_split(module.eval(), prepared, e.data.dev, e.evaluation, 0, 1, attempt)


def _table(lines: list[Line], sizes: list[tuple[int, int]], source_lengths: np.ndarray, unit: str) -> str:
    head = f"line\tnll\ttokens\tscore\twords\t{unit}\tsource\tpieces\n"
    rows = enumerate(zip(lines, sizes, source_lengths.tolist(), strict=True))
    return head + "".join(
        f"{i}\t{x.nll!r}\t{x.tokens}\t{x.score!r}\t{w}\t{c}\t{source}\t{len(x.pieces or []) + 1}\n"
        for i, (x, (w, c), source) in rows
    )
