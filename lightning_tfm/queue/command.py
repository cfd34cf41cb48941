"""How a study was started: written down by `sweep`, `tune` and `demo`, read by `resume`.

command.json in a study's folder holds the arguments, the directory in which they were typed, and a fingerprint of what
each file held (except comments).
"""

import hashlib
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural
from lightning_tfm.queue.slurm import NotSubmitted
from lightning_tfm.runs.folder import read_json
from lightning_tfm.runs.outcome import STOPPED, say_how
from lightning_tfm.schema import Kept, read_kept
from lightning_tfm.study.command import with_out
from lightning_tfm.study.file_kind import kind_of
from lightning_tfm.study.row_tuning import read_tuning
from lightning_tfm.study.rows import TABLE3, Row, all_rows, find_row, how_to_change, other_rows
from lightning_tfm.study.settings import Settings
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.study.study_file import check_exists, folder_of
from lightning_tfm.study.sweeps import read_sweep
from lightning_tfm.yaml_files import FOLDERS, find_file, read_yaml, shipped

FILE = "command.json"


@dataclass(frozen=True)
class Command(Kept):
    """How a study was started."""

    verb: str
    arguments: list[str]
    """without a database's password"""
    directory: str
    """where it was typed"""
    files: dict[str, str]
    """YAML file, as named -> fingerprint of its content"""

    @property
    def typed(self) -> str:
        return shlex.join(["lightning-tfm", self.verb, *self.arguments])

    def place(self, name: str) -> Path:
        """Where the files are that study `name` was started with, unchanged. Raises UserError where they are not."""
        there, here = Path(self.directory), Path.cwd()
        places = [there, here] if there.is_dir() else [here]
        faults = {place: self._faults(place) for place in places}
        for place, found in faults.items():
            if not found:
                return place
        raise UserError(
            f"study '{name}' cannot be resumed as it was started ({self.typed}): {'; '.join(faults[places[0]])}. "
            "Put them back, or start a study under another name with their present content: --name"
        )

    def _faults(self, place: Path) -> list[str]:
        found = []
        with chdir(place):
            for file, content in self.files.items():
                try:
                    changed = fingerprint(file) != content
                    found += [f"{find_file(file)} has changed since"] * changed
                except UserError:
                    found.append(f"{file} no longer exists (looked for in {place})")
        return found


def fingerprint(file: str) -> str:
    content = json.dumps(read_yaml(file).values, sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def command_of(verb: str, argv: Sequence[str], sweep: Path, settings: Settings) -> Command:
    """The command that is being run; `sweep` is its sweep file."""
    beside = sweep.with_name(f"{sweep.stem}.study.yaml")
    rows = (row.where.rpartition(":")[0] for row in settings.rows.values())
    paths = [str(sweep), *[str(beside)] * beside.is_file(), *settings.files, *rows]
    names = dict.fromkeys(_as_shipped(path) for path in paths)
    return Command(verb, without_password(argv), str(Path.cwd()), {name: fingerprint(name) for name in names})


def recorded(root: Path, name: str) -> Command:
    """How a study was started. Raises UserError where that was not written down."""
    path = folder_of(root, name) / FILE
    if command := read_kept(Command, path, "how a study was started; type the command that started it again"):
        return command
    parent = name.removesuffix("-tuning")
    if parent != name and (folder_of(root, parent) / FILE).is_file():
        again = with_out(f"lightning-tfm resume {parent}", root)
        raise UserError(f"'{name}' belongs to the study '{parent}': {again}")
    check_exists(root, name)
    raise UserError(
        f"{path} is missing: this study was started by a version that did not write down how, or came without it; "
        "type the command that started it again (finished runs are not repeated), and it will be written"
    )


def remember(command: Command, root: Path, name: str) -> None:
    """Write the command into the study's folder."""
    folder = folder_of(root, name)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / FILE, to_json(asdict(command)))


def rows_in_file(root: Path, name: str) -> tuple[str, dict[str, Row]] | None:
    """The sweep file that a table was last started from and the rows it has now; None where it no longer exists."""
    plain = read_json(folder_of(root, name) / FILE) or {}
    try:
        files = [file for file in plain["files"] if file != TABLE3]
        paths = [str(place) if (place := Path(plain["directory"], file)).is_file() else file for file in files]
        more = [path for path in paths[1:] if kind_of(read_yaml(path).values) == "rows"]
        sweep, rows = read_sweep(paths[0]), all_rows(more)
        return str(sweep.path), {row.name: row for row in sweep.crossed([find_row(rows, row) for row in sweep.rows])}
    except (IndexError, KeyError, UserError):
        return None


def say_kept(study: Study, root: Path) -> None:
    """Name the rows that a table keeps though the sweep file lacks or changes them, and those that are hidden."""
    found = rows_in_file(root, study.name)
    if found and isinstance(study, Ablation) and read_tuning(folder_of(root, study.name)) is None:
        for row, changed in other_rows([row.on(study.base) for row in found[1].values()], study.rows).items():
            where, how = found[1][row].where, how_to_change(study.name, row, root)
            print(f"{where} differs from study '{study.name}': {changed}: {how}", file=sys.stderr)
    kept = [row.name for row in getattr(study, "rows", []) if found and row.name not in found[1]]
    if found and kept:
        hide = with_out(f"lightning-tfm study hide {study.name} {shlex.quote(kept[0])}", root)
        print(
            f"{study.name}: kept, though {found[0]} does not name {'them' if kept[1:] else 'it'}: {', '.join(kept)} "
            f"({hide})",
            file=sys.stderr,
        )
    if hidden := [row.name for row in getattr(study, "hidden", [])]:
        show = with_out(f"lightning-tfm study show {study.name} ROW", root)
        print(f"{study.name}: {plural(len(hidden), 'row')} hidden: {', '.join(hidden)} ({show})", file=sys.stderr)


@contextmanager
def going_on(command: Command, root: Path, name: str, jobs: bool) -> Iterator[None]:
    """Say how to resume where a signal ends the block, unless `jobs` of a cluster continue by themselves.

    A study that the block began, and of which no job could be submitted, is removed.
    """
    there = folder_of(root, name).is_dir()
    try:
        yield
    except NotSubmitted:
        if not there:
            shutil.rmtree(folder_of(root, name))
        raise
    except (KeyboardInterrupt, SystemExit) as stop:
        if jobs:
            raise
        if isinstance(stop, KeyboardInterrupt) or stop.code in STOPPED:
            known = (folder_of(root, name) / FILE).is_file()
            resume = ["lightning-tfm", "resume", name, *([] if str(root) == "results" else ["--out", str(root)])]
            say_how(shlex.join(resume) if known else command.typed)
        raise


def _as_shipped(path: str) -> str:
    """experiments/NAME for a shipped file, which is elsewhere on another machine."""
    for folder in FOLDERS:
        if Path(path).parent == shipped(folder):
            return f"{folder}/{Path(path).name}"
    return path


def without_password(argv: Sequence[str]) -> list[str]:
    """`argv` with the address of --storage in the form that may be shown and kept."""
    found = list(argv)
    for i, token in enumerate(found):
        if token.startswith("--storage="):
            found[i] = "--storage=" + _plain(token.partition("=")[2])
        elif token == "--storage" and i + 1 < len(found):
            found[i + 1] = _plain(found[i + 1])
    return found


def _plain(address: str) -> str:
    from lightning_tfm.queue.storages.backends import plain

    return plain(address)
