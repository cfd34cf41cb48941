"""Requested output files: written, named, and never the loss of what was computed before them."""

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.atomic_io import write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural

if TYPE_CHECKING:
    from lightning_tfm.report.build import Report
    from lightning_tfm.report.render.every_format import Document
    from lightning_tfm.report.searches.trials import SearchReport
    from lightning_tfm.study.study import Study


def write_to(path: Path, content: str | bytes) -> None:
    """Write a requested file, and name it. Raises UserError where it is a folder."""
    if path.is_dir():
        raise UserError(f"--to={path}: is a folder; name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UserError(f"{path}: {error.strerror}: name a file of your own with --to") from None
    print(path)


def deliver(said: "Document | str", options: dict[str, Any], page: Path) -> int:
    """An analysis, or its text, as --format and --to request it: printed, or written; a page to `page` unless they say
    otherwise."""
    kind, to = options["format"], options["to"]
    content = said if isinstance(said, str) else _rendered(said, kind)
    if to == "-" or (to is None and kind != "html"):
        print(content, end="")
    else:
        write_to(Path(to) if to else page, content)
    return 0


def _rendered(analysis: "Document", kind: str) -> str:
    from lightning_tfm.report.render.every_format import render  # with jinja2, which a text does without

    return render(analysis, kind)


def say_hidden(study: "Study", root: Path) -> None:
    """Name the rows that are hidden."""
    from lightning_tfm.study.command import with_out

    if hidden := [row.name for row in getattr(study, "hidden", [])]:
        show = with_out(f"lightning-tfm study show {study.name} ROW", root)
        print(f"{study.name}: {plural(len(hidden), 'row')} hidden: {', '.join(hidden)} ({show})", file=sys.stderr)


def write_page(name: str, root: Path, make: "Callable[[], Report | SearchReport]", file: str = "report.html") -> bool:
    """Write a study's page and name it; where that fails, say why. Its runs and records are safe by then."""
    from lightning_tfm.report.pages.provenance import beside
    from lightning_tfm.study.command import with_out
    from lightning_tfm.study.study_file import folder_of

    path = folder_of(root, name) / file
    try:
        write_atomic(path, make().render("html", link=beside(path, root)).encode())
    except Exception as error:  # whatever the error, it must not look like a failed training
        again = with_out(f"lightning-tfm report {name}", root)
        print(f"{path} could not be written: {type(error).__name__}: {error}; to try again: {again}", file=sys.stderr)
        return False
    print(path)
    return True
