"""A command line that trains an experiment."""

import shlex
from pathlib import Path

from lightning_tfm.config import Experiment, to_dict


def fit_command(e: Experiment) -> str:
    """A command line that trains `e`: every field that differs from the defaults, as it is typed."""
    default = to_dict(Experiment())
    parts = [
        f"--{section}.{key}={str(value).lower() if isinstance(value, bool) else value}"
        for section, keys in to_dict(e).items()
        for key, value in keys.items()
        if value != default[section][key]
    ]
    return " ".join(["lightning-tfm", "fit", *map(shlex.quote, parts)])


def with_out(command: str, root: Path | str) -> str:
    """A command that looks for results in `root`, which is named where it is not the default."""
    return command if Path(root) == Path("results") else f"{command} --out {shlex.quote(str(root))}"
