"""The options shared by the commands that work on a study."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.cli.arguments import MODES, Parser
from lightning_tfm.config import Hardware, to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.gone import GONE
from lightning_tfm.queue.clusters import CLUSTERS, NotSubmitted
from lightning_tfm.queue.resources import Resources, check_accelerator
from lightning_tfm.runs.folder import read_json
from lightning_tfm.runs.outcome import STOPPED, say, say_how
from lightning_tfm.schema import Kept, read_kept
from lightning_tfm.study.command import with_out
from lightning_tfm.study.ratios import HOLD
from lightning_tfm.study.study_file import MOST_SEEDS, file_of, folder_of
from lightning_tfm.study.sweeps import SCALE, SearchFile, Sweep, is_search, read_search, read_sweep
from lightning_tfm.yaml_files import read_yaml

STORAGE = "postgresql+psycopg://… [a journal in the study's folder]"


def add_options(parser: Parser) -> None:
    """The options of a verb that runs workers."""
    parser.add_argument("--workers", type=int, default=0, help="runs at once; 0: one for each CPU, or GPU")
    parser.add_argument("--wandb", choices=MODES, default="off", help="mirror runs to W&B")
    group = parser.add_argument_group("workers", "Where workers run, and on which devices.")
    group.add_argument("--storage", default="", help=STORAGE)
    group.add_argument("--devices-per-run", type=int, default=0, help="processes of each run, each with its own device")
    group.add_argument("--runs-per-device", type=int, default=0, help="small runs that share a device")
    text = "where the workers run: here, or in jobs; none: print the command of a job, and end [local]"
    group.add_argument("--launcher", choices=["local", *CLUSTERS], help=text)
    group.add_argument(
        "--no-shared-files", action="store_true", help="workers on other machines do not share the --out folder"
    )
    for name, cluster in CLUSTERS.items():
        if is_dataclass(cluster):
            parser.add_fields(name, cluster)


def check_precisions(precisions: Iterable[str], resources: Resources) -> None:
    """Raise UserError where one needs a device that this machine lacks; a cluster's jobs find out themselves."""
    if resources.cluster is None:
        for precision in sorted(set(precisions)):
            check_accelerator(resources.hardware, precision)


def check_start(resources: Resources, folder: Path) -> None:
    """Raise UserError, before anything is written, for an invalid address of the storage, or one that is not the
    study's, and for a launcher that cannot start anything here."""
    from lightning_tfm.queue.storage import address_of_queue, find_storage

    find_storage(address_of_queue(resources.storage, folder), folder).check()
    if resources.cluster is not None:
        resources.cluster.check_here()


def read_sweep_file(asked: Mapping[str, Any]) -> Sweep | SearchFile:
    """The file of a table or of a search. Raises UserError also where a study is named."""
    path, root = asked["sweep"], Path(dict(asked["given"]).get("out") or "results")
    if not Path(path).exists() and (root / "studies" / path / "study.json").is_file():
        raise UserError(f"'{path}' is a study, not a sweep file: {with_out(f'lightning-tfm resume {path}', root)}")
    file = read_yaml(path)
    return read_search(file) if is_search(file) else read_sweep(file)


def check_table(asked: dict[str, Any], file: Sweep) -> None:
    """Raise UserError where the command line has an option of a search, or one seed where they are listed: it would
    decide nothing."""
    for option in ("sampler", "trials"):
        if asked[option]:
            raise UserError(f"--{option}={asked[option]}: {file.path} is a table: all its rows run, to their end")
    text = asked["seeds"]
    place = f"--seeds={text}" if text and text != "auto" else str(file.path) if file.seeds else ""
    for key, seed in dict(asked["given"]).items() if place else ():
        if key in ("seed", "training.seed") and seed is not None:
            raise UserError(f"--{key}={seed}: {place} lists the seeds, and a table's seeds are --seeds {seed}")


def numbers(text: str, option: str = "--seeds") -> list[int]:
    """Seeds that an option lists: 1,2,3 or 1-3 or a mixture. Raises UserError."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise UserError(
            f"{option}={text}: expected numbers such as 1,2,3 or 1-5{', or auto' if option == '--seeds' else ''}"
        )
    listed: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if (count := int(last or first) - int(first) + 1) > MOST_SEEDS:
            raise UserError(f"{option}={text}: {count:,} seeds; at most {MOST_SEEDS:,} are taken")
        listed += range(int(first), int(last or first) + 1)
    if len(set(listed)) < len(listed) or not listed:
        raise UserError(f"{option}={text}: a seed appears twice, or a range is empty")
    return listed


# --- with which options a study was last worked on: workers.json, which only `resume` reads ---
#
# What a study is, study.json says (looks.json and tuning.json beside it); workers.json says who works on it, and where.
# Earlier versions kept the whole command in command.json: only its options for workers are read.

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
    from lightning_tfm.queue.storage import plain  # with Optuna

    by_name = {key: options[key] for key in (*KEPT, *CLUSTERS) if key in options} | {"trainer": to_dict(hardware)}
    by_name |= {"storage": plain(options["storage"])}
    write_atomic(folder_of(root, name) / FILE, to_json(asdict(WorkerOptions(by_name, str(Path.cwd())))))


def go_back(parser: Parser, root: Path, name: str) -> None:
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


def _earlier(parser: Parser, folder: Path) -> WorkerOptions:
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
    folder = folder_of(root, name)
    there = folder.is_dir()
    try:
        yield
    except NotSubmitted:
        if not there and folder.is_dir():  # it is not where the jobs of --tune come first
            shutil.rmtree(folder)
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


# --- --scales 16,8: the rows of a sweep at several widths, each by the paper's ratios and as a separate study ---
#
# Cells are (row, scale, seed). In a sweep file the scales are the values of `miniature.width`, so that W&B's agents run
# them, too. The studies NAME-16, NAME-8… are what `scaling` compares.


def add_scales(parser: Parser) -> None:
    """The option."""
    about = "divisors of the paper's widths, e.g. 16,8: a study each by the paper's ratios, then `scaling` of them"
    group = next(group for group in parser._action_groups if group.title == "ratios")
    group.add_argument("--scales", metavar="WIDTH,…", help=about)


def scales_of(asked: dict[str, Any], sweep: Sweep) -> list[int]:
    """Those requested, else the file's, the smallest model first; none where it is one study. Raises UserError."""
    scales = numbers(asked["scales"], "--scales") if asked["scales"] else sweep.scales
    return sorted(scales, reverse=True)


def at_scale(sweep: Sweep, scales: Sequence[int]) -> list[str]:
    """Arguments of the study at its one scale, behind all others."""
    hold = [f"--{HOLD}=ratios"] * (not sweep.scales)  # a file with scales itself says what is held
    return [*(f"--{SCALE}={scale}" for scale in scales), *(hold if scales else ())]


def name_at(name: str, scales: Sequence[int]) -> str:
    """Of the study at its one scale."""
    return "-".join([name, *map(str, scales)])


def each(main: Callable[[str, Sequence[str]], int], verb: str, argv: Sequence[str], scales: Sequence[int]) -> int:
    """`main` at one scale after another: the worst exit code."""
    return max(main(verb, [*argv, f"--scales={scale}"]) for scale in scales)
