"""`validate` and `test`: dev, test or another text, scored with a trained run; nothing is trained."""

import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonargparse

from lightning_tfm.cli.arguments import Settings, make_parser, parse
from lightning_tfm.config import Experiment, evaluation_hash, to_dict, training_hash, training_identity
from lightning_tfm.errors import UserError
from lightning_tfm.study.folder import RunFolder
from lightning_tfm.study.rows import user_classes


def main(verb: str, argv: Sequence[str]) -> int:
    which = {"validate": "dev", "test": "test"}[verb]
    parser = make_parser(
        verb, f"Score the {which} text with a trained run: --evaluation.beam 8 and the like may differ."
    )
    parser.add_argument(
        "--set", type=str, default="", help="another text: a split of the run's corpus, or CORPUS:SPLIT of another"
    )
    folder, experiment, settings = find(parser, argv)
    name = settings.verb["set"] or getattr(experiment.data, which)
    if not name:
        raise UserError(f"data.{which} is empty: this run has no {which} text; name one with --set")

    import torch

    if settings.hardware.threads:
        torch.set_num_threads(settings.hardware.threads)
    asked = experiment.evaluation.weights
    for weights in sorted({asked, "last", "average"} if experiment.training.average_last else {asked}, reverse=True):
        how = replace(experiment, evaluation=replace(experiment.evaluation, weights=weights))
        score, path = _score(folder, how, name)
        print(f"{which} ({name}): PPL {score['ppl']:.3f}, BLEU {score['bleu']:.2f}, {weights} weights: {path}")
        for measure in ("bleu", "chrf", "paper_bleu"):
            if score[measure] is not None:
                signature = score["signature" if measure == "bleu" else f"{measure}_signature"]
                print(f"  {measure:10} {score[measure]:6.2f}  {signature}")
    return 0


def _score(folder: RunFolder, experiment: Experiment, set_name: str) -> tuple[dict[str, Any], Path]:
    """The record of a score, made where it is not there; chrF and the paper's measure are added to it."""
    from lightning_tfm.data.textset import TextSet
    from lightning_tfm.study.run import score_split
    from lightning_tfm.study.trained import Trained

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


def find(parser: jsonargparse.ArgumentParser, argv: Sequence[str]) -> tuple[RunFolder, Experiment, Settings]:
    """A finished run, by its directory or by the configuration that made it, and its experiment as now to be evaluated.

    Raises UserError where there is none, or where something else than the evaluation is asked to differ.
    """
    parser.add_argument("run", type=str, nargs="?", default=None, help="a run's directory, or the start of its name")
    settings = parse(parser, argv)
    run = settings.verb["run"]
    if run is None:
        return (*_by_configuration(settings), settings)

    from lightning_tfm.study.trained import experiment_of, find_trained

    folder = find_trained(run, settings.out)
    recorded = experiment_of(folder)
    plain = to_dict(recorded)
    parser.set_defaults({f"{s.name}.{k}": v for s in fields(Experiment) for k, v in plain[s.name].items()})
    experiment = parse(parser, argv).experiment
    other = [s.name for s in fields(Experiment) if s.name != "evaluation"]
    changed = [s for s in other if getattr(experiment, s) != getattr(recorded, s)]
    if changed:
        raise UserError(f"{folder.path} is trained: only evaluation.… may differ now, not {', '.join(changed)}")
    return folder, experiment, settings


def _by_configuration(settings: Settings) -> tuple[RunFolder, Experiment]:
    from lightning_tfm.data.prepare import prepare

    exact = settings.exact
    fingerprint = prepare(exact.data, Path(settings.out)).train_fingerprint
    name = training_hash(training_identity(settings.experiment, fingerprint, user_classes(settings.experiment)))
    folder = RunFolder(settings.out, name)
    if not folder.finished():
        raise UserError(f"no finished run of this configuration ({folder.path}): lightning-tfm fit with it first")
    return folder, exact
