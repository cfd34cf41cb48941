"""Start the work on a study: its queue, what runs beside it, and who trains: this machine, or the jobs of a cluster."""

import dataclasses
import json
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from lightning_tfm.atomic_io import write_atomic
from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.queue.clusters import Cluster
from lightning_tfm.queue.pool import Job, Pool
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources, how_shared
from lightning_tfm.queue.sampling import optuna_params
from lightning_tfm.queue.storage import OUTAGES, address_of_queue, remember
from lightning_tfm.queue.studies import make_queue, open_queue, study_of
from lightning_tfm.queue.view import View, follow
from lightning_tfm.queue.wandb_mirror import mirror_to_wandb
from lightning_tfm.runs.folder import Attempt, RunFolder, RunIsOwned
from lightning_tfm.runs.outcome import MAY_BE_GONE, say
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.command import with_out
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Study
from lightning_tfm.study.study_file import check_exists, folder_of, link
from lightning_tfm.training.schedule import EventSchedule
from lightning_tfm.watch.study_state import CellState, Watch

JOBS_EVERY = 15.0
"""seconds between two checks of the jobs of a cluster"""
PROOF = "shared"
"""file in a study's folder with a token that the storage holds too"""
MORE = "more runs to come"
"""note in a study's storage: those who have joined should wait when nothing is left to run"""
MORE_EVERY = 2.0
"""seconds between two checks of it"""


def work(
    study: Study, cells: Sequence[Cell], root: Path, resources: Resources, start: bool = False, again: bool = True
) -> list[CellState] | None:
    """Run what the study has left, here or as jobs of a cluster; `start` where this machine has just defined it.

    None where it waits in the queue for jobs that the user starts (--launcher none). Unless `again` is False, what has
    failed for a cause that may be gone is tried once more.

    Raises UserError; SystemExit after a stop signal.
    """
    if isinstance(study, Search) and len(study.trial_seeds) > 1:
        raise UserError(f"study '{study.name}' has several seeds per trial: it can be read, and goes no further")
    import lightning_tfm.runs.train  # noqa: F401  with torch: once, before any run is forked

    folder = folder_of(root, study.name)
    storage, hardware = address_of_queue(resources.storage, folder), study.hardware_of(resources.hardware)
    resources = dataclasses.replace(resources, storage=storage, hardware=hardware)
    schedule = EventSchedule.of(resources.hardware, study.base.scaled().training)
    job = Job(study, root, resources, schedule.validate_every, start and again)
    remember(resources.storage, folder)
    if resources.cluster is not None:
        return _submit(job, cells, resources.cluster)

    @cache
    def queue() -> Queue:  # opened in the mirror's process, once
        return open_queue(root, study.name, resources.storage, lambda text: None)

    def cells_so_far() -> list[Cell]:
        try:
            return [state.cell for state in queue().states()]
        except UserError:  # the launcher has not made it yet
            return []

    if resources.devices is not None and resources.devices.gpu and resources.devices.runs > 1:
        say(how_shared())
    with mirror_to_wandb(resources.wandb, root, study.name, folder, cells_so_far, say):
        return run_study(job, cells, start=start)


def run_study(job: Job, cells: Sequence[Cell], stream: TextIO | None = None, start: bool = False) -> list[CellState]:
    """Run every cell that is not finished yet and return how each ended (state "finished" or "failed").

    `job.train` runs in a separate process for each cell. Studies with a sampler make their trials
    themselves. With `start` the study's definition is put into the storage for those who join.

    On SIGINT or SIGTERM the runs get `resources.patience` seconds to write a checkpoint, return to the queue, and
    SystemExit(130 or 143) is raised; a second signal kills them at once. Raises UserError before anything starts.
    """
    view = View(job.study.name, stream)
    try:
        watch = Watch(job.root, job.resources.workers, job.study)
        queue = _fill(job, cells, start, view.say, watch)
        Pool(job, queue, view, watch).run()
        fetch(queue, job.root)
        view.show(watch.look(queue.states()))
        for line in what_helps(job, queue):
            view.say(line)
        return queue.states()
    finally:
        view.close()


def _fill(job: Job, cells: Sequence[Cell], start: bool, say: Callable[[str], None], watch: Watch) -> Queue:
    """The queue of a study with its cells in it."""
    queue = make_queue(job.study, job.root, job.resources, say)
    if start:
        publish(queue, job.folder, job.study.to_plain())
    fetch(queue, job.root)
    if job.again and (again := queue.retry_once()):
        say(f"{job.study.name}: failed before, tried once more: {', '.join(again)}")

    def has_record(name: str) -> bool:  # a damaged record is not: its cell is run, and fails by name, the others train
        return not job.resources.share_files or watch.runs[name].record is not None

    queue.enqueue(cells, has_record, optuna_params(job.study))
    for state in queue.states():
        link(job.folder, state.cell)
    return queue


def _submit(job: Job, cells: Sequence[Cell], cluster: Cluster) -> list[CellState] | None:
    """Queue the cells, submit the workers, and watch until nothing is left or no job is alive; None without jobs."""
    name, resources = job.study.name, job.resources
    watch = Watch(job.root, resources.workers * cluster.jobs, job.study)
    queue = _fill(job, cells, True, say, watch)
    if queue.done():
        return queue.states()
    jobs = cluster.submit(name, job_arguments(name, job.root, resources), job.folder)
    again = with_out(f"lightning-tfm status {name}", job.root)
    if not jobs:
        say(f"{name}: {again} follows them; then the same command as now shows the results")
        return None
    say(f"{name}: jobs {', '.join(jobs)}; Ctrl-C ends this view, not the jobs: {again}")
    last = time.monotonic()

    def check() -> None:
        nonlocal last
        if time.monotonic() - last > JOBS_EVERY:
            last = time.monotonic()
            if not cluster.alive(jobs) and not queue.done():
                raise UserError(f"study '{name}': all jobs ended before the study did, see {job.folder / cluster.name}")

    follow(queue, watch, View(name), 1.0, check)
    for line in what_helps(job, queue):
        say(line)
    return queue.states()


def what_helps(job: Job, queue: Queue) -> list[str]:
    """Lines that name the cells that failed, by what has to be done before they train again."""
    name = job.study.name
    again = "the same command" if job.again else with_out(f"lightning-tfm resume {shlex.quote(name)}", job.root)
    retry = with_out(f"lightning-tfm runs retry {shlex.quote(name)}", job.root)
    helps = dict.fromkeys(MAY_BE_GONE, f"when the cause is gone, {again} tries once more")
    helps |= {"failed": f"when the cause is mended: {retry}, then {again}"}
    helps |= {"nan_loss": "the same run gives the same again"}
    failed: dict[str, list[str]] = {}
    for outcome, cell in queue.failures():
        failed.setdefault(outcome, []).append(f"{cell.row}/{cell.seed}")
    return [f"{name}: {outcome}: {', '.join(cells)}; {helps[outcome]}" for outcome, cells in failed.items()]


def job_arguments(study: str, root: Path, resources: Resources) -> list[str]:
    """The arguments of a job's `lightning-tfm work`: all that the launcher was given."""
    arguments = [study, "--out", str(root.resolve()), "--workers", str(resources.workers)]
    arguments += ["--wandb", resources.wandb] if resources.wandb != "off" else []
    arguments += ["--storage", resources.storage] if resources.storage else []
    arguments += ["--runs-per-device", str(resources.runs_per_device)] if resources.runs_per_device else []
    default = dataclasses.asdict(Hardware())
    values = {key: value for key, value in dataclasses.asdict(resources.hardware).items() if value != default[key]}
    return arguments + [f"--trainer.{key}={value}" for key, value in values.items()]


# --- those who join ---


def join(name: str, root: Path, resources: Resources) -> list[CellState]:
    """Work on an existing study. Raises UserError where this machine does not see the files it must see."""
    from lightning_tfm.queue.prepare_data_rows import on_this_machine

    if resources.share_files:
        check_exists(root, name)
    queue = open_queue(root, name, resources.storage, print)
    if resources.share_files:
        check_shared(queue, folder_of(root, name))
    study = study_of(queue, root)
    study.hardware_of(resources.hardware)  # refused before the data are read
    here = on_this_machine(study, root)
    if study.prints.differing(here.prints) or getattr(study, "data", None) != getattr(here, "data", None):
        where = root / "data" / here.store
        raise UserError(f"study '{name}': the text or the tokenizer here is not the study's; compare {where}")
    while (states := work(study, [], root, resources)) is not None and _awaits_more(queue):
        pass
    return states or []


def _awaits_more(queue: Queue) -> bool:
    """Wait while more runs may come; returns whether they came."""
    told = False
    while True:
        try:
            if not queue.done():
                return True
            if not queue.note_of(MORE):
                return False
        except OUTAGES as error:
            print(f"{queue.name}: {error}; trying again", file=sys.stderr)
        if not told:
            print(f"{queue.name}: waiting for the runs of the next interim analysis; Ctrl-C leaves", file=sys.stderr)
            told = True
        time.sleep(MORE_EVERY)


def announce(study: Study, root: Path, resources: Resources, more: bool) -> list[CellState]:
    """Tell those who join the study whether more runs may come when all are done; states of its cells so far.

    The jobs of a cluster get no note: they leave, and every look submits its own.
    """
    queue = make_queue(study, root, resources, print)
    if resources.cluster is None:
        queue.note(MORE, more)
    return queue.states()


# --- what machines that share no files need to know about the others goes through the storage ---


def publish(queue: Queue, folder: Path, definition: dict[str, Any]) -> None:
    """Put the definition into the storage, and a token into the folder by which others see that they share it."""
    if queue.note_of("definition") != definition:
        queue.note("definition", definition)
    if queue.note_of(PROOF) is None:
        queue.note(PROOF, uuid.uuid4().hex)
    if not (folder / PROOF).exists():
        write_atomic(folder / PROOF, queue.note_of(PROOF).encode())


def check_shared(queue: Queue, folder: Path) -> None:
    """Raise UserError unless this machine sees the folder of the study's first launcher."""
    word, here = queue.note_of(PROOF), folder / PROOF
    if word is None or not here.is_file() or here.read_text() != word:
        raise UserError(
            f"{folder} is not the folder in which the study '{queue.name}' was started: give that one with --out, or "
            "work without it (--no-shared-files: a run lost elsewhere then starts over here)"
        )


def fetch(queue: Queue, root: Path) -> None:
    """Write the records that came from machines with other files below `root`."""
    for name, record in queue.shared_records():
        folder = RunFolder(root, name)
        if folder.finished():
            continue
        try:
            attempt = folder.claim()
        except RunIsOwned:
            continue
        _clear(attempt)
        attempt.write_json(folder.identity, record["identity"])
        attempt.write_json(folder.experiment, record["experiment"])
        attempt.write_json(folder.result, json.loads(json.dumps(record)))
        attempt.release()


def _clear(attempt: Attempt) -> None:
    """Drop the curve and the weights of a try that was lost here: the incoming record is not theirs."""
    with attempt.guard():
        attempt.folder.metrics.unlink(missing_ok=True)
        (attempt.folder.path / "samples.jsonl").unlink(missing_ok=True)
    for part in (attempt.folder.checkpoints, attempt.folder.snapshots):
        if part.exists():
            with attempt.guard():
                shutil.rmtree(part)
