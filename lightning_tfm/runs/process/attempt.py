"""One attempt at a run: claim its folder, train, record in words and in the exit code how it ended."""

import sys
from collections.abc import Callable

from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import Attempt, RunFolder, RunIsOwned, StaleAttempt
from lightning_tfm.runs.outcome import EXIT_CODES, Ending, exit_code_of_body
from lightning_tfm.runs.process.forking import exit_on_signals, print_into, unblock_signals
from lightning_tfm.runs.record import Progress, read_small


def become_run(folder: RunFolder) -> None:
    """What a process forked for a run does once: stop on signals, print into the run's log."""
    exit_on_signals()
    print_into(folder.log)
    # fresh objects: those of the launcher draw on a terminal
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    unblock_signals()


def run_attempt(
    folder: RunFolder, train: Callable[[Attempt], None], score: Callable[[Attempt], None] | None = None
) -> int:
    """Claim the run, `train(attempt)` unless it is finished, write outcome.json; the exit code (outcome.TABLE).

    `score(attempt)` handles a finished one.
    """
    try:
        attempt = folder.claim()
    except RunIsOwned as error:
        print(error, file=sys.stderr)
        return EXIT_CODES["owned"]

    def to_the_end() -> None:
        folder.outcome.unlink(missing_ok=True)
        if not folder.finished():
            train(attempt)
        elif score is not None:
            score(attempt)
        if not folder.finished():
            raise UserError(f"{folder.path}: training ended without result.json")

    try:
        code = exit_code_of_body(to_the_end, lambda ending: _leave_outcome(attempt, ending))
        if code != EXIT_CODES["stale"]:
            attempt.release()
    except StaleAttempt as error:
        print(error, file=sys.stderr)
        return EXIT_CODES["stale"]
    return code


def _leave_outcome(attempt: Attempt, ending: Ending) -> None:
    """Write how the run ended. Raises StaleAttempt."""
    if ending.outcome in ("refused", "stale"):
        print(f"lightning-tfm: {ending.message}", file=sys.stderr)
    if ending.outcome == "stale":
        return
    try:
        progress = read_small(Progress, attempt.folder.progress)
    except ValueError:  # damaged, which readers name; how the run ended matters more
        progress = None
    step = ending.step or (progress.step if progress else None)
    try:
        attempt.write_outcome("failed" if ending.outcome == "refused" else ending.outcome, ending.reason, step)
    except OSError as full:  # the exit code still says it
        print(f"outcome.json could not be written: {full}", file=sys.stderr)
