"""Which owners of running trials are taken for dead."""

import time
from typing import Any

from optuna.trial import FrozenTrial

from lightning_tfm.study.owner import Owner


class Vigil:
    """Remembers the last heartbeat of each trial, and since when it is the last. `grace` in seconds."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._beats: dict[int, tuple[Any, float]] = {}

    def abandoned(self, trial: FrozenTrial) -> str | None:
        """Why the owner of a RUNNING trial is taken for dead; None if it is not.

        A process on this machine is looked up. Silence is measured by our own clock from when we first saw the last
        heartbeat: clocks of machines differ, and a laptop that slept has not been silent.
        """
        attributes = trial.user_attrs
        owner = Owner(**attributes["owner"]) if "owner" in attributes else None
        if owner is not None and owner.gone():
            return f"{owner} is gone"
        sign = (attributes.get("beat"), owner)
        seen, since = self._beats.get(trial._trial_id, (None, 0.0))
        if seen != sign:
            self._beats[trial._trial_id] = (sign, time.monotonic())
            return None
        if time.monotonic() - since <= self._grace:
            return None
        return f"{owner or 'its unnamed owner'} has been silent for {self._grace:g} s"
