"""`tune`: search for a good configuration, prune unpromising trials, write the best one as an experiment file."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from lightning_tfm.cli.arguments import Parser, make_parser, parse, parse_own, prints_config, progress_of
from lightning_tfm.cli.study_options import add_options, check_precisions, check_start, read_sweep_file, resumable
from lightning_tfm.cli.train.carry_out import carry_out
from lightning_tfm.config import override
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, OF_TEXT, PPL
from lightning_tfm.plural_words import plural
from lightning_tfm.queue.resources import Resources, make_resources
from lightning_tfm.registry import OWN_WEIGHTS
from lightning_tfm.runs.own_class_check import check_classes_work
from lightning_tfm.study.preflight import check_classes, check_peak, check_trainable
from lightning_tfm.study.rows import Fingerprints
from lightning_tfm.study.search import Search
from lightning_tfm.study.settings import SHORTENED, Settings, check_experiment
from lightning_tfm.study.study_file import file_of, folder_of, load_as, save
from lightning_tfm.study.sweeps import SAMPLERS, Pruner, SearchFile, Sweep, check_sampler
from lightning_tfm.training.schedule import EventSchedule

TRIALS = 50


def main(verb: str, argv: Sequence[str], file: SearchFile | None = None) -> int:
    """`file`: that `argv` names, where it has been read."""
    parser = make_parser(
        verb, "Search a space of configurations and write the best one as an experiment file.", of_study=True
    )
    parser.add_argument("sweep", help="W&B sweep file, e.g. sweeps/search.yaml; options in NAME.study.yaml")
    parser.add_argument("--name", help="name of the study [as in the file]")
    add_search_options(parser)
    add_options(parser)
    options = parse_own(parser, argv)
    sweep = file or read_sweep_file(options)
    if isinstance(sweep, Sweep):
        path = options["sweep"]
        raise UserError(f"{path}: it names rows, so it is a table, not a search: run lightning-tfm sweep {path}")
    settings = parse(parser, [*sweep.arguments, *argv])
    if prints_config(settings):
        return 0
    resources = make_resources(settings.verb, settings.hardware)
    name = settings.verb["name"] or sweep.name
    with resumable(settings.out, name, verb, argv, jobs=resources.cluster is not None):
        return _run(settings, sweep, resources)


def search_from(settings: Settings, file: SearchFile, resources: Resources) -> Search:
    """The requested search, checked; the data are not read yet. Raises UserError."""
    if settings.row is not None:
        raise UserError(f"row '{settings.row.name}': a search starts from its experiment file, not from a row")
    name, sampler = settings.verb["name"] or file.name, settings.verb["sampler"] or file.sampler
    if settings.verb["sampler"]:
        if sampler not in SAMPLERS:
            raise UserError(f"--sampler={sampler}: valid: {', '.join(SAMPLERS)}")
        check_sampler(sampler, file.method, "--sampler")
    base = settings.base
    if settings.verb["smoke"]:  # no searched steps, and no pruner, which would see none of so few
        specs, ties = ({key: x for key, x in of.items() if key not in SHORTENED} for of in (file.specs, file.ties))
        file = replace(file, specs=specs, ties=ties, early=None, beside=replace(file.beside, pruner=Pruner()))
    exact = check_experiment(base, name)
    space = replace(file, sampler=sampler).space(base)
    begun = file_of(settings.out, name).is_file()
    hardware = load_as(Search, settings.out, name).hardware_of(resources.hardware) if begun else resources.hardware
    every = EventSchedule.of(hardware, exact.training).validate_every
    pruner = file.steps_of(every, exact.training.steps)
    trials = settings.verb["trials"] or file.beside.trials or TRIALS
    if trials < 0:
        raise UserError(f"--trials={trials}: must be above 0")
    search = Search(
        name=name,
        base=base,
        space=space,
        sampler=sampler,
        seed=file.beside.seed,
        trials=trials,
        objectives=file.objectives,
        constraints={name: limit for name, limit in file.beside.constraints.items()},
        pruner=pruner,
        ties=file.ties,
        title=file.beside.title,
        question=file.beside.question,
        validate_every=every if pruner.type != "none" else 0,
        prune_in_warmup=file.beside.prune_in_warmup,
        prints=Fingerprints("", ""),
        V=1,
        store="",
    )
    search.check()
    check_space(search)
    kinds = [value for p in space if p.name == "training.precision" for value in p.values]
    check_precisions([base.training.precision, *map(str, kinds)], resources)
    return search


def check_space(search: Search) -> None:
    """Raise UserError where base cannot be trained or has no such score, or no trial could reach its peak rate."""
    check_trainable(search.base, search.name)
    tried = [search.base]
    for aim in search.objectives:
        metric = METRICS[aim.removeprefix("dev/")] if aim.startswith("dev/") else PPL
        if metric.counted and not search.base.data.translated:
            raise UserError(
                f"{search.name}: {aim} scores translations: data.corpus={search.base.data.corpus} has no source, "
                "search by dev/ppl"
            )
        if metric.more and metric not in METRICS.named(search.base.evaluation.metrics):
            raise UserError(f"{search.name}: {aim} is counted where asked for: add --evaluation.metrics {metric.name}")
    for p in search.space:
        if p.name == "training.warmup":
            check_peak(int(min(p.listed or [p.low])), search.base, f"{search.name}: every trial")
        for value in p.values if p.name in OWN_WEIGHTS else ():
            tried.append(override(search.base, {p.name: value}, search.name))
            check_classes(tried[-1])
    check_classes_work(experiment.scaled(search.name) for experiment in tried)


def add_search_options(parser: Parser) -> None:
    """Options of a search in addition to its files."""
    parser.add_argument("--sampler", default="", help="for a search: " + " | ".join(SAMPLERS))
    parser.add_argument(
        "--trials", type=int, default=0, help=f"trials of a search in all [as in the file, else {TRIALS}]"
    )


def _run(settings: Settings, file: SearchFile, resources: Resources) -> int:
    search = search_from(settings, file, resources)

    from lightning_tfm.queue.prepare_data_rows import on_this_machine

    check_start(resources, folder_of(settings.out, search.name))
    search = save(on_this_machine(search, settings.out, progress_of(search.name)), settings.out)
    for line in introduction(file, search, len(search.cells()), search.refused_points()):
        print(line, file=sys.stderr)
    return carry_out(search, settings.out, resources, settings.verb, search.cells())


def introduction(file: SearchFile, search: Search, points: int, refused: int) -> list[str]:
    """What the words of the sweep file mean on this engine."""
    as_written = f" (the sweep file's '{file.method}')" if file.method != search.sampler else ""
    count = plural(points, "run") if not search.budget else plural(search.trials, "trial")
    first = "base first" if search.based else "without base: begun before it was the first run"
    aims = ", ".join(f"{direction} {name}" for name, direction in search.objectives.items())
    lines = [f"{search.name}: {count} by {search.sampler}{as_written}, {first}, {aims}"]
    if "training.eps_ls" in {p.name for p in search.space} and "dev/ppl" in search.objectives:
        lines.append(
            f"{search.name}: WARNING: label smoothing (training.eps_ls) trades perplexity for {OF_TEXT.label}: by "
            "dev/ppl a search prefers the least of it, regardless of its worth; search it by "
            f"dev/{OF_TEXT.name}, or remove it"
        )
    if refused:
        why = "above the limit, or their tied sizes are not whole" if search.ties else "above the limit"
        lines.append(
            f"{search.name}: {plural(refused, 'point')} of the grid {'is' if refused == 1 else 'are'} left out: {why}"
        )
    lines += [f"{search.name}: {key} follows: {next(iter(tie.values()))}" for key, tie in search.ties.items()]
    return lines + (pruning(search, file) if search.pruner.type != "none" else [])


def pruning(search: Search, file: SearchFile) -> list[str]:
    """What the pruner of a search will see: the steps at which it compares trials, beside their warm-ups."""
    pruner, training = search.pruner, search.base.scaled().training
    early = " (the sweep file's early_terminate, which W&B calls hyperband)" if file.early else ""
    first, grows = max(pruner.min_step, search.validate_every), pruner.type != "median"
    looks, step = list[int](), first
    while step < training.steps:
        looks.append(step)
        step = step * pruner.eta if grows else step + search.validate_every
    at = ", ".join(f"{look:,}" for look in looks) if grows else f"{first:,} and every validation after it"
    lines = [
        f"{search.name}: stopped early by {pruner.type}{early}: dev PPL compared at steps {at} of {training.steps:,}"
    ]
    searched = next((p for p in search.space if p.name == "training.warmup"), None)
    warmups = [int(x) for x in searched.listed or (searched.low, searched.high)] if searched else [training.warmup]
    least, most = min(warmups), max(warmups)
    takes = f"{search.name}: warm-up takes {least:,}{f' to {most:,}' if most > least else ''} steps"
    if search.prune_in_warmup:
        return [*lines, f"{takes}, and prune_in_warmup lets trials be stopped within it"]
    judged = sum(look >= most for look in looks)
    last = f"can be stopped at {judged} of these {len(looks)} steps" if judged else "is never stopped"
    return [*lines, f"{takes}, and no trial is stopped before its own ends: one of {most:,} {last}"]
