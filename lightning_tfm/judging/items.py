"""Scores of the items of a test set: what another test set would have made of the differences (paired bootstrap)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lightning_tfm.errors import UserError
from lightning_tfm.judging.scores import Aim, Scores, number, printable, records
from lightning_tfm.report.stats.resampling import ratio, resampled
from lightning_tfm.report.stats.statistics import SentenceNoise, sentence_noise

MOST = 20_000
"""items of a test set: 2,000 resamples of them are held in memory"""
NEAR = 0.05
"""of a score, by which its rounding may move it from what its items give"""


def read_items(path: Path, aim: Aim, scores: Scores, columns: tuple[str, str]) -> dict[tuple[str, str], np.ndarray]:
    """(row, seed) -> numerator and denominator of every item, [S, 2], in one order. A metric is their ratio over all
    items; of a column `value` the mean. Raises UserError where runs have not the same items."""
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for place, record in records(path):
        where = f"{path}, {place}"
        names = ("numerator", "denominator") if "numerator" in record else ("value",)
        if lacks := [name for name in (*columns, "item", *names) if name not in record]:
            need = "row, seed, item and value (or numerator and denominator)"
            raise UserError(f"{path}: no column '{lacks[0]}'; it needs {need}")
        values = [number(record[name], Aim(name, name, 0, 0), where) for name in names]
        if any(v is None or v != v for v in values):
            raise UserError(f"{where}: an item without a number")
        own = found.setdefault((printable(str(record[columns[0]])), printable(str(record[columns[1]]))), {})
        if (item := str(record["item"])) in own:
            raise UserError(f"{where}: item '{item}' of this run is there twice")
        own[item] = (values[0] or 0.0, 1.0 if len(values) == 1 else values[1] or 0.0)
    wanted = [(row, seed) for row in scores.runs for seed, value in scores.of(row, aim.name).items() if value == value]
    items = list(next(iter(found.values()), {}))
    for run in wanted:
        if found.get(run, {}).keys() != dict.fromkeys(items).keys():
            raise UserError(f"{path}: row '{run[0]}', seed {run[1]} has not the same items as the first run")
    if not 2 <= len(items) <= MOST:
        raise UserError(f"{path}: {len(items):,} items; from 2 to {MOST:,} can be resampled")
    made = {run: np.array([found[run][item] for item in items]) for run in wanted}
    for (row, seed), values_SX in made.items():
        score, of_items = scores.runs[row][seed][aim.name], _ratio(values_SX.sum(0))
        if not abs(of_items - score) <= NEAR * abs(score):
            raise UserError(
                f"{path}: row '{row}', seed {seed}: its items give {aim.name} {of_items:g}, its score is {score:g}; "
                "items must be those of the number that is judged"
            )
    return made


def _ratio(sums_X: np.ndarray) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(ratio(sums_X))


def noise(items: Mapping[tuple[str, str], np.ndarray], aim: Aim, order: list[str]) -> tuple[SentenceNoise, int]:
    """Of the rows in `order`, base first, and the number of items."""
    runs = [run for run in items if run[0] in order]
    row_R = np.array([order.index(row) for row, _ in runs])
    with np.errstate(divide="ignore", invalid="ignore"):
        boot_RB = resampled([items[run] for run in runs], (lambda x: np.log(ratio(x))) if aim.log else ratio)
    if not np.isfinite(boot_RB).all():
        raise UserError(f"--items: a resampled test set has no {'log ' * aim.log}{aim.name}: too few items are not 0")
    S = len(items[runs[0]])
    return sentence_noise(boot_RB, row_R, len(order), S), S
