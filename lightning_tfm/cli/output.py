"""Requested output: its formats, the same for every command, with the options of a table in LaTeX; files are written,
named, and never the loss of what was computed before them."""

import argparse
import errno
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.atomic_io import write_atomic
from lightning_tfm.cli.arguments import Parser
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.plural_words import plural

if TYPE_CHECKING:
    from lightning_tfm.report.render.every_format import Document
    from lightning_tfm.report.search_report import SearchReport
    from lightning_tfm.report.study_report import Report
    from lightning_tfm.report.tables.paper_table import Layout
    from lightning_tfm.study.study import Study

OF_TABLES = ("text", "markdown", "csv", "json", "latex")
OF_REPORTS = ("html", "markdown", "csv", "json", "latex")
OF_ANALYSES = ("text", "markdown", "csv", "json", "html", "latex")
ALIASES = {"md": "markdown", "tex": "latex", "txt": "text", "htm": "html"}
"""what they are called elsewhere, and what some commands once called them"""
TESTS = ("verdict", "p", "none")
"""paper_table.TESTS, without importing it"""


def add_format(parser: Parser, choices: tuple[str, ...]) -> None:
    """--format: one of `choices`, the first unless it is given."""
    parser.add_argument(
        "--format",
        type=partial(_check_choice, choices),
        default=choices[0],
        metavar=f"{{{','.join(choices)}}}",
        help="format of the output",
    )


def _check_choice(choices: tuple[str, ...], word: str) -> str:
    if word in choices:
        return word
    if ALIASES.get(word) in choices:
        raise argparse.ArgumentTypeError(f"{word!r}: it is called {ALIASES[word]}: --format {ALIASES[word]}")
    raise argparse.ArgumentTypeError(f"{word!r}: {nearest(word, choices)}")


def add_layout(parser: Parser, tests: bool) -> None:
    """The options of --format latex. `tests`: whether there are any to show."""
    if tests:
        parser.add_argument("--tests", choices=TESTS, help="latex: verdicts as marks, p-values, or neither [verdict]")
    parser.add_argument("--no-paper", action="store_true", help="latex: without the paper's numbers")
    parser.add_argument("--caption", help="latex: the caption [made from the study]")
    parser.add_argument("--label", help="latex: the label [tab:STUDY]")


def check_layout(options: dict[str, Any]) -> None:
    """Raise UserError where an option of LaTeX is given to another format."""
    given = [name for name in ("tests", "no_paper", "caption", "label") if options.get(name)]
    if given and options["format"] != "latex":
        name = given[0].replace("_", "-")
        raise UserError(f"--{name}: belongs to --format latex, not to --format {options['format']}")


def layout(options: dict[str, Any]) -> "Layout":
    """What the options ask for."""
    from lightning_tfm.report.tables.paper_table import Layout

    return Layout(
        tests=options.get("tests") or "verdict",
        paper=not options["no_paper"],
        caption=options["caption"] or "",
        label=options["label"] or "",
    )


def write_to(path: Path, content: str | bytes) -> None:
    """Write a requested file, and name it; a device or a pipe is written to, not replaced. Raises UserError where it is
    a folder."""
    if path.is_dir():
        raise UserError(f"--to={path}: is a folder; name a file")
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path.resolve(), data)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UserError(f"{path}: {error.strerror}: name a file of your own with --to") from None
    print(path)


def write_pictures(folder: Path, pictures: Mapping[str, str | bytes]) -> None:
    """Into the folder of --figures, name -> content. Raises UserError where it is a file."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--figures={folder}: is a file; name a folder, which is made if missing")
    for name, content in pictures.items():
        write_to(folder / name, content)


def deliver(result: "Document | str", options: dict[str, Any], page: Path) -> int:
    """An analysis, or its text, as --format and --to request it: printed, or written; a page to `page` unless they say
    otherwise."""
    kind, to = options["format"], options["to"]
    if isinstance(result, str):
        content = result
    else:
        from lightning_tfm.report.render.every_format import render  # with jinja2, which a text does without

        content = render(result, kind)
    if to == "-" or (to is None and kind != "html"):
        print(content, end="")
    else:
        write_to(Path(to) if to else page, content)
    return 0


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
