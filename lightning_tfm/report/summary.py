"""Cells -> everything the report says, as plain data: the one place where the statistics meet the table.

Differences in perplexity are differences of log PPL; `percent` says the same as a change of PPL. Numbers are rounded to
ten significant digits, so that the order of a sum on another machine does not change a byte.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from statistics import mean, stdev
from typing import Any

import numpy as np

from lightning_tfm.report import agreement, resampling, statistics, table, verdict
from lightning_tfm.report.cells import Cell, Cells, read_validations
from lightning_tfm.report.sequential import NOT_ASKED, Course, over_looks, restricted
from lightning_tfm.report.verdict import Evidence

METRICS = ("ppl", "bleu")
SCHEMA = 1
Boots = dict[str, dict[tuple[str, int], np.ndarray]]
"""metric -> (row, seed) -> scores of this run on the resampled test sets; no entry where sentences are not at hand"""


def summarise(
    cells: Cells,
    margin_ppl: float = verdict.MARGIN_PPL,
    margin_bleu: float = verdict.MARGIN_BLEU,
    course: Course | None = None,
) -> dict[str, Any]:
    """The report's data. `course`: how seeds were added while looking (report/sequential.py), None for fixed."""
    study = cells.study
    found: dict[tuple[str, int], Any] = {key: cell.record for key, cell in cells.filled.items()} | cells.empty
    built = table.build(study, found)
    margins = {m: verdict.margin(m, margin_ppl, margin_bleu) for m in METRICS}
    names = [line.row.name for line in built.lines]
    share = course.plan.shares[max(len(course.looks) - 1, 0)] if course else 1.0
    evidence = over_looks(_each_look(cells, names, course)) if course else weigh_rows(cells, names)
    paper = paper_differences(built)
    rows = [_row(line, cells, evidence, paper, margins) for line in built.lines]
    curves = {key: read_validations(cell.folder) for key, cell in cells.filled.items()}
    claims = [_claim(claim, evidence, margins) for claim in verdict.CLAIMS if set(claim.says) <= set(names)]
    head = {
        "schema": SCHEMA,
        "study": study.name,
        "scale": built.scale,
        "signature": built.signature,
        "seeds": study.seeds,
        "corpus": study.base.data.corpus,
        "languages": [study.base.data.source, study.base.data.target],
        "sentences": _sentences(cells),
        "sentence noise of BLEU": any(c.bleu_S10 is not None for c in cells.filled.values()),
        "alpha": statistics.ALPHA,
        "interval level": 1 - statistics.ALPHA * share,
        "looks": None if course is None else [look.seeds for look in course.looks],
        "most looks": None if course is None else len(course.plan.sizes),
        "power": statistics.POWER,
        "margin": {"ppl": margin_ppl, "bleu": margin_bleu},
        "finished": len(cells.filled),
        "cells": len(cells.filled) + sum(why != NOT_ASKED for why in cells.empty.values()),
        **dict(zip(("agreement", "last eighth"), agreement.of_table(built, curves), strict=True)),
    }
    return rounded(head | {"claims": claims, "rows": rows})


def _each_look(cells: Cells, names: list[str], course: Course) -> list[dict[tuple[str, str], Evidence]]:
    """What each look found on the seeds it had, at its share of the level. Before the first look: no test at all."""
    boots = bootstraps(cells)
    if not course.looks:
        found = weigh_rows(cells, names, boots=boots)
        return [{k: Evidence(e.n, e.estimate, *[math.nan] * 4) for k, e in found.items()}]
    seen = zip(course.looks, course.plan.shares, strict=False)
    return [weigh_rows(restricted(cells, look), names, part, boots) for look, part in seen]


def weigh_rows(
    cells: Cells, names: list[str], share: float = 1.0, boots: Boots | None = None
) -> dict[tuple[str, str], Evidence]:
    """(row, metric) -> Evidence for every row but base, corrected over rows and metrics. Empty without a base.

    `boots`: of these cells or more, made here where they are not given.
    """
    base = base_of(cells, names)
    if base is None:
        return {}
    order = [base, *(name for name in names if name != base)]
    runs = {name: cells.of(name) for name in order}
    n_R = np.array([len(runs[name]) for name in order])
    parts = _differences(order, runs, n_R, bootstraps(cells) if boots is None else boots)
    tested = (n_R > 1) & (n_R[0] > 1)
    p_MR = np.array([np.where(tested, parts[m].p, np.nan) for m in METRICS])
    alpha = statistics.ALPHA * share
    adjusted_MR = statistics.holm(p_MR.ravel()).reshape(p_MR.shape)
    level = statistics.open_level(adjusted_MR.ravel(), alpha)[0]
    evidence: dict[tuple[str, str], Evidence] = {}
    for m, p_R in zip(METRICS, adjusted_MR / share, strict=True):
        low, high = parts[m].interval(alpha)
        smallest = parts[m].smallest(level)
        for i, name in enumerate(order[1:], 1):
            if n_R[i] == 0 or n_R[0] == 0:
                continue
            numbers = (parts[m].estimate[i], low[i], high[i], min(p_R[i], 1.0), smallest[i])
            only = (parts[m].estimate[i], math.nan, math.nan, math.nan, math.nan)
            evidence[name, m] = Evidence(int(n_R[i]), *map(float, numbers if tested[i] else only))
    return evidence


def base_of(cells: Cells, names: list[str]) -> str | None:
    """The row without a change."""
    plain = {row.name for row in cells.study.rows if not row.change}
    return next((name for name in names if name in plain), None)


def bootstraps(cells: Cells) -> Boots:
    """Every run on the same resamples, once however many looks ask."""
    found: Boots = {}
    for metric in METRICS:
        tables = {k: c.nll_S2 if metric == "ppl" else c.bleu_S10 for k, c in sorted(cells.filled.items())}
        known = {key: table for key, table in tables.items() if table is not None and len(table) > 1}
        if known and len(known) == len(tables):
            score = resampling.log_ppl if metric == "ppl" else resampling.bleu
            scores = resampling.resampled(list(known.values()), score)
            found[metric] = dict(zip(known, scores, strict=True))
    return found


def _differences(
    order: list[str], runs: Mapping[str, list[Cell]], n_R: np.ndarray, boots: Boots
) -> dict[str, statistics.Differences]:
    """Of each metric."""
    variances, parts = [], {}
    row_R = np.array([i for i, name in enumerate(order) for _ in runs[name]], dtype=int)
    S = next((len(cell.nll_S2) for name in order for cell in runs[name]), 0)
    for metric in METRICS:
        values = [[math.log(c.ppl) if metric == "ppl" else c.bleu for c in runs[name]] for name in order]
        mean_R = np.array([mean(v) if v else math.nan for v in values])
        variance_R = np.array([stdev(v) ** 2 if len(v) > 1 else 0.0 for v in values])
        noise = statistics.SentenceNoise(np.zeros(len(order)), np.zeros(len(order)))
        if metric in boots:
            every = [boots[metric][cell.row, cell.seed] for name in order for cell in runs[name]]
            noise = statistics.sentence_noise(np.array(every), row_R, len(order), S)
        variances.append(variance_R)
        parts[metric] = (mean_R, variance_R, noise)
    count = np.maximum(n_R, 1)
    prior = statistics.prior_df(np.array(variances), count - 1)
    return {m: statistics.compare(means, v, count, noise, S, prior) for m, (means, v, noise) in parts.items()}


def paper_differences(built: table.Table) -> dict[tuple[str, str], float]:
    """(row, metric) -> the paper's difference to its base: log PPL, BLEU."""
    base = next((line.row.paper for line in built.lines if not line.row.change), None)
    found: dict[tuple[str, str], float] = {}
    for line in built.lines if base is not None else []:
        paper = line.row.paper
        if paper.ppl is not None and base.ppl is not None and line.row.change:
            found[line.row.name, "ppl"] = math.log(paper.ppl) - math.log(base.ppl)
        if paper.bleu is not None and base.bleu is not None and line.row.change:
            found[line.row.name, "bleu"] = round(paper.bleu - base.bleu, 6)
    return found


def _row(
    line: table.Line,
    cells: Cells,
    evidence: Mapping[tuple[str, str], Evidence],
    paper: Mapping[tuple[str, str], float],
    margins: Mapping[str, float],
) -> dict[str, Any]:
    name, mine = line.row.name, cells.of(line.row.name)
    records = [cell.record for cell in mine]
    plain: dict[str, Any] = {
        "group": line.row.group,
        "row": name,
        "base": not line.row.change,
        "change": {str(k): v for k, v in line.row.change.items()},
        "values": line.values,
        "blank": sorted(line.blank),
        "parameters": line.parameters,
        "n": len(mine),
        "flops": mean(r["flops"] for r in records) if records else None,
        "seconds": mean(r["seconds"]["total"] for r in records) if records else None,
        "paper": asdict(line.row.paper),
        "missing": {
            str(seed): cells.empty[name, seed]
            for seed in line.missing
            if cells.empty.get((name, seed), NOT_ASKED) != NOT_ASKED
        },
    }
    for metric in METRICS:
        values = [getattr(cell, metric) for cell in mine]
        plain[metric] = {
            "mean": mean(values) if values else None,
            "sd": stdev(values) if len(values) > 1 else None,
            "by seed": {str(c.seed): v for c, v in zip(mine, values, strict=True)},
            "difference": None if not line.row.change else _difference(name, metric, evidence, paper, margins),
        }
    return plain


def _difference(
    name: str,
    metric: str,
    evidence: Mapping[tuple[str, str], Evidence],
    paper: Mapping[tuple[str, str], float],
    margins: Mapping[str, float],
) -> dict[str, Any]:
    found, printed = evidence.get((name, metric)), paper.get((name, metric))
    judged = verdict.judge(found, printed, margins[metric])
    plain: dict[str, Any] = {"verdict": judged.word, "why": judged.why, "paper": printed}
    if found is not None:
        plain |= {k: v for k, v in asdict(found).items() if k != "n"}
        if metric == "ppl":
            keys = ("estimate", "lower", "upper", "smallest")
            plain["percent"] = {k: 100 * math.expm1(plain[k]) for k in keys}
    if metric == "ppl" and printed is not None:
        plain["paper percent"] = 100 * math.expm1(printed)
    return plain


def _claim(
    claim: verdict.Claim, evidence: Mapping[tuple[str, str], Evidence], margins: Mapping[str, float]
) -> dict[str, Any]:
    weighed = verdict.weigh(claim, evidence, margins)
    return {"text": claim.text, "verdict": weighed.word, "findings": [asdict(f) for f in weighed.findings]}


def _sentences(cells: Cells) -> int | None:
    return next((len(cell.nll_S2) for cell in cells.filled.values()), None)


def rounded(value: Any) -> Any:
    """Plain data at ten significant digits; NaN and infinities become None."""
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value
