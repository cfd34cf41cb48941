"""Scores in a file, one line per run (row, seed, a column for each metric) or per number (row, seed, metric, value), as
CSV or as JSON lines; or as records in Python. What is wrong is a UserError of one line, with the line's number.

Scores of the items of a test set say what another test set would have made of the differences (paired bootstrap)."""

import csv
import json
import math
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.metrics import Metric
from lightning_tfm.plural_words import plural

MOST, LONGEST, LONGEST_CELL = 1_000_000, 1 << 20, 60
"""lines of a file, bytes of a line, letters of a wrong cell that a message repeats"""
MOST_ITEMS = 20_000
"""of a test set: 2,000 resamples of them are held in memory"""
NEAR = 0.05
"""of a score, by which its rounding may move it from what its items give"""
HUGE = 1e60
"""a score from which a run has diverged, as if it were infinite"""
TINY = 1e-14
"""of scores that are all smaller a table would show zeros"""
FORM = re.compile(r"(?P<name>.+?):(?P<side>higher|lower)(?P<log>:log)?(:(?P<margin>[^:]+))?")


@dataclass(frozen=True)
class Aim(Metric):
    """A metric of somebody else's runs."""

    margin: float | None = None
    """a difference to base inside ± this is practically none: of the logarithm, a ratio of 1 + margin"""

    @property
    def clear(self) -> float:
        """The margin, as it is tested; NaN where there is none."""
        return math.nan if self.margin is None else math.log1p(self.margin) if self.log else self.margin

    @property
    def written(self) -> str:
        """As --metric has it."""
        side = "lower" if self.lower_is_better else "higher"
        return f"{self.name}:{side}" + ":log" * self.log + (f":{self.margin:g}" if self.margin else "")

    def size(self, shown: float, sign: str = "") -> str:
        return f"{shown:{sign}g}" + " %" * self.log


def aim(text: str) -> Aim:
    """NAME:higher|lower[:log][:MARGIN]. Raises UserError."""
    parts = FORM.fullmatch(text)
    if parts is None:
        raise UserError(
            f"--metric {text}: say which values are better: NAME:higher or NAME:lower, then [:log][:MARGIN]"
        )
    margin = parts["margin"] and _plain_number(parts["margin"])
    if parts["margin"] and not (margin and 0 < margin < math.inf):
        raise UserError(f"--metric {text}: the margin is a number above 0, not '{parts['margin']}'")
    name, lower = printable(parts["name"]), parts["side"] == "lower"
    return Aim(name, name, 8, 8, lower_is_better=lower, log=bool(parts["log"]), same_unit=True, margin=margin or None)


Run = dict[str, float]
"""metric -> value; NaN where the run diverged"""
Items = dict[tuple[str, str], list[tuple[float, ...]]]
"""(row, seed) -> numerator and denominator of every item of the test set, in one order"""


@dataclass
class Scores:
    """Runs by row and seed, in the order of their first lines; a run without any number is empty."""

    source: str
    runs: dict[str, dict[str, Run]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """what was left out"""

    def of(self, row: str, metric: str) -> dict[str, float]:
        """seed -> value, in the order of the seeds."""
        values = {seed: run[metric] for seed, run in self.runs[row].items() if metric in run}
        return {seed: values[seed] for seed in in_order(values)}

    def missing(self) -> list[str]:
        """A sentence on each row that lacks seeds that most rows have."""
        counts = Counter(seed for run in self.runs.values() for seed in run)
        common = in_order(seed for seed, n in counts.items() if 2 * n > len(self.runs))
        lacks = {row: [s for s in common if s not in run] for row, run in self.runs.items()}
        return [f"{row}: no seed {', '.join(s)}; used as it is" for row, s in lacks.items() if s]


def in_order(seeds: Iterable[str]) -> list[str]:
    """By number where all are numbers, else as they come."""
    seeds = list(seeds)
    return sorted(seeds, key=int) if all(re.fullmatch(r"-?\d{1,18}", s) for s in seeds) else seeds


def printable(name: str) -> str:
    """A name that does nothing in a terminal: what no one can see is written out, and é is one letter however a file
    spells it."""
    composed = unicodedata.normalize("NFC", name.strip())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in composed)


def read_scores(path: Path, aims: Sequence[Aim], row: str = "row", seed: str = "seed") -> Scores:
    """`row`, `seed`: names of those columns. Raises UserError."""
    return scores_of(str(path), records(path), aims, row, seed)


def scores_of(
    source: str, lines: Iterable[tuple[str, Mapping[str, Any]]], aims: Sequence[Aim], row: str, seed: str
) -> Scores:
    """Of (place, record). Raises UserError."""
    scores, long, columns = Scores(source), False, set[Any]()
    places: dict[tuple[str, str, str], str] = {}
    empty: dict[tuple[str, str], list[str]] = {}
    for place, record in lines:
        where, long = f"{source}, {place}", "metric" in record and "value" in record
        name, of_seed = label(record, row, "row", where), label(record, seed, "seed", where)
        named = [printable(str(record["metric"]))] if long else record.keys()
        columns.update(named)
        if not aims:
            others = [str(column) for column in named if column not in (row, seed)] or ["NAME"]
            raise UserError(
                f"{source}: say which metric decides, and which values are better: --metric {others[0]}:higher or "
                f"--metric {others[0]}:lower; columns: {', '.join(others[:20])}"
            )
        runs = scores.runs.setdefault(name, {})
        for aim in [aim for aim in aims if aim.name in named] if long else aims:
            value = number(record.get("value" if long else aim.name), aim, where)
            if value is None:
                empty.setdefault((name, aim.name), []).append(of_seed)
                runs.setdefault(of_seed, {})
                continue
            if before := places.get((name, of_seed, aim.name)):
                raise UserError(
                    f"{where}: row '{name}', seed {of_seed} has its {aim.name} in {before} already; keep one"
                )
            places[name, of_seed, aim.name] = place
            runs.setdefault(of_seed, {})[aim.name] = value
    for aim in aims:
        if scores.runs and aim.name not in columns:
            valid = map(str, columns - {row, seed})
            raise UserError(f"{source}: no {'metric' if long else 'column'} '{aim.name}': {nearest(aim.name, valid)}")
    if not places:
        raise UserError(f"{source}: no run has a number in {' or '.join(aim.name for aim in aims) or 'it'}")
    for aim in aims:
        every = [run.get(aim.name, 0.0) for of in scores.runs.values() for run in of.values()]
        if 0 < max((abs(x) for x in every if not math.isnan(x)), default=0.0) < TINY:
            raise UserError(f"{source}: every {aim.name} is below {TINY:g} and would read 0: take a smaller unit")
    for (name, metric), seeds in empty.items():
        if lacks := in_order(dict.fromkeys(s for s in seeds if (name, s, metric) not in places)):
            scores.notes.append(f"{name}: seed {', '.join(lacks)} without {metric}; used as it is")
    return scores


def label(record: Mapping[str, Any], key: str, kind: str, where: str) -> str:
    """Of a row or a seed (`kind`), of which 1, 01 and 1.0 are one. Raises UserError."""
    if key not in record:
        raise UserError(
            f"{where}: no column '{key}'; name it by --{kind} COLUMN or {kind}=COLUMN: {nearest(key, map(str, record))}"
        )
    value = record[key]
    if isinstance(value, list | dict):
        raise UserError(f"{where}: {key}={str(value)[:LONGEST_CELL]} is no name")
    name = "" if value is None or value != value else printable(str(value))
    if not name:
        raise UserError(f"{where}: '{key}' is empty")
    whole = kind == "seed" and re.fullmatch(r"(-?[0-9]{1,18})(\.0*)?", name)
    return str(int(whole[1])) if whole else name


def number(given: Any, aim: Metric, where: str) -> float | None:
    """None where the cell is empty; NaN for a run that diverged. Raises UserError."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return None
    value = _plain_number(given)
    if value is None:
        text = str(given)[:LONGEST_CELL]
        instead = "write it as 1234.5" if any(map(str.isdigit, text)) else "empty is missing, nan a run that diverged"
        raise UserError(f"{where}: {aim.name}={text!r} is no number; {instead}")
    if not abs(value) < HUGE:
        return math.nan
    if aim.log and value <= 0:
        raise UserError(f"{where}: {aim.name}={given} has no logarithm; leave out :log, or score what is above 0")
    return value


def _plain_number(given: Any) -> float | None:
    if isinstance(given, bool) or (isinstance(given, str) and not given.isascii()) or "_" in str(given):
        return None
    try:
        return float(given)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


# --- scores of the items of a test set ---


def read_items(path: Path, aim: Aim, scores: Scores, row: str, seed: str) -> Items:
    """A metric is the ratio of both sums over all items; of a column `value` the mean. Raises UserError where runs have
    not the same items."""
    runs: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
    for place, record in records(path):
        where = f"{path}, {place}"
        names = ("numerator", "denominator") if "numerator" in record else ("value",)
        if lacks := [name for name in (row, seed, "item", *names) if name not in record]:
            need = "row, seed, item and value (or numerator and denominator)"
            raise UserError(f"{path}: no column '{lacks[0]}'; it needs {need}")
        values = [number(record[name], Metric(name, name, 0, 0), where) for name in names]
        if any(v is None or v != v for v in values):
            raise UserError(f"{where}: an item without a number")
        own = runs.setdefault((label(record, row, "row", where), label(record, seed, "seed", where)), {})
        if (item := str(record["item"])) in own:
            raise UserError(f"{where}: item '{item}' of this run is there twice")
        own[item] = (*(v for v in values if v is not None), 1.0)[:2]
    judged = {(row, s): x for row in scores.runs for s, x in scores.of(row, aim.name).items() if x == x}
    items = list(next(iter(runs.values()), {}))
    if not 2 <= len(items) <= MOST_ITEMS:
        raise UserError(f"{path}: {len(items):,} items; from 2 to {MOST_ITEMS:,} can be resampled")
    sums = {}
    for (row, seed), score in judged.items():
        own = runs.get((row, seed), {})
        if own.keys() != dict.fromkeys(items).keys():
            raise UserError(f"{path}: row '{row}', seed {seed} has not the same items as the first run")
        sums[row, seed] = [own[item] for item in items]
        top, bottom = map(sum, zip(*sums[row, seed], strict=True))
        value = top / bottom if bottom else math.inf * top
        if not abs(value - score) <= NEAR * abs(score):
            raise UserError(
                f"{path}: row '{row}', seed {seed}: its items give {aim.name} {value:g}, its score is {score:g}; "
                "items must be those of the number that is judged"
            )
    return sums


# --- lines of a file ---


def records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """("line 3", what stands in it) of a file. Raises UserError."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    return (_json_lines if path.suffix in (".jsonl", ".ndjson", ".json") else _csv_lines)(path)


def _text_lines(path: Path) -> Iterator[str]:
    """Raises UserError for bytes that are no text, and for too many."""
    with path.open("rb") as file:
        for number in range(1, MOST + 3):
            raw = file.readline(LONGEST)
            if not raw:
                return
            if len(raw) == LONGEST or number > MOST + 1:
                long = len(raw) == LONGEST
                what = f"line {number} is longer than {LONGEST:,} bytes" if long else f"more than {MOST:,} lines"
                raise UserError(f"{path}: {what}; that is no file of scores")
            try:
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise UserError(f"{path}, line {number}: bytes that are no text (UTF-8)") from None


def _csv_lines(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    lines = _text_lines(path)
    first = next(lines, "")
    reader = csv.reader(chain([first], lines), delimiter=max(",", "\t", ";", key=first.count), strict=True)
    try:
        head = [printable(name) for name in next(reader, [])]
        if not any(head):
            raise UserError(f"{path}, line 1: is empty; it names the columns: row,seed,METRIC")
        if twice := {name for name in head if head.count(name) > 1}:
            raise UserError(f"{path}, line 1: column '{min(twice)}' is there twice")
        for cells in reader:
            place = f"line {reader.line_num}"
            if not any(map(str.strip, cells)):
                continue
            if len(cells) != len(head):
                has = plural(len(cells), "cell")
                raise UserError(f"{path}, {place}: {has}, where the first line has {len(head)}")
            yield place, dict(zip(head, cells, strict=True))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises KeyError for a key that is there twice."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise KeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return record


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(_text_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_without_twins)
        except KeyError as twice:
            raise UserError(f"{path}, line {number}: {twice} is there twice") from None
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise UserError(f"{path}, line {number}: no JSON object; a line is one run")
        yield f"line {number}", record


# --- the versions of Lightning's CSVLogger (metrics.csv beside hparams.yaml); nothing in them is constructed ---

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
