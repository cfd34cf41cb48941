"""`fit`: one run, trained from its last checkpoint, and scored."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Literal

from lightning_tfm.cli.arguments import MODES, make_parser, parse, prints_config, progress_of
from lightning_tfm.config import Hardware, evaluation_hash, training_hash, training_identity
from lightning_tfm.metrics import in_print
from lightning_tfm.queue.resources import check_accelerator
from lightning_tfm.runs.folder import Attempt, RunFolder
from lightning_tfm.runs.outcome import STOPPED, say, say_how
from lightning_tfm.runs.process.attempt import run_attempt
from lightning_tfm.runs.process.forking import by_torchrun, exit_on_signals, fork, unblock_signals
from lightning_tfm.runs.process.threads import check_cores
from lightning_tfm.study.cell import Cell, Plan
from lightning_tfm.study.preflight import check_not_defaults, check_one_machine, check_trainable
from lightning_tfm.study.user_classes import user_classes


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Train one experiment, or one row of the table, and score it.")
    parser.add_argument("--wandb", choices=MODES, help="mirror to W&B [off; online for an agent]")
    text = "trace ten steps into the run's folder [off]; the same as --trainer.profile true"
    parser.add_argument("--profile", action="store_true", help=text)
    settings = parse(parser, argv)
    hardware = replace(settings.hardware, profile=settings.hardware.profile or settings.verb["profile"])
    mode: Literal["off", "offline", "online"]
    mode = settings.verb["wandb"] or ("online" if "WANDB_SWEEP_ID" in os.environ else "off")
    if prints_config(settings):
        return 0
    if torchrun := _torchrun():
        hardware = torchrun.with_torchrun_ranks(hardware)
    else:
        check_one_machine(hardware)
    exact = settings.exact
    check_trainable(settings.experiment, settings.name)
    check_accelerator(hardware, exact.training.precision)
    check_cores(hardware)
    classes = user_classes(settings.experiment)
    check_not_defaults(settings.base, verb)

    from lightning_tfm.data.prepare import prepare
    from lightning_tfm.data.sources.length_buckets import check_reach

    prepared = prepare(exact.data, settings.out, progress_of(f"{settings.name}, seed {exact.training.seed}"))
    check_reach(exact, prepared, settings.name)
    identity = training_identity(settings.experiment, prepared.train_fingerprint, classes)
    name = training_hash(identity)
    folder = RunFolder(settings.out, name)
    cell = Cell(settings.name, exact.training.seed, name, 1.0)
    plan = (exact, identity)
    if torchrun and torchrun.rank() > 0:
        from lightning_tfm.runs.train import train_cell

        return torchrun.follow(folder, lambda attempt: train_cell(plan, cell, hardware, attempt, prepared.folder))
    with _mirror(mode, folder, cell):
        code = 0
        if folder.finished():
            print(f"{folder.path} is already trained", file=sys.stderr)
        else:
            code = _train(plan, cell, hardware, folder, prepared.folder)
        if torchrun:
            torchrun.release(code)
        elif code in STOPPED:
            say_how(shlex.join(["lightning-tfm", verb, *argv]))
        if code != 0:
            return code
    _report(folder, evaluation_hash(exact, prepared.fingerprint(exact.data.dev)))
    return 0


def _torchrun() -> ModuleType | None:
    """What its ranks do besides; None for a run that it did not start."""
    if not by_torchrun():
        return None
    from lightning_tfm.runs.process import torchrun

    return torchrun


def _train(plan: Plan, cell: Cell, hardware: Hardware, folder: RunFolder, store: Path) -> int:
    print(f"{cell.row}, seed {cell.seed} -> {folder.path}", file=sys.stderr, flush=True)
    from lightning_tfm.runs.train import train_cell, write_plan  # with torch, which takes seconds

    exit_on_signals()

    def train(attempt: Attempt) -> None:
        if torchrun := _torchrun():
            write_plan(plan, cell, attempt)
            torchrun.lead(attempt)
        train_cell(plan, cell, hardware, attempt, store)

    with _watching(folder.root, cell):
        return run_attempt(folder, train)


def _mirror(mode: Literal["off", "offline", "online"], folder: RunFolder, cell: Cell) -> AbstractContextManager[None]:
    if mode == "off":
        return nullcontext()
    from lightning_tfm.queue.wandb_mirror import mirror_to_wandb

    group, files = os.environ.get("WANDB_SWEEP_ID", "fit"), folder.root / "studies" / "fit"
    return mirror_to_wandb(mode, folder.root, group, files, lambda: [cell], say, str(folder.path))


@contextmanager
def _watching(root: Path, cell: Cell) -> Iterator[None]:
    """Show the run's progress from a separate process until the block ends: a thread would hold locks at a fork.

    On a terminal what the run says goes through that process, which draws there.
    """
    inbox, outbox = os.pipe()  # both stay open here, so that the run can speak where its view has failed
    os.set_blocking(inbox, False)
    watcher = fork(lambda: _watch(root, cell, inbox))  # where it fails the run continues without its view
    terminal = sys.stderr
    if terminal.isatty():
        sys.stderr = open(outbox, "w", buffering=1, closefd=False)
    try:
        yield
    finally:
        sys.stderr = terminal
        os.kill(watcher, signal.SIGTERM)
        os.waitpid(watcher, 0)
        os.close(inbox)
        os.close(outbox)


def _watch(root: Path, cell: Cell, inbox: int) -> int:
    over: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the run too, which decides
    signal.signal(signal.SIGTERM, lambda number, frame: over.append(number))
    unblock_signals()

    from lightning_tfm.queue.view import View
    from lightning_tfm.watch.study_state import CellState, Watch

    view, watch = View(""), Watch(root, 1)
    state = [CellState(cell, "running")]
    while not over:
        view.relay(inbox)
        if view.due():
            view.show(watch.look(state))
        time.sleep(0.05)
    view.relay(inbox)
    view.close()
    return 0


def _report(folder: RunFolder, evaluation: str) -> None:
    result = folder.read_result()
    assert result is not None, "the run is finished"
    for name, score in result.scores.items():
        print(f"{name} ({score.split}): {in_print(score)}" + f" ({score.signature})" * bool(score.signature))
    print(f"{result.parameters.total:,} parameters, {result.seconds.total:.0f} s: {folder.path}")
    if result.scores["dev"].evaluation_hash != evaluation:
        print(f"these scores are for other options or another dev set: lightning-tfm validate {folder.path} --…")
