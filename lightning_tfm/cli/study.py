"""What the verbs that work on a study share: their options, and the run of its workers."""

import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import MODES, Parser
from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.queue.devices import Places, find_places, visible_gpus
from lightning_tfm.queue.slurm import Slurm
from lightning_tfm.runs.nodes import check_allocation
from lightning_tfm.study.sweeps import is_search
from lightning_tfm.training.schedule import Timetable
from lightning_tfm.yaml_files import read_yaml

if TYPE_CHECKING:
    from lightning_tfm.queue.queue import CellState, Queue
    from lightning_tfm.study.cell import Cell
    from lightning_tfm.study.definition import Definition
    from lightning_tfm.study.tune import Search

JOBS_EVERY = 15.0
"""seconds between two looks at the jobs of a cluster"""
MORE = "more runs to come"
"""note in a study's storage: who has joined shall wait when nothing is left to run"""
MORE_EVERY = 2.0
"""seconds between two looks at it"""
STORAGE = "postgresql+psycopg://… [a journal in the study's folder]"


@dataclass(frozen=True)
class Crew:
    """Who works on a study here."""

    workers: int
    threads: int
    """CPU threads of each process"""
    hardware: Hardware
    places: Places | None
    storage: str
    wandb: str
    carry: bool
    """share no files with other machines"""
    slurm: Slurm | None = None
    """submit the workers as jobs instead of forking them here"""


def add_options(parser: Parser) -> None:
    """The options of a verb that runs workers."""
    parser.add_argument("--workers", type=int, default=0, help="runs at once; 0: one for each CPU, or GPU")
    parser.add_argument("--storage", default="", help=STORAGE)
    parser.add_argument("--devices-per-run", type=int, default=0, help="processes of each run, each with own devices")
    parser.add_argument("--runs-per-device", type=int, default=0, help="small runs that share a device")
    parser.add_argument("--wandb", choices=MODES, default="off", help="mirror runs to W&B")
    parser.add_argument("--launcher", choices=["local", "slurm"], default="local", help="where the workers run")
    parser.add_fields("slurm", Slurm, "of each job, for --launcher slurm")
    parser.add_argument("--no-shared-files", action="store_true", help="the other machines do not see --out")


def make_crew(options: dict[str, Any], hardware: Hardware) -> Crew:
    """Raises UserError where options contradict each other or the machine."""
    if options["workers"] < 0:
        raise UserError(f"--workers={options['workers']}: must not be negative")
    if options["no_shared_files"] and "://" not in options["storage"]:
        raise UserError("--no-shared-files needs --storage postgresql+psycopg://…: a journal is a shared file")
    per_run, runs = options["devices_per_run"], options["runs_per_device"]
    if per_run and hardware.devices not in (1, per_run):
        raise UserError(f"--devices-per-run={per_run} against --trainer.devices={hardware.devices}")
    hardware = replace(hardware, devices=per_run or hardware.devices)
    gpu = hardware.accelerator == "gpu" or (hardware.accelerator == "auto" and bool(visible_gpus()))
    slurm = Slurm(**options["slurm"]) if options["launcher"] == "slurm" else None
    hardware = replace(hardware, num_nodes=_nodes(options, hardware))
    cpus = slurm.cpus if slurm else len(os.sched_getaffinity(0))
    places = None
    if slurm is None and (gpu or per_run or runs):
        places = find_places(gpu, hardware.threads, hardware.devices, runs or 1)
        workers = options["workers"] or len(places)
    else:
        workers = options["workers"] or max(1, cpus // (max(1, hardware.threads) * hardware.devices))
    workers = 1 if hardware.num_nodes > 1 else workers
    threads = hardware.threads or max(1, cpus // (workers * hardware.devices))
    if slurm is not None and options["no_shared_files"]:
        raise UserError("--launcher slurm and --no-shared-files: the jobs of a cluster work in the study's folder")
    return Crew(
        workers, threads, hardware, places, options["storage"], options["wandb"], options["no_shared_files"], slurm
    )


def _nodes(options: dict[str, Any], hardware: Hardware) -> int:
    """Nodes of each run."""
    asked, nodes = options["slurm"]["nodes"], hardware.num_nodes
    if asked < 1:
        raise UserError(f"--slurm.nodes={asked}: must be 1 at least")
    if options["launcher"] != "slurm":
        if asked > 1:
            raise UserError(f"--slurm.nodes={asked} needs --launcher slurm")
        if nodes > 1:
            check_allocation(nodes)
    elif nodes not in (1, asked):
        raise UserError(f"--trainer.num_nodes={nodes} against --slurm.nodes={asked}: give --slurm.nodes={nodes}")
    else:
        nodes = asked
    if nodes > 1 and options["workers"] > 1:
        raise UserError(f"--workers={options['workers']}: a run over {nodes} nodes has all of them, one at a time")
    return nodes


def check_storage(storage: str, folder: Path) -> None:
    """Raise UserError for an address that is none, or not the study's, before anything is written."""
    from lightning_tfm.queue.storage import find_storage, remembered

    find_storage(remembered(storage, folder), folder).check()


def is_search_file(path: str) -> bool:
    """Whether a sweep file is a search: a table varies the parameter `row`. Raises UserError where it is no YAML."""
    return is_search(read_yaml(path))


def join(name: str, root: Path, crew: Crew) -> "list[CellState]":
    """Work on a study that exists. Raises UserError where this machine does not see what it has to see."""
    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.queue.queue import Queue
    from lightning_tfm.queue.sharing import check_shared
    from lightning_tfm.queue.storage import find_storage, remembered
    from lightning_tfm.study import definition, tune
    from lightning_tfm.study.rows import Fingerprints

    folder = definition.file_of(root, name).parent
    if not crew.carry:
        definition.check_exists(root, name)
    address = remembered(crew.storage, folder)
    queue = Queue(name, find_storage(address, folder), print, create=False)
    if not crew.carry:
        check_shared(queue, folder)
        study = tune.load(root, name) if tune.is_search(root, name) else definition.load(root, name)
    else:
        plain = queue.noted("definition")
        if plain is None:
            raise UserError(f"the storage holds no definition of study '{name}': start it with --storage first")
        read = tune.from_plain if "kind" in plain else definition.from_plain
        study = read(plain, f"study '{name}' in the storage")
    prepared = prepare(study.base.data, root)
    found = Fingerprints(prepared.train_fingerprint, prepared.fingerprint(study.base.data.dev))
    if found != study.prints:
        raise UserError(
            f"study '{name}': the text or the tokenizer here is not that of the study; compare {prepared.folder}"
        )
    states = work(study, [], root, crew)
    while _awaits_more(queue):
        states = work(study, [], root, crew)
    return states


def _awaits_more(queue: "Queue") -> bool:
    """Wait while more runs may come; whether they came."""
    from lightning_tfm.queue.storage import OUTAGES

    said = False
    while True:
        try:
            if not queue.done():
                return True
            if not queue.noted(MORE):
                return False
        except OUTAGES as error:
            print(f"{queue.name}: {error}; asked again", file=sys.stderr)
        if not said:
            print(f"{queue.name}: waiting for runs that the next look asks for; Ctrl-C leaves", file=sys.stderr)
            said = True
        time.sleep(MORE_EVERY)


def announce(study: "Definition", root: Path, crew: Crew, more: bool) -> "list[CellState]":
    """Tell those who join the study whether more runs may come when all are done; states of its cells so far.

    The jobs of a cluster are told nothing: they leave, and every look submits its own.
    """
    from lightning_tfm.queue.queue import Queue
    from lightning_tfm.queue.storage import find_storage, remembered
    from lightning_tfm.study import definition

    folder = definition.file_of(root, study.name).parent
    queue = Queue(study.name, find_storage(remembered(crew.storage, folder), folder), print)
    if crew.slurm is None:
        queue.note(MORE, more)
    return queue.states()


def work(
    study: "Definition | Search", cells: Sequence["Cell"], root: Path, crew: Crew, start: bool = False
) -> "list[CellState]":
    """Run what the study has left, here; `start` where this machine has just defined it.

    Raises UserError; SystemExit after a stop signal.
    """
    from lightning_tfm.queue.launch import run_study
    from lightning_tfm.queue.queue import Queue
    from lightning_tfm.queue.storage import find_storage, remember, remembered
    from lightning_tfm.queue.wandb_mirror import mirrored
    from lightning_tfm.runs.attempt import make_train
    from lightning_tfm.study import definition, tune
    from lightning_tfm.study.plans import plans_of

    folder = definition.file_of(root, study.name).parent
    storage = remembered(crew.storage, folder)
    train = make_train(plans_of(study, root), crew.hardware, root, crew.places)
    search = study if isinstance(study, tune.Search) else None
    first = first_validation(study.base.scaled().training, crew.hardware)
    plain = None
    if start:
        plain = tune.to_plain(study) if search else definition.to_plain(study)
    arguments = (study.name, list(cells), root, train, crew.workers, crew.threads, storage)
    remember(storage, folder)

    if crew.slurm is not None:
        plain = plain or (tune.to_plain(study) if search else definition.to_plain(study))
        return _submit(study.name, cells, root, crew, storage, plain, search)

    @cache
    def queue() -> Queue:  # opened in the mirror's process, once
        return Queue(study.name, find_storage(storage, folder), lambda text: None, create=False)

    def mine() -> "list[Cell]":
        try:
            return [state.cell for state in queue().states()]
        except UserError:  # the launcher has not made it yet
            return []

    with mirrored(crew.wandb, root, study.name, folder, mine, lambda text: print(text, file=sys.stderr)):
        return run_study(*arguments, search=search, first_validation=first, carry=crew.carry, definition=plain)


def _submit(
    name: str, cells: Sequence["Cell"], root: Path, crew: Crew, storage: str, plain: dict[str, Any], search: Any
) -> "list[CellState]":
    """Queue the cells, submit the workers, and watch until nothing is left or no job lives any more."""
    from lightning_tfm.queue.launch import prepare_queue
    from lightning_tfm.queue.progress import View, Watch, follow
    from lightning_tfm.queue.slurm import any_alive, submit
    from lightning_tfm.study.definition import file_of

    assert crew.slurm is not None
    folder = file_of(root, name).parent
    queue = prepare_queue(name, cells, root, storage, plain, search)
    arguments = ["--out", str(root.resolve()), "--workers", str(crew.workers), "--wandb", crew.wandb]
    arguments += ["--storage", crew.storage] if crew.storage else []
    arguments += [f"--trainer.{key}={value}" for key, value in dataclasses.asdict(crew.hardware).items()]
    jobs = submit(crew.slurm, name, arguments, folder)
    ids = ", ".join(job.job_id for job in jobs)
    print(f"{name}: jobs {ids}; Ctrl-C ends this view, not the jobs: lightning-tfm status {name}", file=sys.stderr)
    asked = time.monotonic()

    def check() -> None:
        nonlocal asked
        if time.monotonic() - asked > JOBS_EVERY:
            asked = time.monotonic()
            if not any_alive(jobs) and not queue.done():
                raise UserError(f"study '{name}': all jobs ended before the study did, see {folder / 'slurm'}")

    follow(queue, Watch(root, crew.workers * crew.slurm.jobs), View(name), 1.0, check)
    return queue.states()


def first_validation(training: Any, hardware: Hardware) -> int:
    """Optimizer step of the first dev perplexity of a run."""
    return Timetable.of(hardware, training).validate_every
