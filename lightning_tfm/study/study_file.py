"""study.json: reading it, writing it, and what a study was before; the folder it lies in."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from lightning_tfm.atomic_io import locked, to_json, write_atomic
from lightning_tfm.config import Experiment
from lightning_tfm.config_validation import check_ranges
from lightning_tfm.errors import UserError
from lightning_tfm.schema import Flaw, Kept, make_from, with_control
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.search import Search
from lightning_tfm.study.settings import SMOKE_STEPS
from lightning_tfm.study.study import SCHEMA, Ablation, Study, fields_of

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class _Written(Kept):
    """What every study.json holds, whatever version wrote it."""

    schema: int


AnyStudy = TypeVar("AnyStudy", bound=Study)


def save(study: AnyStudy, root: Path) -> AnyStudy:
    """Write study.json, joined with what it held before, and return the joined study.

    Raises UserError if the study of that name was started with a different experiment, text, row or space.
    """
    path = file_of(root, study.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(".study.lock")):
        study = with_saved(study, root)
        write_atomic(path, to_json(study.to_plain()))
    return study


def amend(kind: type[AnyStudy], root: Path, name: str, change: Callable[[AnyStudy], AnyStudy]) -> AnyStudy:
    """Write study.json with `change` made to what it holds, and return it. Raises UserError as `load_as`."""
    path = check_exists(root, name)
    with locked(path.with_name(".study.lock")):
        study = change(load_as(kind, root, name))
        write_atomic(path, to_json(study.to_plain()))
    return study


def with_saved(study: AnyStudy, root: Path) -> AnyStudy:
    """`study` with what study.json already holds: what `save` would write. Raises UserError as `save` does."""
    path = file_of(root, study.name)
    return study.with_earlier(load_as(type(study), root, study.name), path) if path.exists() else study


def load(root: Path, name: str) -> Study:
    """The study as study.json holds it. Raises UserError where there is none or it cannot be read."""
    path = check_exists(root, name)
    try:
        plain = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # not JSON, not text, or nested without end
        raise UserError(f"{path}: not a study definition ({type(error).__name__}: {error})") from error
    study = from_plain(plain, path)
    if study.name != name:
        raise UserError(f"{path}: it defines the study '{study.name}': give the folder this name again")
    return study


def load_as(kind: type[AnyStudy], root: Path, name: str) -> AnyStudy:
    """`load`, for a study of one kind. Raises UserError also for one of the other kind."""
    study = load(root, name)
    if not isinstance(study, kind):
        raise UserError(
            f"{file_of(root, name)}: study '{name}' is a {study.KIND}, not a {kind.KIND}: name another one, or give a "
            f"new {kind.KIND} its own name with --name"
        )
    return study


def from_plain(plain: Any, where: Path | str) -> Study:
    """The study in the content of a study.json. Raises UserError."""
    try:
        if (schema := make_from(_Written, plain, parsed=True).schema) != SCHEMA:
            raise UserError(f"schema {schema}, this version reads {SCHEMA}")
        kind = Search if plain.get("kind") == Search.KIND else Ablation
        study = make_from(kind, fields_of(plain), parsed=True)
        for section in fields(study.base):
            check_ranges(getattr(study.base, section.name), f"base.{section.name}")
        if isinstance(study, Ablation):
            for row in study.every_row:
                study.written(row)
    except Flaw as flaw:
        raise UserError(f"{where}: not a study definition ({flaw})") from None
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if text := with_control(plain):
        raise UserError(f"{where}: {text!r} holds a control character: remove it")
    if isinstance(study, Ablation):
        if not study.rows:
            raise UserError(f"{where}: the study has no rows")
        if len(study.seeds) > MOST_SEEDS:
            raise UserError(f"{where}: {len(study.seeds):,} seeds; at most {MOST_SEEDS:,} are taken")
        for row in study.every_row:
            if ".." in (name := Path(row.name)).parts or name.is_absolute():
                raise UserError(f"{where}: the row {row.name!r} leads out of the study's folder: give it another name")
        for key, values in (("row", [row.name for row in study.rows]), ("seed", study.seeds)):
            if twice := [value for value, times in Counter(values).items() if times > 1]:
                raise UserError(f"{where}: the {key} '{twice[0]}' is there twice: remove one of them")
    return study


def check_exists(root: Path, name: str) -> Path:
    """Path of study.json. Raises UserError where there is none, naming the studies that are."""
    path = file_of(root, name)
    if not path.is_file():
        names = sorted(p.parent.name for p in (root / "studies").glob("*/study.json"))
        raise UserError(
            f"no study '{name}' in {root / 'studies'}; there {'are: ' + ', '.join(names) if names else 'is none'}"
        )
    return path


def file_of(root: Path, name: str) -> Path:
    """<root>/studies/<name>/study.json. Raises UserError for a name that is not a plain folder name."""
    return folder_of(root, name) / "study.json"


def folder_of(root: Path, name: str) -> Path:
    """<root>/studies/<name>. Raises UserError for a name that is not a plain folder name."""
    if not name or name != Path(name).name or name.startswith(".") or not name.isprintable():
        raise UserError(f"{name!r} is not a valid study name: it is also the name of the study's folder")
    return root / "studies" / name


def of_smoke_test(root: Path, base: Experiment) -> bool:
    """Whether a study of the results folder `root` is one of --smoke: a folder may have that name by chance."""
    return root.name == "smoke" and base.training.steps == SMOKE_STEPS


def link(study: Path, cell: Cell) -> None:
    """Write cells/<row>/<seed>.json in a study's folder, which names the run of the cell."""
    path = study / "cells" / cell.row / f"{cell.seed}.json"
    data = to_json({"row": cell.row, "seed": cell.seed, "training_hash": cell.training_hash})
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
