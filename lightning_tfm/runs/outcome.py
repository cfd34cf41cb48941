"""How a run ends: a table of outcomes, the exception for each, and the guard that all processes share."""

import errno
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import RunIsOwned, StaleAttempt


@dataclass(frozen=True)
class OutcomeKind:
    """One way to end."""

    name: str
    code: int | None = None
    """exit code of the run's process; None if another process finds out"""
    retries: int | None = None
    """how often a cell is tried again after it; None: without limit"""
    meaning: str = ""
    """of the exit code, for people"""


TABLE = (
    OutcomeKind("finished", 0, meaning="success: everything that was asked for exists"),
    OutcomeKind("failed", 1, 2, "a run failed (its log.txt says why), or files differ from their checksums"),
    OutcomeKind("refused", 2, 0, "invalid input; nothing was started (the message says how to fix it)"),
    OutcomeKind("owned", 75, meaning="another process works on this run"),
    OutcomeKind("stale", 76, meaning="another process took over this run after this one stopped responding"),
    OutcomeKind("out_of_memory", 77, 1, "out of memory: smaller --trainer.micro_tokens, or fewer workers"),
    OutcomeKind("nan_loss", 78, 0, "the loss was NaN or infinite; the same run gives the same again"),
    OutcomeKind("disk_full", 79, 1, "the disk is full; run the same command to resume from the last checkpoint"),
    OutcomeKind("pruned", 80, meaning="a trial was stopped early as unpromising (only within a search)"),
    OutcomeKind("killed", None, 2),
    OutcomeKind("lost", None, 20),  # the owner died: not the run's fault, unless it takes machines down
)
MAY_BE_GONE = ("refused", "out_of_memory", "disk_full", "killed", "lost")
"""outcomes whose cause may be gone when the same command is typed again, such as a full disk or an edited text"""
STOPPED = (130, 143)
"""exit codes of a run that SIGINT or SIGTERM interrupted"""
OF_THE_PROGRAM = {
    130: "stopped by Ctrl-C (SIGINT), after a checkpoint",
    141: "output pipe closed (for example by head)",
    143: "stopped by SIGTERM, after a checkpoint",
}
EXIT_CODES = {outcome.name: outcome.code for outcome in TABLE if outcome.code is not None}
RETRIES = {outcome.name: outcome.retries for outcome in TABLE if outcome.retries is not None}
"""How often a cell is tried again after each outcome; outcomes not listed are tried again without limit."""


def meanings() -> dict[int, str]:
    """Every exit code of `lightning-tfm`, and what it means: for --help and the documents."""
    return {outcome.code: outcome.meaning for outcome in TABLE if outcome.code is not None} | OF_THE_PROGRAM


def say(line: str) -> None:
    """For people, on standard error: standard output holds what was asked for."""
    sys.stderr.write(f"{line}\n")  # in one piece, also where Python does not buffer: others write there, too
    sys.stderr.flush()


def say_how(command: str) -> None:
    """The last line after a stop by a signal."""
    print(f"stopped; to resume: {command}", file=sys.stderr)


def outcome_of(code: int) -> str:
    """The outcome of an exit code; an unknown one is a failure."""
    names = {number: name for name, number in EXIT_CODES.items()} | dict.fromkeys(STOPPED, "interrupted")
    return names.get(code, "failed")


class RunFailed(Exception):
    """A run ends with a named outcome: out_of_memory, nan_loss, disk_full or failed."""

    def __init__(self, outcome: str, reason: str, step: int | None = None) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.step = outcome, reason, step


@dataclass(frozen=True)
class Ending:
    """What an exception says about the run that it ends."""

    outcome: str
    code: int
    message: str
    reason: str
    """the message after the kind of the error"""
    step: int | None
    """optimizer step, where the exception knows it"""


def ending_of(error: BaseException) -> Ending:
    """The meaning of `error`."""
    code = exit_code_of(error)
    name = "interrupted" if code is not None else _name_of(error)
    reason, step = in_a_line(error), getattr(error, "step", None)
    return Ending(name, EXIT_CODES[name] if code is None else code, str(error), reason, step)


def exit_code_of_body(body: Callable[[], object], tell: Callable[[Ending], None]) -> int:
    """Call `body()`; the exit code that says how it ended. `tell` is called at every end but a successful one.

    For an unexpected error the traceback is printed; for a named one, a line.
    """
    try:
        body()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, SystemExit) and not error.code:
            return 0
        ending = ending_of(error)
        if ending.outcome == "failed" and not isinstance(error, RunFailed):
            traceback.print_exc()
        elif ending.outcome not in ("interrupted", "pruned", "refused", "stale"):
            print(f"{ending.outcome}: {ending.reason}", file=sys.stderr)
        tell(ending)
        return ending.code
    return 0


def _name_of(error: BaseException) -> str:
    if isinstance(error, RunFailed):
        return error.outcome
    if getattr(error, "outcome", None) == "pruned":  # training.callback.Pruned, which imports torch
        return "pruned"
    if isinstance(error, UserError):
        return "refused"
    if isinstance(error, RunIsOwned):
        return "owned"
    if isinstance(error, StaleAttempt):
        return "stale"
    if isinstance(error, FloatingPointError):
        return "nan_loss"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "disk_full"
    # torch is not imported here: torch.OutOfMemoryError by its name, the CPU allocator by its text
    by_name = type(error).__name__ == "OutOfMemoryError"
    if by_name or isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out_of_memory"
    return "failed"


def exit_code_of(error: BaseException) -> int | None:
    """130 or 143 where an exception says that a signal stopped the run, by the attribute `exit_code` or `code`."""
    if isinstance(error, RunFailed):
        return None
    if isinstance(error, KeyboardInterrupt):
        return 130
    code = getattr(error, "code" if isinstance(error, SystemExit) else "exit_code", None)
    return code if code in STOPPED else None


def in_a_line(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def print_ending(who: str) -> Callable[[Ending], None]:
    """A `tell` that says on standard error what ended `who`."""
    return lambda ending: say(f"{who}: {ending.message}")
