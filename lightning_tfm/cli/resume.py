"""`resume`: go on with a study by its name, as it was started; and what `sweep`, `tune` and `demo` write down for it.

command.json in a study's folder holds the arguments, the directory in which they were typed, and a fingerprint of what
each file held (comments aside). Resuming is typing the same command there once more, so that both find the same study.
"""

import argparse
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from lightning_tfm.cli.arguments import Parser, make_parser, parse_plain
from lightning_tfm.cli.study import add_options
from lightning_tfm.config import Hardware
from lightning_tfm.durable import to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.runs.outcome import STOPPED
from lightning_tfm.study.settings import SECTIONS, Settings
from lightning_tfm.study.study import check_exists, folder_of
from lightning_tfm.yaml_files import FOLDERS, find_file, read_yaml, shipped

FILE = "command.json"
FIXED = ["--name", "--seeds", "--first-seeds", "--max-seeds", "--tune", "--tune-seeds", "--sampler", "--trials"]
FIXED += ["--config", "--rows", "--row", "--seed"]
"""options that define a study"""


@dataclass(frozen=True)
class Command:
    """How a study was started."""

    verb: str
    arguments: list[str]
    """without a database's password"""
    directory: str
    """where it was typed"""
    files: dict[str, str]
    """YAML file, as it was named -> fingerprint of its content"""

    @property
    def typed(self) -> str:
        return shlex.join(["lightning-tfm", self.verb, *self.arguments])


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Go on with a study as it was started: resume STUDY. What is finished stays finished."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("study", help="name of the study under <out>/studies")
    parser.add_argument("--max-runs", type=int, help="with --seeds auto: stop before more runs than this in all")
    add_options(parser)
    parser.add_fields("trainer", Hardware)
    _check_fixed(argv)
    more = _given(parser, argv)
    options = parse_plain(parser, argv)
    root, name = Path(options["out"]).resolve(), options["study"]
    command = _recorded(root, name)
    directory = _directory(command, name)
    again = _without(command.arguments, {option.partition("=")[0] for option in more if "=" in option})
    kept = [word for word in again if not word.startswith("--out=")]
    print(f"{name}: {shlex.join(['lightning-tfm', command.verb, *kept, *without_password(more)])}", file=sys.stderr)
    os.chdir(directory)
    from lightning_tfm.cli import demo, sweep, tune

    start = {"demo": demo.main, "sweep": sweep.main, "tune": tune.main}[command.verb]
    return start(command.verb, [*kept, *more, f"--out={root}"])


def _check_fixed(argv: Sequence[str]) -> None:
    """Raise UserError for an option of the study's definition."""
    for token in argv:
        key = token.partition("=")[0]
        section = key.removeprefix("--").partition(".")[0]
        if key in FIXED or (section in SECTIONS and section != "trainer"):
            raise UserError(
                f"resume {token}: {key} belongs to what the study is, which stays as it was started; workers, storage, "
                "launcher and --trainer.… may be given. To add rows, seeds or trials, type the command that started it "
                f"with them; for another experiment, give it a name of its own with --name"
            )


def _given(parser: Parser, argv: Sequence[str]) -> list[str]:
    """The options of `argv` that the study's own command is to have as well: all but --out."""
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


def _recorded(root: Path, name: str) -> Command:
    path = folder_of(root, name) / FILE
    parent = name.removesuffix("-tuning")
    if not path.is_file() and parent != name and (folder_of(root, parent) / FILE).is_file():
        raise UserError(f"'{name}' belongs to the study '{parent}': lightning-tfm resume {parent}")
    if not path.is_file():
        check_exists(root, name)
        raise UserError(
            f"{path} is missing: this study was started by a version that did not write down how, or came without it; "
            "type the command that started it once more (finished runs are not repeated), and it will be written"
        )
    try:
        return Command(**json.loads(path.read_bytes()))
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged ({error}); type the command that started the study once more") from None


def _directory(command: Command, name: str) -> Path:
    """Where the files are that the command names, as they were. Raises UserError where they are not."""
    here = Path.cwd()
    places = [Path(command.directory), here] if Path(command.directory).is_dir() else [here]
    faults = [_faults(command, place) for place in places]
    for place, fault in zip(places, faults, strict=True):
        if not fault:
            return place
    raise UserError(
        f"study '{name}' cannot be resumed as it was started ({command.typed}): {'; '.join(faults[0])}. Put them back, "
        "or start a study of another name with what they are now: --name"
    )


def _faults(command: Command, place: Path) -> list[str]:
    before, found = Path.cwd(), []
    os.chdir(place)
    try:
        for file, content in command.files.items():
            try:
                now = _fingerprint(file)
            except UserError:
                found.append(f"{file} is not there any more (looked for in {place})")
                continue
            if now != content:
                found.append(f"{find_file(file)} has changed since")
    finally:
        os.chdir(before)
    return found


def _fingerprint(file: str) -> str:
    content = json.dumps(read_yaml(file).values, sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


# --- what is written down ---


def command_of(verb: str, argv: Sequence[str], sweep: Path, settings: Settings) -> Command:
    """The command that is being run; `sweep` is its sweep file."""
    beside = sweep.with_name(f"{sweep.stem}.study.yaml")
    rows = (row.where.rpartition(":")[0] for row in settings.rows.values())
    paths = [str(sweep), *[str(beside)] * beside.is_file(), *settings.files, *rows]
    names = dict.fromkeys(_as_shipped(path) for path in paths)
    return Command(verb, without_password(argv), str(Path.cwd()), {name: _fingerprint(name) for name in names})


def remember(command: Command, root: Path, name: str) -> None:
    """Write the command into the study's folder."""
    folder = folder_of(root, name)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / FILE, to_json(asdict(command)))


@contextmanager
def going_on(command: Command, root: Path, name: str) -> Iterator[None]:
    """Say how to go on where a signal ends the block."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, KeyboardInterrupt) or stop.code in STOPPED:
            known = (folder_of(root, name) / FILE).is_file()
            resume = ["lightning-tfm", "resume", name, *([] if str(root) == "results" else ["--out", str(root)])]
            say_how(shlex.join(resume) if known else command.typed)
        raise


def say_how(command: str) -> None:
    """The last line of what a signal stopped."""
    print(f"stopped; to go on: {command}", file=sys.stderr)


def _as_shipped(path: str) -> str:
    """experiments/NAME for a shipped file, which lies elsewhere on another machine."""
    for folder in FOLDERS:
        if Path(path).parent == shipped(folder):
            return f"{folder}/{Path(path).name}"
    return path


def without_password(argv: Sequence[str]) -> list[str]:
    """`argv` with the address of --storage as it may be shown and kept."""
    found = list(argv)
    for i, token in enumerate(found):
        if token.startswith("--storage="):
            found[i] = "--storage=" + _plain(token.partition("=")[2])
        elif token == "--storage" and i + 1 < len(found):
            found[i + 1] = _plain(found[i + 1])
    return found


def _plain(address: str) -> str:
    from lightning_tfm.queue.storage import plain

    return plain(address)
