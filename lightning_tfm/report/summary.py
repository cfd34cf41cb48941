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

from lightning_tfm.config import Miniature
from lightning_tfm.report import agreement, claims, power, statistics, table, verdict
from lightning_tfm.report.cells import Cells, Found, read_validations
from lightning_tfm.report.evidence import METRICS, Key, bootstraps, untested, weigh_rows
from lightning_tfm.report.plateau import plateaued
from lightning_tfm.report.sequential import NOT_ASKED, Course, over_looks, restricted
from lightning_tfm.report.verdict import Evidence
from lightning_tfm.runs.record import Missing

SCHEMA = 2


def summarise(cells: Cells, course: Course | None = None) -> dict[str, Any]:
    """The report's data. `course`: how seeds were added while looking (report/sequential.py), None for fixed."""
    study = cells.study
    found: Found = {key: Missing(why) for key, why in cells.empty.items()}
    found |= {key: cell.record for key, cell in cells.filled.items()}
    built = table.build(study, found)
    names = [line.row.name for line in built.lines]
    shares = course.plan.shares[: max(len(course.looks), 1)] if course else [1.0]
    paper, full_size = paper_differences(built), study.base.miniature == Miniature()
    looks = _each_look(cells, names, paper, full_size, course)
    evidence = over_looks(looks)
    far = plateaued({name: {c.seed: math.log(c.ppl) for c in cells.of(name)} for name in names})
    rows = [_row(line, cells, evidence, paper, full_size) for line in built.lines]
    rows = [row | {"plateaued": far.get(row["row"], [])} for row in rows]
    primary = [{row: e for (row, m), e in look.items() if m == "ppl" and not e.untested} for look in looks]
    weighed = claims.weigh(claims.asked(names), list(zip(primary, shares, strict=True)))
    curves = {key: read_validations(cell.folder) for key, cell in cells.filled.items()}
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
        "interval level": 1 - statistics.ALPHA * shares[-1],
        "looks": None if course is None else [look.seeds for look in course.looks],
        "most looks": None if course is None else len(course.plan.sizes),
        "power": power.ABOUT,
        "clear": verdict.CLEAR,
        "finished": len(cells.filled),
        "cells": len(cells.filled) + sum(why != NOT_ASKED for why in cells.empty.values()),
        **dict(zip(("agreement", "last eighth"), agreement.of_table(built, curves), strict=True)),
    }
    return rounded(head | {"claims": [_claim(one) for one in weighed], "rows": rows})


def _each_look(
    cells: Cells, names: list[str], paper: Mapping[Key, float], full_size: bool, course: Course | None
) -> list[dict[Key, Evidence]]:
    """What each look found on the seeds it had, at its share of the level. Before the first look: no test at all."""
    if course is None:
        return [weigh_rows(cells, names, paper, full_size)]
    boots = bootstraps(cells)
    if not course.looks:
        found = weigh_rows(cells, names, paper, full_size, boots=boots)
        return [{k: untested(vars(e), e.untested or "before the first look") for k, e in found.items()}]
    plan, taken = course.plan, list(zip(course.looks, course.plan.shares, strict=False))
    last = None if len(taken) == len(plan.sizes) else (plan.sizes[-1], plan.shares[-1])
    return [weigh_rows(restricted(cells, look), names, paper, full_size, part, boots, last) for look, part in taken]


def paper_differences(built: table.Table) -> dict[Key, float]:
    """(row, metric) -> the paper's difference to its base: log PPL, BLEU."""
    base = next((line.row.paper for line in built.lines if not line.row.change), None)
    found: dict[Key, float] = {}
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
    evidence: Mapping[Key, Evidence],
    paper: Mapping[Key, float],
    full_size: bool,
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
        "flops": mean(r.flops for r in records) if records else None,
        "seconds": mean(r.seconds.total for r in records) if records else None,
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
            "difference": None if not line.row.change else _difference(name, metric, evidence, paper, full_size),
        }
    return plain


def _difference(
    name: str,
    metric: str,
    evidence: Mapping[Key, Evidence],
    paper: Mapping[Key, float],
    full_size: bool,
) -> dict[str, Any]:
    found, printed = evidence.get((name, metric)), paper.get((name, metric))
    judged = verdict.judge(found, printed, metric, full_size)
    plain: dict[str, Any] = {"verdict": judged.word, "why": judged.why, "paper": printed}
    if printed is not None:
        plain["paper is clear"] = verdict.clear(printed, metric)
    if found is not None:
        plain |= {k: v for k, v in asdict(found).items() if k not in ("n", "n_base", "untested")}
        if metric == "ppl":
            keys = ("estimate", "lower", "upper", "smallest")
            plain["percent"] = {k: 100 * math.expm1(plain[k]) for k in keys}
        if printed is not None and verdict.clear(printed, metric):
            plain["factor"] = _factor(found, printed)
    if metric == "ppl" and printed is not None:
        plain["paper percent"] = 100 * math.expm1(printed)
    return plain


def _factor(found: Evidence, printed: float) -> dict[str, float]:
    """d / P with the interval of d: the printed number is taken as it stands."""
    ends = sorted((found.lower / printed, found.upper / printed))
    return {"estimate": found.estimate / printed, "lower": ends[0], "upper": ends[1]}


def _claim(weighed: claims.ClaimVerdict) -> dict[str, Any]:
    findings = [asdict(f) | {"percent": 100 * math.expm1(f.estimate)} for f in weighed.findings]
    return {"text": weighed.claim.text, "verdict": weighed.word, "p": weighed.p, "findings": findings}


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
