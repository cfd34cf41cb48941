"""Tables on the terminal, one JSON and one Markdown file for each result."""

import json
import sys
import time
from pathlib import Path
from typing import Any

HEAD = ["contestant", "median", "min–max", "ratio", "peak MiB", "noisy turns"]


def line(row: dict[str, Any]) -> list[str]:
    ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
    spread = f"{row['least']:.4g}–{row['most']:.4g}"
    return [row["name"], f"{row['median']:.4g}", spread, ratio, f"{row['peak_MiB']}", f"{row['noisy']}/{row['turns']}"]


def markdown(title: str, unit: str, base: str, rows: list[dict[str, Any]], notes: list[str]) -> str:
    head = [unit if name == "median" else f"ratio to {base}" if name == "ratio" else name for name in HEAD]
    lines = [f"## {title}", "", *_table(head, [line(row) for row in rows]), "", *[f"- {note}" for note in notes], ""]
    return "\n".join(lines)


def _table(head: list[str], body: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body)]


def write(name: str, text: str, record: dict[str, Any], folder: Path) -> None:
    """Print `text` and write `<folder>/<name>.md` and `.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"date": time.strftime("%Y-%m-%d %H:%M"), **record}
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    machine = record["machine"]
    commit = machine["git"]["commit"][:12] + (" with changes" if machine["git"]["changed"] else "")
    versions = ", ".join(f"{key} {value}" for key, value in machine["versions"].items() if value != "not installed")
    where = f"{record['date']}, {machine['cpu']}, {machine['threads']} threads, load {machine['load']:.1f}"
    (folder / f"{name}.md").write_text(f"{text}\n{where}; commit {commit}; {versions}\n")
    print(text)
    print(f"-> {folder / name}.md, .json", file=sys.stderr)
