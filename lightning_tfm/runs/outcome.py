"""How a run ends: the outcome's name, the exit code of the run's process, and the exception that stands for it."""

import errno

from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import RunIsOwned, StaleAttempt

EXIT_CODES = {"failed": 1, "refused": 2, "owned": 75, "stale": 76, "out_of_memory": 77, "nan_loss": 78, "disk_full": 79}
EXIT_CODES |= {"pruned": 80}
"""Exit code of a run's process by outcome; 0 is finished, 130 and 143 are interrupted."""
OUTCOMES = {code: outcome for outcome, code in EXIT_CODES.items()} | {130: "interrupted", 143: "interrupted"}


class RunFailed(Exception):
    """A run ends with a named outcome: out_of_memory, nan_loss, disk_full or failed."""

    def __init__(self, outcome: str, reason: str, step: int | None = None) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.step = outcome, reason, step


def name_of(error: BaseException) -> str:
    """The outcome that an exception stands for."""
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
    if exit_code_of(error) is not None:
        return "interrupted"
    if isinstance(error, FloatingPointError):
        return "nan_loss"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "disk_full"
    # torch is not imported here: torch.OutOfMemoryError by its name, the CPU allocator by its text
    named = type(error).__name__ == "OutOfMemoryError"
    if named or isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out_of_memory"
    return "failed"


def exit_code_of(error: BaseException) -> int | None:
    """130 or 143 where an exception says that a signal stopped the run, by the attribute `exit_code` or `code`."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    code = getattr(error, "code" if isinstance(error, SystemExit) else "exit_code", None)
    return code if code in (130, 143) else None


def say(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
