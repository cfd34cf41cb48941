"""A text scored with a trained run: what its training scored, and other measures of the translations beside it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.config import Data, Evaluation, Experiment, evaluation_hash
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import ADDED, METRICS
from lightning_tfm.runs.folder import RunFolder, experiment_of
from lightning_tfm.runs.record import Measure, Missing, Score, read_score, to_plain
from lightning_tfm.sums import DamagedFile, check_files, with_checksum

if TYPE_CHECKING:
    from lightning_tfm.data.dataset import Prepared, Text

PAPER = "paper_bleu"
"""the measure of bleu.py:paper_bleu"""


def score_set(
    folder: RunFolder, experiment: Experiment, set_name: str, prepared: "Prepared | None" = None
) -> tuple[Score, Path]:
    """A score and its file, made where it is not there, with every other measure of the translations. `prepared`: the
    texts that a split is of, if not those that the run was trained with."""
    from lightning_tfm.data.text.adhoc_split import TextSet
    from lightning_tfm.inference.load import Trained
    from lightning_tfm.runs.evaluation import score_split

    trained = Trained.open(folder, experiment)
    prepared = prepared or trained.prepared
    tokenizer = prepared.tokenizer
    text: Text = prepared if _has(prepared, set_name) else TextSet(set_name, experiment.data, tokenizer)
    split = set_name.replace(":", ".")
    name = evaluation_hash(experiment, text.fingerprint(set_name))
    path = folder.scores(name) / f"{split}.json"
    there = read_score(path)
    translated = experiment.data.translated
    if isinstance(there, Score) and (not translated or _is_whole(there, experiment.evaluation)):
        return there, path
    attempt = folder.claim()
    score = there if isinstance(there, Score) and not _is_damaged(path.parent, there) else None
    if score is None:
        score = score_split(trained.module, text, split, experiment.evaluation, 0, 1, attempt)
    assert score is not None, "this is rank 0"
    if not translated:
        attempt.release()
        return score, path
    hypotheses = path.with_name(f"{split}.hyp.txt").read_bytes().decode().split("\n")[:-1]
    names = dict.fromkeys((*ADDED, *(m.name for m in METRICS.named(experiment.evaluation.metrics)), PAPER))
    language = "" if tokenizer.ready else experiment.data.target
    references = text.split(set_name).target_text()
    whole = with_measures(score, hypotheses, references, [*names], experiment.evaluation, language)
    attempt.write_json(path, with_checksum(to_plain(replace(whole, run=folder.path.name))))
    attempt.release()
    return whole, path


def was_edited(folder: RunFolder, data: Data, split: str) -> bool:
    """Whether the files of a run's split hold another text now; False where that cannot be known."""
    from lightning_tfm.data.dataset import Prepared
    from lightning_tfm.data.text.adhoc_split import TextSet

    run = folder.read_result()
    store = folder.root / "data" / (run.data.store if run else "")
    if data.corpus not in ("files", "lines") or not (store / "card.json").is_file():
        return False
    prepared = Prepared(store)
    if not _has(prepared, split):
        return False
    try:
        return TextSet(split, data, prepared.tokenizer).fingerprint(split) != prepared.fingerprint(split)
    except (UserError, OSError):
        return False


def _has(prepared: "Prepared", split: str) -> bool:
    return any(card["name"] == split for card in prepared.card["splits"].values())


def _is_whole(score: Score, how: Evaluation) -> bool:
    """Whether it has what `score_set` adds, and what is asked for as it would be counted now."""
    own = [(m.name, score.measures[m.name]) for m in METRICS.named(how.metrics) if m.name in score.measures]
    return score.measures.keys() >= {*ADDED, PAPER} and all(_as_now(*measure) for measure in own)


def score_long(folder: RunFolder, base: Experiment) -> bool:
    """Score the lines of `base.data.long` by length with a finished run, unless it has been done; whether it was now.

    The study's data are opened, not the run's: they may have been made before there was such a split. Raises UserError
    where data or weights are gone, or the run's pieces are other ones.
    """
    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.data.sources.length_buckets import LongText, check_reach
    from lightning_tfm.inference.load import Trained
    from lightning_tfm.runs.evaluation import score_split

    recorded = experiment_of(folder)
    how = replace(recorded, evaluation=base.evaluation)
    prepared = prepare(base.data, folder.root)
    text, split = LongText(prepared, base.data), base.data.long
    path = folder.scores(evaluation_hash(how, text.fingerprint(split))) / f"{split}.json"
    there = read_score(path)
    if isinstance(there, Score) and not _is_damaged(path.parent, there):
        return False
    trained = Trained.open(folder, how)
    if trained.prepared.tokenizer.fingerprint != prepared.tokenizer.fingerprint:
        raise UserError(f"{folder.path}: its tokens are not the study's, in which lengths are measured")
    check_reach(replace(recorded, data=base.data), prepared, str(folder.path))
    attempt = folder.claim()
    score_split(trained.module, text, split, base.evaluation, 0, 1, attempt)
    attempt.release()
    return True


def _is_damaged(folder: Path, score: Score) -> bool:
    """Whether to score the text again because the files beside its score are damaged; reported in a line."""
    try:
        check_files(folder, score.files)
    except DamagedFile as error:
        print(f"lightning-tfm: {error}; scoring the text again", file=sys.stderr)
        return True
    return False


def with_measures(
    score: Score, hypotheses: list[str], references: list[str], names: list[str], how: Evaluation, language: str
) -> Score:
    """With those of these measures that its text allows; the paper's own where sacremoses is installed. `language`: see
    paper_bleu."""
    from lightning_tfm.bleu import paper_bleu
    from lightning_tfm.corpus_metrics import counter_of

    measures = dict(score.measures)
    for name in names:
        try:
            if name == PAPER:
                value = paper_bleu(hypotheses, references, language)
            else:
                value = counter_of(METRICS[name], references, how).corpus(hypotheses)
        except UserError as error:
            print(f"lightning-tfm: {error}", file=sys.stderr)
        else:
            measures[name] = Measure(value.value, value.signature)
    return replace(score, measures=measures)


def _as_now(name: str, measure: Measure) -> bool:
    """Whether it was counted as it would be now: a user-defined class may have changed."""
    from lightning_tfm.corpus_metrics import signature_now

    return signature_now(METRICS[name]) in ("", measure.signature)


def add(folder: RunFolder, how: Evaluation, named: str, split: str, references: list[str], names: list[str]) -> str:
    """Add measures to a score out of its translations, without weights; why it cannot be done, empty where it is.

    `named`: the evaluation's hash. Raises UserError, nothing written, where one of them cannot be counted in this text.
    """
    from lightning_tfm.corpus_metrics import counter_of

    path = folder.scores(named) / f"{split}.json"
    score = read_score(path)
    if isinstance(score, Missing):
        return f"its score: {score.reason}"
    if all(name in score.measures and _as_now(name, score.measures[name]) for name in names):
        return ""
    try:
        check_files(path.parent, score.files)
        hypotheses = path.with_name(f"{split}.hyp.txt").read_bytes().decode().split("\n")[:-1]
    except FileNotFoundError:
        return "its translations are not here"
    except DamagedFile as error:
        return str(error)
    scores = {name: counter_of(METRICS[name], references, how).corpus(hypotheses) for name in names}
    measures = score.measures | {name: Measure(made.value, made.signature) for name, made in scores.items()}
    whole = replace(score, measures=measures, run=folder.path.name)
    attempt = folder.claim()
    attempt.write_json(path, with_checksum(to_plain(whole)))
    attempt.release()
    return ""
