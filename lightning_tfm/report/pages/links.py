"""From a page to the folders of its runs."""

import os
from collections.abc import Callable
from pathlib import Path

Link = Callable[[Path], str]
"""a run's folder -> its address as seen from the page, empty where it has none"""


def nowhere(run: Path) -> str:
    """Of a page that may be read anywhere."""
    return ""


def beside(page: Path, root: Path) -> Link:
    """Relative addresses, for a page that is in the results folder `root` beside the runs; else none."""
    folder = page.resolve().parent
    if root.resolve() not in (folder, *folder.parents):
        return nowhere

    def link(run: Path) -> str:
        there = run.resolve()
        return f"{Path(os.path.relpath(there, folder)).as_posix()}/" if there.is_dir() else ""

    return link
