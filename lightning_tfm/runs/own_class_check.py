"""The user-defined classes of a study, tried before anything of it is trained."""

import os
from collections.abc import Iterable

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError
from lightning_tfm.registry import OPTIMIZERS, SCHEDULES
from lightning_tfm.runs.process.forking import describe, exit_on_signals, fork, unblock_signals
from lightning_tfm.study.user_classes import own_classes
from lightning_tfm.training.schedule import check_schedule


def check_classes_work(experiments: Iterable[Experiment]) -> None:
    """Raise UserError, with the user's line, where a user-defined class of these `experiments`, at true sizes, fails.

    Each is tried once, in the first that names it, and in a process of its own: one that has computed cannot fork runs.
    """
    first = {tuple(own_classes(e).values()): e for e in reversed([*experiments])}
    first.pop((), None)
    if not first:
        return
    inbox, outbox = os.pipe()
    child = fork(lambda: _try([*first.values()][::-1], outbox))
    os.close(outbox)
    with open(inbox, encoding="utf-8") as messages:
        fault = messages.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if fault or code:
        raise UserError(fault or f"{', '.join(dict.fromkeys(sum(first, ())))}: trying it: {describe(code)}")


def _try(experiments: Iterable[Experiment], outbox: int) -> int:
    exit_on_signals()
    unblock_signals()
    from lightning_tfm.model.causality_check import check_own_classes
    from lightning_tfm.training.optimizers import check_optimizer

    try:
        for experiment in experiments:
            check_own_classes(experiment.model)
            if experiment.training.schedule not in SCHEDULES:
                check_schedule(experiment.training, experiment.model.d_model)
            if experiment.training.optimizer not in OPTIMIZERS:
                check_optimizer(experiment.model, experiment.training)
    except UserError as error:
        os.write(outbox, str(error).encode())
    return 0
