"""The names of formats, the same for every verb, and the options of a table in LaTeX."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import Parser
from lightning_tfm.errors import UserError, nearest

if TYPE_CHECKING:
    from lightning_tfm.report.tables.paper_table import Layout

OF_TABLES = ("text", "markdown", "csv", "json", "latex")
OF_REPORTS = ("html", "markdown", "csv", "json", "latex")
OF_ANALYSES = ("text", "markdown", "csv", "json", "html", "latex")
ALIASES = {"md": "markdown", "tex": "latex", "txt": "text", "htm": "html"}
"""what they are called elsewhere, and what some verbs once called them"""
TESTS = ("verdict", "p", "none")
"""latex.TESTS, without importing it"""


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
