"""Moments of a run at which a test strikes: a function that runs there, for the n-th time, sends a signal first."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import TEMPORARY

MOMENTS = (
    "forward",
    "update",
    "validation",
    "half a checkpoint",
    "before a rename",
    "after a rename",
    "metrics",
    "epoch's end",
    "decoding",
    "half a snapshot",
)


@dataclass
class Strike:
    """Send `signum` to this process at the n-th `moment` (from 1), on rank `rank` alone; counts what passes by."""

    moment: str = ""
    n: int = 0
    signum: int = signal.SIGKILL
    rank: int = 0

    def arm(self) -> Counter:
        """Patch the package in this process (for good: call it in a child) and return the counter."""
        from lightning_tfm.data.module import StepLoader
        from lightning_tfm.runs.folder import Attempt
        from lightning_tfm.training import backend, evaluate, module, weight_files

        seen: Counter = Counter()

        def passes(moment: str) -> bool:
            """Whether it is now; whoever asks has to strike."""
            seen[moment] += 1
            return moment == self.moment and seen[moment] == self.n and int(os.environ.get("RANK", 0)) == self.rank

        def strike() -> None:
            os.kill(os.getpid(), self.signum)

        def before(owner: Any, name: str, moment: str, when: Callable[..., bool] = lambda *a: True) -> None:
            original = getattr(owner, name)

            def wrapped(*args: Any, **kwargs: Any) -> Any:
                if when(*args) and passes(moment):
                    strike()
                return original(*args, **kwargs)

            setattr(owner, name, wrapped)

        before(module.TransformerModule, "batch_loss", "forward")
        before(module, "learning_rate", "update")
        before(evaluate, "score_batch", "validation")
        before(backend, "beam_search", "decoding")
        before(Attempt, "append_metrics", "metrics")
        before(Attempt, "commit", "before a rename")
        before(StepLoader, "step", "epoch's end", lambda loader, step: step and step % loader.plan.steps_per_epoch == 0)
        before(weight_files, "checkpoint_files", "after a rename")

        whole = Path.write_bytes

        def write_bytes(path: Path, data: Any) -> int:
            for kind, moment in ((".ckpt.", "half a checkpoint"), (".pt.", "half a snapshot")):
                if kind in path.name and path.name.endswith(TEMPORARY) and passes(moment):
                    whole(path, bytes(data)[: len(data) // 2])
                    strike()
            return whole(path, data)

        Path.write_bytes = write_bytes
        return seen
