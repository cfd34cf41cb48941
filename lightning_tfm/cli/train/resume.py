"""`resume`: resume a study by its name, as it was started (queue/command.py keeps how).

Resuming equals typing the same command again in the same place, so that both find the same study.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import Parser, make_parser, parse_plain
from lightning_tfm.cli.study_options import add_options
from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.gone import GONE
from lightning_tfm.queue.command import recorded, without_password
from lightning_tfm.study.settings import SECTIONS

FIXED = [
    "--name",
    "--seeds",
    "--first-seeds",
    "--max-seeds",
    "--tune",
    "--tune-seeds",
    "--sampler",
    "--trials",
    "--scales",
]
FIXED += ["--config", "--rows", "--row", "--seed"]
"""options that define a study"""


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Resume a study as it was started: resume STUDY. What is finished stays finished."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("study", help="name of the study under <out>/studies")
    parser.add_argument("--max-runs", type=int, help="with --seeds auto: stop before more runs than this in all")
    add_options(parser)
    parser.add_fields("trainer", Hardware)
    _check_fixed(argv)
    more = _given(parser, argv)
    options = parse_plain(parser, argv)
    root, name = Path(options["out"]).resolve(), options["study"]
    command = recorded(root, name)
    directory = command.place(name)
    arguments = _without_gone(name, command.arguments)
    again = _without(arguments, {option.partition("=")[0] for option in more if "=" in option})
    kept = [word for word in again if not word.startswith("--out=")]
    print(f"{name}: {shlex.join(['lightning-tfm', command.verb, *kept, *without_password(more)])}", file=sys.stderr)
    os.chdir(directory)
    from lightning_tfm.cli.train import demo, sweep, tune

    start = {"demo": demo.main, "sweep": sweep.main, "tune": tune.main}[command.verb]
    return start(command.verb, [*kept, *more, f"--out={root}"])


def _without_gone(name: str, arguments: Sequence[str]) -> list[str]:
    """`arguments` less options of hardware that are gone, each in a line: they never decided what a study is."""
    keys = [word.partition("=")[0].removeprefix("--") for word in arguments]
    gone = [key for key in keys if key.startswith(("trainer.", "slurm.")) and key in GONE]
    for key in gone:
        print(f"{name}: {key} was removed: {GONE[key]}", file=sys.stderr)
    return _without(arguments, {f"--{key}" for key in gone})


def _check_fixed(argv: Sequence[str]) -> None:
    """Raise UserError for an option of the study's definition."""
    for token in argv:
        key = token.partition("=")[0]
        section = key.removeprefix("--").partition(".")[0]
        if key in FIXED or (section in SECTIONS and section != "trainer"):
            raise UserError(
                f"resume {token}: {key} belongs to what the study is, which stays as it was started; workers, storage, "
                "launcher and --trainer.… may be given. To add rows, seeds or trials, type the command that started it "
                f"with them; for another experiment, give it its own name with --name"
            )


def _given(parser: Parser, argv: Sequence[str]) -> list[str]:
    """The options of `argv` that the study's own command should have as well: all but --out."""
    before = {action.dest: action.default for action in parser._actions}
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    parser.check_options(argv)
    found = vars(parser.parse_args(list(argv)))
    more = []
    for action in parser._actions:
        if action.dest in found and action.option_strings and action.dest != "out":
            value = found[action.dest]
            more.append(action.option_strings[0] + ("" if value is True and action.nargs == 0 else f"={value}"))
        action.default = before[action.dest]
    return more


def _without(arguments: Sequence[str], options: set[str]) -> list[str]:
    """`arguments` less these options, which take a value: behind a "=", or as the next word."""
    kept, following = [], iter(arguments)
    for word in following:
        if word in options:
            next(following, None)
        elif word.partition("=")[0] not in options:
            kept.append(word)
    return kept
