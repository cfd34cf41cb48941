"""Tables of cases that read better as a text file than as Python."""

import re
from pathlib import Path


def read_tables(path: Path) -> dict[str, list[list[str]]]:
    """Of each part (`# --- name: what it is ---`) the cells of its lines, parted by " | "; \\n is a new line."""
    found: dict[str, list[list[str]]] = {}
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        if head := re.match(r"# --- ([\w ]+): ", line):
            part = found.setdefault(head[1], [])
        elif not line.startswith("#"):
            part.append(line.replace("\\n", "\n").split(" | "))
    return found
