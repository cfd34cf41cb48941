"""W&B's offline files, read with W&B's own tool."""

import json
import subprocess
import sys
from pathlib import Path


def read_back(folder: Path) -> dict[str, list[dict]]:
    """W&B run id -> its history, all offline folders of that run together."""
    found: dict[str, list[dict]] = {}
    for record in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")):
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(record)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        items = [json.loads(line) for line in lines]
        history = [item["history"]["item"] for item in items if item["type"] == "history"]
        found.setdefault(record.stem.removeprefix("run-"), []).extend(history)
    return found
