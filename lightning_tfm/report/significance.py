"""Cells -> evidence: how every row differs from base, or from another reference, in each metric, corrected.

The rows are exploratory: in each metric a separate family, corrected by Benjamini and Hochberg, with Holm's p over
the same rows beside it. The confirmatory family is that of the claims (report/wording/claims.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import numpy as np

from lightning_tfm.metrics import METRICS, PPL, WORD, paper_metrics
from lightning_tfm.plural_words import plural
from lightning_tfm.report.analyses import row_tuning
from lightning_tfm.report.records import Boots, Cells, FilledCell
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.evidence import (
    Evidence,
    conditional_power,
    fields_of,
    may_be_equal,
    planning_fields,
    significance_fields,
    untested_evidence,
)
from lightning_tfm.report.wording.verdict import FEWER, SAME_SCORES

Key = tuple[str, str]
"""(row, metric)"""


def row_evidence(
    cells: Cells,
    names: list[str],
    paper: Mapping[Key, float],
    full_size: bool = False,
    share: float = 1.0,
    last: tuple[int, float] | None = None,
) -> dict[Key, Evidence]:
    """(row, metric) -> Evidence for every row but the one that all are compared with. Empty without one.

    Where rows have other pieces, their nll per reference word is a metric too, and their perplexity is left out.

    `paper`: its differences; `full_size`: no miniature; `share`: of the level, at this look; `last`: seeds and
    share of the last look where it is still to come.
    """
    rest: tuple[Any, ...] = (paper, full_size, share, last)
    evidence: dict[Key, Evidence] = {}
    for name in (name for name in cells.metrics if METRICS[name].more):  # each separately: it changes no other interval
        evidence |= _family_evidence(cells, names, [name], *rest)
    every = paper_metrics(cells.study.base.data.translated)
    if not cells.study.by_word:
        return _family_evidence(cells, names, every, *rest) | evidence
    alike = [name for name in names if name not in cells.foreign]
    evidence |= {
        key: numbers for key, numbers in _family_evidence(cells, alike, every, *rest).items() if key[1] == PPL.name
    }
    return evidence | _family_evidence(cells, names, [WORD.name, *(name for name in every if name != PPL.name)], *rest)


def _family_evidence(
    cells: Cells,
    names: list[str],
    metrics: Sequence[str],
    paper: Mapping[Key, float],
    full_size: bool,
    share: float,
    last: tuple[int, float] | None,
) -> dict[Key, Evidence]:
    """`row_evidence` of these rows in these metrics, each a separate family."""
    base = cells.against
    if base is None or base not in names:
        return {}
    order = [base, *(name for name in names if name != base)]
    runs = {name: cells.of(name) for name in order}
    n_R = np.array([len(runs[name]) for name in order])
    parts = _differences(order, runs, n_R, cells.boots, metrics)
    evidence: dict[Key, Evidence] = {}
    chosen = row_tuning.row_choices(cells.tuning, {row: [c.value("ppl") for c in of] for row, of in runs.items()})
    loss_R = np.array([chosen[name].loss if name in chosen else 0.0 for name in order])
    for metric, without in parts.items():
        d = row_tuning.add_selection_error(without, loss_R)
        p_R = np.where((n_R >= statistics.LEAST) & (n_R[0] >= statistics.LEAST), d.p, np.nan)
        printed_R = np.array([paper.get((name, metric), np.nan) for name in order])
        tau = METRICS[metric].clear
        numbers = significance_fields(d, p_R, printed_R, tau, share)
        equal_R = may_be_equal(printed_R, tau, full_size or METRICS[metric].same_unit)
        numbers |= planning_fields(d, share * numbers["p"], equal_R, tau, share)
        if last is not None:
            numbers["prospect"] = conditional_power(d, n_R, printed_R, equal_R, tau, full_size, *last)
        for i, name in enumerate(order[1:], 1):
            if n_R[i] == 0 or n_R[0] == 0:
                continue
            n, n_base = int(n_R[i]), int(n_R[0])
            tested, why = not np.isnan(p_R[i]), _why_not(n, n_base, cells.reference, d.se[i])
            e = untested_evidence(float(d.estimate[i]), n, n_base, why)
            if tested or (min(n, n_base) > 1 and not np.isnan(d.se[i])):
                e = replace(e, **fields_of(numbers, i, tested))
            evidence[name, metric] = e
    return evidence


def _why_not(n: int, n_base: int, reference: str | None, se: float) -> str:
    if min(n, n_base) < statistics.LEAST:
        few = min(n, n_base)
        whose = "" if n == few else f" of {reference or 'base'}"
        return f"{plural(few, 'seed')}{whose}, {FEWER} {statistics.LEAST}"
    return "some resampled texts have no score" if math.isnan(se) else SAME_SCORES


def _differences(
    order: list[str],
    runs: Mapping[str, list[FilledCell]],
    n_R: np.ndarray,
    boots: Boots,
    metrics: Sequence[str],
) -> dict[str, statistics.Differences]:
    variances, parts = [], {}
    row_R = np.array([i for i, name in enumerate(order) for _ in runs[name]], dtype=int)
    S = next((cell.sentences for name in order for cell in runs[name]), 0)
    for metric in metrics:
        values = [[cell.value(metric) for cell in runs[name]] for name in order]
        mean_R = np.array([mean(v) if v else math.nan for v in values])
        variance_R = np.array([stdev(v) ** 2 if len(v) > 1 else 0.0 for v in values])
        noise = None
        if metric in boots:
            every = [boots[metric][cell.row, cell.seed] for name in order for cell in runs[name]]
            noise = statistics.sentence_noise(np.array(every), row_R, len(order), S)
        variances.append(variance_R)
        parts[metric] = (mean_R, variance_R, noise)
    count = np.maximum(n_R, 1)
    prior = statistics.prior_df(np.array(variances), count - 1)
    return {m: statistics.compare(means, v, count, noise, S, prior) for m, (means, v, noise) in parts.items()}
