"""A command line that trains an experiment."""

import shlex
from functools import cache
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, to_dict


def fit_command(e: Experiment) -> str:
    """A command line that trains `e`: every field that differs from the defaults, as it is typed."""
    default = _defaults()
    parts = [
        f"--{section}.{key}={_value(value)}"
        for section, keys in to_dict(e).items()
        for key, value in keys.items()
        if value != default[section][key]
    ]
    return " ".join(["lightning-tfm", "fit", *map(shlex.quote, parts)])


def with_out(command: str, root: Path | str) -> str:
    """A command that looks for results in `root`, which is named where it is not the default."""
    return command if Path(root) == Path("results") else f"{command} --out {shlex.quote(str(root))}"


@cache
def _defaults() -> dict[str, Any]:
    return to_dict(Experiment())


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
