"""The versions of Lightning's CSVLogger (metrics.csv beside hparams.yaml) as runs. Nothing in them is constructed."""

import re
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from lightning_tfm.errors import UserError
from lightning_tfm.judging.scores import Aim, Scores, number, records, scores_of

FRESH = 60.0
"""seconds since the last line of a run that may still be running"""
LARGEST, NODES = 1 << 20, 100_000
"""bytes of a file of hparams, values and mappings in it"""


def read_logs(folder: Path, aims: Sequence[Aim], row: str, seed: str, best: Collection[str]) -> Scores:
    """`row`, `seed`: hparams.NAME; `best`: metrics of which the best value counts, not the last. Raises UserError."""
    files = sorted(folder.rglob("metrics.csv"), key=lambda path: [int(x) for x in re.findall(r"\d+", str(path))])
    if not files:
        raise UserError(f"{folder}: no metrics.csv of Lightning's CSVLogger in it")
    notes: list[str] = []
    scores = scores_of(str(folder), _versions(folder, files, aims, best, notes), aims, row, seed)
    scores.notes += notes
    if best:
        scores.notes.append(
            f"{', '.join(best)}: the best of a run's values is selected by what is judged, so that it looks better "
            "than it is, more so for noisier runs; the last one is not selected"
        )
    return scores


def _versions(
    folder: Path, files: Sequence[Path], aims: Sequence[Aim], best: Collection[str], notes: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, its hyperparameters as hparams.NAME and one value of each metric); what is left out joins `notes`."""
    for path in files:
        name = path.parent.relative_to(folder).as_posix()
        if time.time() - path.stat().st_mtime < FRESH:
            notes.append(f"{name}: left out, as it was written to within a minute")
            continue
        lines = list(records(path)) if path.stat().st_size else []
        record: dict[str, Any] = dict.fromkeys(lines[0][1], None) if lines else {}
        record |= {f"hparams.{key}": value for key, value in _hparams(path.with_name("hparams.yaml")).items()}
        for aim in aims:
            numbers = [number(line.get(aim.name), aim, f"{path}, {place}") for place, line in lines]
            values = [x for x in numbers if x is not None]
            if aim.name in best:  # NaN last
                values.sort(key=lambda x: (x == x, x * aim.side))
            record[aim.name] = values[-1] if values else None
        yield name, record


def _hparams(path: Path) -> dict[str, str]:
    """Scalars by their dotted names. Nodes are read, no object is made of them."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        raise UserError(f"{path}: no such file, or one larger than {LARGEST:,} bytes; save_hyperparameters() writes it")
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is no YAML: {str(error).splitlines()[0]}") from None
    scalars: dict[str, str] = {}
    todo: list[tuple[str, yaml.Node | None]] = [("", root)]
    for _ in range(NODES):
        if not todo:
            return scalars
        prefix, node = todo.pop()
        if isinstance(node, yaml.ScalarNode):
            scalars[prefix] = node.value
        elif isinstance(node, yaml.MappingNode) and prefix.count(".") < 8:
            todo += [(f"{prefix}.{k.value}".lstrip("."), v) for k, v in node.value if isinstance(k, yaml.ScalarNode)]
    raise UserError(f"{path}: more than {NODES:,} values, aliases followed; that is no file of hyperparameters")
