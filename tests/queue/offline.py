"""W&B's offline files, read with the program behind `wandb leet inspect`, without a second of Python before it."""

import json
import subprocess
from pathlib import Path

from wandb.util import get_core_path


def read_back(folder: Path) -> dict[str, list[dict]]:
    """W&B run id -> its history, all offline folders of that run together."""
    return {
        run: [item["history"]["item"] for item in items if item["type"] == "history"]
        for run, items in read_all(folder).items()
    }


def read_all(folder: Path) -> dict[str, list[dict]]:
    """W&B run id -> all that its files hold."""
    found: dict[str, list[dict]] = {}
    for record in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")):
        command = [get_core_path(), "leet", "inspect", "--no-observability", "--json"]
        command += ["--run-file", str(record), str(record.parents[1])]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        found.setdefault(record.stem.removeprefix("run-"), []).extend(json.loads(line) for line in lines)
    return found
