"""A text scored with a trained run: what its training scored, and chrF and the paper's own measure beside it."""

import sys
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
    from lightning_tfm.runs.train import score_split

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
    attempt.write_json(path, signed(to_plain(whole)))
    attempt.release()
    return whole, path


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
