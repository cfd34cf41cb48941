"""The versions of Lightning's CSVLogger (metrics.csv beside hparams.yaml) as runs. Nothing in them is constructed."""

import csv
import re
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import yaml

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.judging.scores import Aim, Scores, number, printable

FRESH = 60.0
"""seconds since the last line of a run that may still be running"""
LARGEST = 1 << 20
"""bytes of a file of hparams"""


def read_logs(folder: Path, aims: Sequence[Aim], row: str, seed: str, best: Collection[str]) -> Scores:
    """`row`, `seed`: hparams.NAME; `best`: metrics of which the best value counts, not the last. Raises UserError."""
    files = sorted(folder.rglob("metrics.csv"), key=lambda path: [int(x) for x in re.findall(r"\d+", str(path))])
    if not files:
        raise UserError(f"{folder}: no metrics.csv of Lightning's CSVLogger in it")
    for option, name in (("--row", row), ("--seed", seed)):
        if not name.startswith("hparams."):
            raise UserError(f"{option} {name}: of a folder of logs it is a hyperparameter: {option} hparams.NAME")
    if not aims:
        raise UserError(f"{folder}: say which metric decides, and which values are better: --metric NAME:higher")
    scores, running = Scores(str(folder)), []
    for path in files:
        name = path.parent.relative_to(folder).as_posix()
        if time.time() - path.stat().st_mtime < FRESH:
            running.append(name)
            continue
        hparams = _hparams(path.with_name("hparams.yaml"))
        own = [_named(hparams, key.removeprefix("hparams."), path.parent) for key in (row, seed)]
        for aim in aims:
            values = _column(path, aim)
            if values:
                better = min if aim.lower else max
                chosen = better(values, key=lambda x: x if x == x else float("inf") * (1 if aim.lower else -1))
                scores.add(own[0], own[1], aim.name, chosen if aim.name in best else values[-1], name)
            else:
                scores.notes.append(f"{name}: has no {aim.name} yet")
    scores.notes += [f"left out, as they were written to within a minute: {', '.join(running)}"] * bool(running)
    if best:
        scores.notes.append(
            f"{', '.join(best)}: the best of a run's values is selected by what is judged, so that it looks better "
            "than it is, more so for noisier runs; the last one is not selected"
        )
    if not scores.runs:
        raise UserError(f"{folder}: no finished run has {' or '.join(aim.name for aim in aims)}")
    return scores


def _column(path: Path, aim: Aim) -> list[float]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file)
        if aim.name not in (reader.fieldnames or ()):
            raise UserError(f"{path}: no column '{aim.name}': {nearest(aim.name, reader.fieldnames or ())}")
        found = [number(line[aim.name], aim, f"{path}, line {reader.line_num}") for line in reader]
    return [value for value in found if value is not None]


def _hparams(path: Path) -> dict[str, str]:
    """Scalars by their dotted names. Nodes are read, no object is made of them."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        raise UserError(f"{path}: no such file, or one larger than {LARGEST:,} bytes; save_hyperparameters() writes it")
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is no YAML: {str(error).splitlines()[0]}") from None
    found: dict[str, str] = {}
    todo: list[tuple[str, yaml.Node | None]] = [("", root)]
    while todo:
        prefix, node = todo.pop()
        if isinstance(node, yaml.ScalarNode):
            found[prefix] = node.value
        elif isinstance(node, yaml.MappingNode) and prefix.count(".") < 8:
            todo += [(f"{prefix}.{k.value}".lstrip("."), v) for k, v in node.value if isinstance(k, yaml.ScalarNode)]
    return found


def _named(hparams: dict[str, str], key: str, folder: Path) -> str:
    if not (name := printable(hparams.get(key, ""))):
        raise UserError(f"{folder}/hparams.yaml: no '{key}': {nearest(key, hparams)}")
    return name
