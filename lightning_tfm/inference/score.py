"""A text scored with a trained run: what its training scored, and chrF and the paper's own measure beside it."""

import json
import sys
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, evaluation_hash
from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import RunFolder


def score_set(folder: RunFolder, experiment: Experiment, set_name: str) -> tuple[dict[str, Any], Path]:
    """The record of a score, made where it is not there; chrF and the paper's measure are added to it."""
    from lightning_tfm.data.textset import TextSet
    from lightning_tfm.inference.load import Trained
    from lightning_tfm.runs.train import score_split

    trained = Trained.open(folder, experiment)
    known = {split["name"] for split in trained.prepared.card["splits"].values()}
    text = trained.prepared if set_name in known else TextSet(set_name, experiment.data, trained.prepared.tokenizer)
    split = set_name.replace(":", ".")
    name = evaluation_hash(experiment, text.fingerprint(set_name))
    path = folder.scores(name) / f"{split}.json"
    if path.is_file() and "chrf" in (score := json.loads(path.read_bytes())):
        return score, path
    attempt = folder.claim()
    if not path.is_file():
        score_split(trained.module, text, split, experiment.evaluation, 0, 1, attempt)
    hypotheses = path.with_name(f"{split}.hyp.txt").read_bytes().decode().split("\n")[:-1]
    found = measures(hypotheses, text.split(set_name).target_text(), experiment.data.target)
    score = json.loads(path.read_bytes()) | found
    attempt.write_json(path, score)
    attempt.release()
    return score, path


def measures(hypotheses: list[str], references: list[str], language: str) -> dict[str, Any]:
    """chrF, and the paper's own measure (None where sacremoses is not installed)."""
    from lightning_tfm.scoring import chrf, paper_bleu

    found = {"chrf": chrf(hypotheses, references)}
    try:
        found["paper_bleu"] = paper_bleu(hypotheses, references, language)
    except UserError as error:
        print(f"lightning-tfm: {error}", file=sys.stderr)
        return _columns(found) | {"paper_bleu": None, "paper_bleu_signature": None}
    return _columns(found)


def _columns(found: dict[str, Any]) -> dict[str, Any]:
    values = {name: score.value for name, score in found.items()}
    return values | {f"{name}_signature": score.signature for name, score in found.items()}
