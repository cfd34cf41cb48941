"""What a study is: a base, rows and seeds, frozen in study.json, and its cells as runs."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, from_dict, to_dict, training_hash
from lightning_tfm.durable import locked, to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import AttentionPairs, training_flops
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints, Paper, Row, apply, differences, run_identity

SCHEMA = 1


@dataclass(frozen=True)
class Definition:
    """An ablation: every row at every seed over one base. Rows and seeds may grow, nothing else may change."""

    name: str
    base: Experiment
    """at the paper's scale, without a row"""
    rows: list[Row]
    seeds: list[int]
    prints: Fingerprints
    V: int
    """pieces of the vocabulary"""
    store: str
    """name of the prepared data under <root>/data"""

    def cells(self) -> list[Cell]:
        """All cells, in table order. Raises UserError where a row's sizes do not fit the miniature."""
        return [self.cell(row, seed) for row in self.rows for seed in self.seeds]

    def cell(self, row: Row, seed: int) -> Cell:
        identity = run_identity(self.base, row, seed, self.prints.train)
        return Cell(
            row.name, seed, training_hash(identity), predicted_cost(apply(self.base, row, seed).scaled(), self.V)
        )


def predicted_cost(exact: Experiment, V: int) -> float:
    """Training FLOPs of a run if every step is full and a sentence has 25 pieces on a side, for the order of runs."""
    tokens, length = exact.training.tokens, 25
    pairs = AttentionPairs(tokens * length, tokens * length, tokens * length)
    return float(exact.training.steps * training_flops(exact.model, V, tokens, tokens, pairs))


def save(study: Definition, root: Path) -> Definition:
    """Write study.json, joined with what it held before, and return the joined definition.

    Raises UserError if the study of that name was started over another experiment, text or row.
    """
    path = file_of(root, study.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(".study.lock")):
        study = joined(study, root)
        write_atomic(path, to_json(to_plain(study)))
    return study


def joined(study: Definition, root: Path) -> Definition:
    """`study` with what study.json holds already: what `save` would write. Raises UserError as `save` does."""
    path = file_of(root, study.name)
    return _joined(load(root, study.name), study, path) if path.exists() else study


def load(root: Path, name: str) -> Definition:
    """The study as study.json holds it. Raises UserError where there is none or it cannot be read."""
    path = check_exists(root, name)
    try:
        plain = json.loads(path.read_bytes())
        if "kind" in plain:
            raise UserError(
                f"{path}: study '{name}' is a search, no table; give the table a name of its own with --name"
            )
        return from_plain(plain, path)
    except (json.JSONDecodeError, TypeError) as error:
        raise UserError(f"{path}: not a study definition ({type(error).__name__}: {error})") from error


def check_exists(root: Path, name: str) -> Path:
    """Path of study.json. Raises UserError where there is none, naming the studies that are."""
    path = file_of(root, name)
    if not path.is_file():
        found = sorted(p.parent.name for p in (root / "studies").glob("*/study.json"))
        raise UserError(
            f"no study '{name}' in {root / 'studies'}; there {'are: ' + ', '.join(found) if found else 'is none'}"
        )
    return path


def from_plain(plain: dict[str, Any], path: Path | str) -> Definition:
    """The study in the content of a study.json. Raises UserError."""
    try:
        if plain["schema"] != SCHEMA:
            raise UserError(f"{path}: schema {plain['schema']}, this version reads {SCHEMA}")
        rows = [Row(**(row | {"paper": Paper(**row["paper"])})) for row in plain["rows"]]
        base, prints = from_dict(Experiment, plain["base"]), Fingerprints(**plain["fingerprints"])
        return Definition(plain["name"], base, rows, plain["seeds"], prints, plain["V"], plain["store"])
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: not a study definition ({type(error).__name__}: {error})") from error


def file_of(root: Path, name: str) -> Path:
    """<root>/studies/<name>/study.json. Raises UserError for a name that is no plain folder name."""
    if not name or name != Path(name).name or name.startswith("."):
        raise UserError(f"'{name}' is not a valid study name: it is also the name of the study's folder")
    return root / "studies" / name / "study.json"


def to_plain(study: Definition) -> dict[str, Any]:
    """The content of study.json."""
    return {
        "schema": SCHEMA,
        "name": study.name,
        "base": to_dict(study.base),
        "rows": [asdict(row) for row in study.rows],
        "seeds": study.seeds,
        "fingerprints": asdict(study.prints),
        "V": study.V,
        "store": study.store,
    }


def _joined(old: Definition, new: Definition, path: Path) -> Definition:
    before = to_dict(old.base) | {"fingerprints": asdict(old.prints)}
    found = differences(before, to_dict(new.base) | {"fingerprints": asdict(new.prints)}, "the study has")
    changes = {row.name: row.change for row in old.rows}
    found += [
        f"row '{r.name}' changes {r.change}, the study has {changes[r.name]}"
        for r in new.rows
        if r.name in changes and changes[r.name] != r.change
    ]
    if found:
        raise UserError(
            f"{path} was started over another experiment ({'; '.join(found)}): "
            "give this one a name of its own with --name, or remove that folder"
        )
    rows = _union(old.rows, new.rows, key=lambda row: row.name)
    return replace(new, rows=rows, seeds=_union(old.seeds, new.seeds, key=lambda seed: seed))


def _union(old: Iterable[Any], new: Iterable[Any], key: Any) -> list[Any]:
    return list(({key(x): x for x in old} | {key(x): x for x in new}).values())
