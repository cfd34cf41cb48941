"""A text scored with a trained run: what its training scored, and chrF and the paper's own measure beside it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

from lightning_tfm.config import Experiment, evaluation_hash
from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import Measures, Score, read_score, to_plain
from lightning_tfm.sums import DamagedFile, check_files, signed


def score_set(folder: RunFolder, experiment: Experiment, set_name: str) -> tuple[Measures, Path]:
    """A score and its file, made where it is not there; chrF and the paper's measure are added to it."""
    from lightning_tfm.data.prepare import Prepared
    from lightning_tfm.data.textset import TextSet
    from lightning_tfm.inference.load import Trained
    from lightning_tfm.runs.scored import score_split

    trained = Trained.open(folder, experiment)
    known = {split["name"] for split in trained.prepared.card["splits"].values()}
    text = trained.prepared if set_name in known else TextSet(set_name, experiment.data, trained.prepared.tokenizer)
    split = set_name.replace(":", ".")
    name = evaluation_hash(experiment, text.fingerprint(set_name))
    path = folder.scores(name) / f"{split}.json"
    there = read_score(path)
    if isinstance(there, Measures):
        return there, path
    attempt = folder.claim()
    score = there if isinstance(there, Score) and not _damaged(path.parent, there) else None
    score = score or score_split(trained.module, cast(Prepared, text), split, experiment.evaluation, 0, 1, attempt)
    assert score is not None, "this is rank 0"
    hypotheses = path.with_name(f"{split}.hyp.txt").read_bytes().decode().split("\n")[:-1]
    language = "" if trained.prepared.tokenizer.ready else experiment.data.target
    whole = measured(score, hypotheses, text.split(set_name).target_text(), language)
    attempt.write_json(path, signed(to_plain(replace(whole, run=folder.path.name))))
    attempt.release()
    return whole, path


def score_long(folder: RunFolder, base: Experiment) -> bool:
    """Score the lines of `base.data.long` by length with a finished run, unless it has been done; whether it was now.

    The study's data are opened, not the run's: they may have been made before there was such a split. Raises UserError
    where data or weights are gone, or the run's pieces are other ones.
    """
    from lightning_tfm.data.long import LongText, check_reach
    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.inference.load import Trained, experiment_of
    from lightning_tfm.runs.scored import score_split

    recorded = experiment_of(folder)
    how = replace(recorded, evaluation=base.evaluation)
    prepared = prepare(base.data, folder.root)
    text, split = LongText(prepared, base.data), base.data.long
    path = folder.scores(evaluation_hash(how, text.fingerprint(split))) / f"{split}.json"
    there = read_score(path)
    if isinstance(there, Score) and not _damaged(path.parent, there):
        return False
    trained = Trained.open(folder, how)
    if trained.prepared.tokenizer.fingerprint != prepared.tokenizer.fingerprint:
        raise UserError(f"{folder.path}: its pieces are not those of the study's data, in which lengths are measured")
    check_reach(replace(recorded, data=base.data), prepared, str(folder.path))
    attempt = folder.claim()
    score_split(trained.module, text, split, base.evaluation, 0, 1, attempt)
    attempt.release()
    return True


def _damaged(folder: Path, score: Score) -> bool:
    """Whether the text is to be scored again, for what lies beside its score is damaged; said in a line."""
    try:
        check_files(folder, score.files)
    except DamagedFile as error:
        print(f"lightning-tfm: {error}; scoring the text again", file=sys.stderr)
        return True
    return False


def measured(score: Score, hypotheses: list[str], references: list[str], language: str) -> Measures:
    """With chrF, and the paper's own measure (None where sacremoses is not installed). `language`: see paper_bleu."""
    from lightning_tfm.scoring import chrf, paper_bleu

    characters, own = chrf(hypotheses, references), None
    try:
        own = paper_bleu(hypotheses, references, language)
    except UserError as error:
        print(f"lightning-tfm: {error}", file=sys.stderr)
    return Measures(
        **vars(score),
        chrf=characters.value,
        paper_bleu=own.value if own else None,
        chrf_signature=characters.signature,
        paper_bleu_signature=own.signature if own else None,
    )
