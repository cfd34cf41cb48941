"""With which options a study was last worked on: written by `sweep`, `tune`, `demo` and `resume`, read by `resume`.

What a study is, study.json says (looks.json and tuning.json beside it); workers.json holds who works on it, and where.
Earlier versions kept the whole command in command.json: only its options for workers are read.
"""

import os
import shlex
import shutil
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.config import Hardware, to_dict
from lightning_tfm.gone import GONE
from lightning_tfm.queue.clusters import CLUSTERS, NotSubmitted
from lightning_tfm.runs.folder import read_json
from lightning_tfm.runs.outcome import STOPPED, say, say_how
from lightning_tfm.schema import Kept, read_kept
from lightning_tfm.study.command import with_out
from lightning_tfm.study.study_file import file_of, folder_of

FILE, EARLIER = "workers.json", "command.json"
KEPT = "workers wandb storage devices_per_run runs_per_device launcher no_shared_files max_runs reference".split()
"""options that say who works and what is shown, by name; those of CLUSTERS come to them"""


@dataclass(frozen=True)
class WorkerOptions(Kept):
    """The content of workers.json."""

    options: dict[str, Any]
    """as parsed, `trainer` among them, without a database's password"""
    directory: str
    """where they were typed: paths of texts, and of your own classes, begin there"""


def remember(options: Mapping[str, Any], hardware: Hardware, root: Path, name: str) -> None:
    """Write the options into the study's folder."""
    from lightning_tfm.queue.storage import plain

    by_name = {key: options[key] for key in (*KEPT, *CLUSTERS) if key in options} | {"trainer": to_dict(hardware)}
    by_name |= {"storage": plain(options["storage"])}
    write_atomic(folder_of(root, name) / FILE, to_json(asdict(WorkerOptions(by_name, str(Path.cwd())))))


def go_back(parser: ArgumentParser, root: Path, name: str) -> None:
    """Make the options of a study's workers the defaults of `parser`, and go where they were typed."""
    folder = folder_of(root, name)
    file = read_kept(WorkerOptions, folder / FILE, "how a study was worked on; remove it and give the options again")
    file = file or _earlier(parser, folder)
    sections = ("trainer", *CLUSTERS)
    flat = {key: value for key, value in file.options.items() if key not in sections}
    for section in sections:
        flat |= {f"{section}.{key}": value for key, value in dict(file.options.get(section, {})).items()}
    for key in flat.keys() & GONE.keys():
        say(f"{name}: {key} was removed: {GONE[key]}")
    valid = {action.dest for action in parser._actions}
    parser.set_defaults(**{key: value for key, value in flat.items() if key in valid})
    if Path(file.directory).is_dir():
        os.chdir(file.directory)


def _earlier(parser: ArgumentParser, folder: Path) -> WorkerOptions:
    """What an earlier version's command.json says of workers; nothing where there is none."""
    plain: dict[str, Any] = read_json(folder / EARLIER) or {}
    typed = [str(word) for word in plain.get("arguments", [])]
    options = dict.fromkeys(word.partition("=")[0].removeprefix("--") for word in typed)
    options |= vars(parser.parse_known_args(["", *typed])[0])
    sections = ("trainer", *CLUSTERS)
    of_workers = {key: value for key, value in options.items() if key in KEPT or key.partition(".")[0] in sections}
    return WorkerOptions(of_workers, str(plain.get("directory", ".")))


@contextmanager
def resumable(root: Path, name: str, verb: str, argv: Sequence[str], jobs: bool = False) -> Iterator[None]:
    """Say how to resume where a signal ends the block, unless `jobs` of a cluster continue by themselves.

    The same command again, where study `name` is not defined yet. A study that the block began, and of which no job
    could be submitted, is removed.
    """
    there = folder_of(root, name).is_dir()
    try:
        yield
    except NotSubmitted:
        if not there:
            shutil.rmtree(folder_of(root, name))
        raise
    except (KeyboardInterrupt, SystemExit) as stop:
        if not jobs and (isinstance(stop, KeyboardInterrupt) or stop.code in STOPPED):
            defined = file_of(root, name).is_file()
            again = with_out(f"lightning-tfm resume {shlex.quote(name)}", root)
            say_how(again if defined else command_line(verb, argv))
        raise


def command_line(verb: str, argv: Sequence[str]) -> str:
    """As typed, the address of --storage in the form that may be shown."""
    from lightning_tfm.queue.storage import plain

    words = list(argv)
    for i, word in enumerate(words):
        if word.startswith("--storage="):
            words[i] = "--storage=" + plain(word.partition("=")[2])
        elif word == "--storage" and i + 1 < len(words):
            words[i + 1] = plain(words[i + 1])
    return shlex.join(["lightning-tfm", verb, *words])
