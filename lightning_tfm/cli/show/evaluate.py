"""`validate` and `test`: dev, test or another text, scored with a trained run; nothing is trained."""

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from lightning_tfm.cli.arguments import Parser, check_trainer, make_parser, parse, parse_plain
from lightning_tfm.config import Experiment, training_hash, training_identity
from lightning_tfm.errors import UserError
from lightning_tfm.inference.rescore import score_set, was_edited
from lightning_tfm.metrics import METRICS, OF_TEXT, in_print
from lightning_tfm.plural_words import plural
from lightning_tfm.runs.folder import RunFolder, experiment_of, find_trained, run_folders
from lightning_tfm.runs.process.threads import check_cores
from lightning_tfm.runs.record import Measure
from lightning_tfm.study.command import with_out
from lightning_tfm.study.preflight import check_not_defaults, check_scoring
from lightning_tfm.study.settings import Settings, check_experiment
from lightning_tfm.study.user_classes import user_classes

NAMES = ", ".join([name for name, metric in METRICS.items() if metric.more] + ["your own class: module:Class"])


def main(verb: str, argv: Sequence[str]) -> int:
    if verb == "validate" and any(word.partition("=")[0] == "--add" for word in argv):
        return _add(argv)
    which = {"validate": "dev", "test": "test"}[verb]
    parser = make_parser(
        verb,
        f"Score the {which} text with a trained run; --evaluation.beam and the like may be changed."
        + f" STUDY --add METRIC ({NAMES}): for all runs of a study, in its tables." * (verb == "validate"),
        of_run=True,
    )
    parser.add_argument(
        "--set", default="", help="another text: a split of the run's corpus, or CORPUS:SPLIT of another"
    )
    folder, experiment, settings = find(parser, argv, "accelerator=cpu", "threads")
    name = settings.verb["set"] or getattr(experiment.data, which)
    if not name:
        raise UserError(f"data.{which} is empty: this run has no {which} text; name one with --set")

    check_cores(settings.hardware)

    import torch

    from lightning_tfm.data.prepare import prepare

    prepared = None if settings.verb["run"] else prepare(experiment.data, settings.out)
    if prepared is None and was_edited(folder, experiment.data, name):
        again = f"--set {experiment.data.corpus}:{name} scores what it is now"
        print(f"{name} was edited since the run, which is scored on it as it was: {again}", file=sys.stderr)
    if settings.hardware.threads:
        torch.set_num_threads(settings.hardware.threads)
    chosen = experiment.evaluation.weights
    for weights in sorted({chosen, "last", "average"} if experiment.training.average_last else {chosen}, reverse=True):
        how = replace(experiment, evaluation=replace(experiment.evaluation, weights=weights))
        score, path = score_set(folder, how, name, prepared)
        print(f"{which} ({name}): {in_print(score)}, {weights} weights: {path}")
        own = {} if (bleu := OF_TEXT.of(score)) is None else {OF_TEXT.name: Measure(bleu, score.signature)}
        for measure, added in (own | score.measures).items():
            print(f"  {measure:10} {added.value:6.2f}  {added.signature}")
    return 0


def _add(argv: Sequence[str]) -> int:
    """Other metrics for every finished run of a study, from its translations."""
    parser = make_parser("validate", "Add a metric to every dev score of a study, without weights.", experiment=False)
    parser.add_argument("study", help="its name")
    parser.add_argument("--add", metavar="METRIC", action="append", help=f"of {NAMES}; may be repeated")
    options = parse_plain(parser, argv)
    names = [metric.name for metric in METRICS.named("+".join(options["add"]))]
    if not names:
        raise UserError(f"--add needs a metric: {NAMES}")
    from lightning_tfm.inference.rescore import add
    from lightning_tfm.report.records import FilledCell, collect_cells, dev_texts
    from lightning_tfm.study.sequential import read_looks
    from lightning_tfm.study.study import Ablation
    from lightning_tfm.study.study_file import folder_of, load_as

    root = Path(options["out"])
    study = load_as(Ablation, root, options["study"])
    _, references = dev_texts(study, root)
    if not references:
        raise UserError(f"study '{study.name}': its dev set is not here; run: lightning-tfm data prepare")
    rows, split, done, lacking = {row.name: row for row in study.every_row}, study.base.data.dev, 0, 0
    for (row, seed), cell in collect_cells(study, root, read_looks(folder_of(root, study.name))).items():
        if isinstance(cell, FilledCell):
            folder = RunFolder(root, cell.record.training_hash)
            named = study.evaluation_of(rows[row])
            why = add(folder, study.base.evaluation, named, split, references, names)
            done, lacking = done + (not why), lacking + bool(why)
            if why:
                print(f"{row}, seed {seed}: {why}")
    have = f"{plural(done, 'run')} {'has' if done == 1 else 'have'} {', '.join(names)}"
    table, them = with_out(f"lightning-tfm table {study.name}", root), "them" if names[1:] else "it"
    print(f"{study.name}: {have}; {table} prints {them}")
    return 1 if lacking else 0


def find(
    parser: Parser, argv: Sequence[str], *takes: str, of_study: str = "name one of its runs: lightning-tfm runs list"
) -> tuple[RunFolder, Experiment, Settings]:
    """A finished run, by its directory or by the configuration that made it, and its experiment as now to be scored.

    `of_study` says what to do where a study is named. Raises UserError if there is no such run, if something other
    than the evaluation should differ, or hardware is given that the verb ignores (`takes`: see check_trainer).
    """
    parser.add_argument("run", nargs="?", help="a run's directory, or the start of its name")
    settings, verb = parse(parser, argv), parser.prog.split()[-1]
    check_trainer(settings, verb, *takes)
    check_scoring(settings.experiment.evaluation)
    run = settings.verb["run"]
    if run is None:
        check_not_defaults(settings.base, verb)
        return (*_by_configuration(settings), settings)

    if (settings.out / "studies" / run / "study.json").is_file() and not any(
        path.name.startswith(run) for path in run_folders(settings.out)
    ):
        raise UserError(f"{run} is a study: {of_study}")
    folder = find_trained(run, settings.out)
    recorded = experiment_of(folder)
    experiment = parse(parser, argv, base=recorded).experiment
    other = [s.name for s in fields(Experiment) if s.name != "evaluation"]
    changed = [s for s in other if getattr(experiment, s) != getattr(recorded, s)]
    if changed:
        raise UserError(
            f"{folder.path} is already trained: only evaluation.… may still change, not {', '.join(changed)}"
        )
    check_experiment(experiment, run)
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
