"""Lines that fit the terminal, and stay whole where another program reads them."""

import shutil
import sys
import textwrap


def columns() -> int | None:
    """Of the terminal that is printed to; None where it is not one."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None


def fitted(text: str, indent: int) -> str:
    """`text` with lines wider than the terminal continued below, indented by `indent` columns."""
    width = columns()
    if width is None:
        return text
    further = " " * min(indent, width // 2)
    lines = [
        textwrap.wrap(line, width, subsequent_indent=further, break_on_hyphens=False) or [""]
        for line in text.splitlines()
    ]
    return "\n".join(part for line in lines for part in line)
