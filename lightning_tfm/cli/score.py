"""`validate` and `test`: the dev or test text, scored with a trained run; nothing is trained."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

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
    folder, experiment, settings = find(parser, argv)
    split = getattr(experiment.data, which)
    if not split:
        raise UserError(f"data.{which} is empty: this run has no {which} text")

    import torch

    from lightning_tfm.study.run import score_split
    from lightning_tfm.study.trained import Trained

    if settings.hardware.threads:
        torch.set_num_threads(settings.hardware.threads)
    trained = Trained.open(folder, experiment)
    name = evaluation_hash(experiment, trained.prepared.fingerprint(split))
    path = folder.scores(name) / f"{split}.json"
    if not path.is_file():
        attempt = folder.claim()
        score_split(trained.module, trained.prepared, split, experiment.evaluation, 0, 1, attempt)
        attempt.release()
    score = json.loads(path.read_bytes())
    print(f"{which} ({split}): PPL {score['ppl']:.3f}, BLEU {score['bleu']:.2f} ({score['signature']}): {path}")
    return 0


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
