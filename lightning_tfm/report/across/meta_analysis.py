"""`meta-analysis`, rows over corpora as random effects: what a row does on average over corpora, and on an unseen one.

Of a row y_k is the difference to base in study k, as the metric is tested, v_k its squared standard error over seeds
(stats/statistics.py). The studies are taken as a sample of corpora: y_k ~ N(theta_k, v_k), theta_k ~ N(mu, tau^2).

- tau^2 by Paule and Mandel (1982): sum w_k (y_k - mu)^2 = K - 1 with w_k = 1 / (v_k + tau^2), mu = sum w_k y_k /
  sum w_k; 0 if the sum is not larger at tau^2 = 0.
- se^2 = max(1, q) / sum w_k, q = sum w_k (y_k - mu)^2 / (K - 1) (Hartung and Knapp 2001; never below the standard error
  of a known variance: Röver, Knapp and Friede 2015). Interval and p with t of K_e - 1 degrees of freedom, K_e =
  (sum w_k)^2 / sum w_k^2, Kish's (1965) effective number of studies: K where all weigh alike. With t of K - 1 up to a
  third of studies without a difference held a false verdict where a few quiet corpora outweigh noisy ones
  (benchmarks/results/corpora.txt). p is corrected over the rows of the metric by Benjamini and Hochberg.
- An unseen corpus: mu ± t_(K_e - 2) sqrt(tau^2 + se^2) (with K: Higgins, Thompson and Spiegelhalter 2009), from three
  studies on.
- I^2 = max(0, (Q - (K - 1)) / Q), Q the sum above at tau^2 = 0 (Higgins and Thompson 2002): the share of the spread
  between studies that seeds do not explain.

How well that foresees is tried by benchmarks/foresight.py. Studies of one family (of one corpus and folder, unless said
otherwise) are not an independent sample of corpora; within the pool each counts as one. Studies that share a run are
refused: it would count twice.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS
from lightning_tfm.plural_words import p_value, plural
from lightning_tfm.report.across.long_table import (
    DIFFERENCE,
    NO_INFORMATION,
    ROW,
    VERDICT,
    P,
    Studies,
    by_name,
    informative,
    interval,
    records,
    runs_of,
    signed,
    unit,
    verdict_cell,
)
from lightning_tfm.report.blocks import Block, Column, Main, Notes, Section, Table
from lightning_tfm.report.charts.forest import Entry, Forest, finding, tally
from lightning_tfm.report.charts.study_forest import axis_of
from lightning_tfm.report.render.every_format import Document
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA, t_isf, t_sf
from lightning_tfm.report.study_report import Report
from lightning_tfm.report.tables.columns import SIZES
from lightning_tfm.report.wording.verdict_words import Verdict

LEAST = 3
"""studies of a row: with fewer nothing is said of an unseen corpus"""
LEAST_DF = 0.1
"""degrees of freedom that at least are left, at which no interval says anything and nothing is significant"""


# --- the numbers ---


def random_effects(y: Sequence[float], v: Sequence[float]) -> dict[str, float]:
    """Of the estimates `y` with the variances `v` (above 0), from three on; p is not corrected."""
    y_K, v_K = np.asarray(y, dtype=float), np.asarray(v, dtype=float)
    K = len(y_K)

    def spread(tau2: float) -> float:
        w_K = 1 / (v_K + tau2)
        return float((w_K * (y_K - (w_K * y_K).sum() / w_K.sum()) ** 2).sum())

    Q = spread(0.0)
    most = K * float(np.ptp(y_K)) ** 2  # there the sum is below K - 1
    tau2 = float(brentq(lambda x: spread(x) - (K - 1), 0.0, most, xtol=1e-300, rtol=1e-12)) if Q > K - 1 else 0.0
    w_K = 1 / (v_K + tau2)
    mu = float((w_K * y_K).sum() / w_K.sum())
    se = math.sqrt(max(1.0, spread(tau2) / (K - 1)) / w_K.sum())
    K_e = float(w_K.sum() ** 2 / (w_K**2).sum())
    df = max(K_e - 1, LEAST_DF)
    half, wide = float(t_isf(ALPHA / 2, df)) * se, half_width(tau2, se, K_e)
    return {
        **{"studies": K, "effective": K_e, "estimate": mu, "se": se, "lower": mu - half, "upper": mu + half},
        **{"p": float(2 * t_sf(abs(mu) / se, df)), "unseen lower": mu - wide, "unseen upper": mu + wide},
        **{"tau": math.sqrt(tau2), "I2": max(0.0, (Q - (K - 1)) / Q) if Q > 0 else 0.0},
    }


def half_width(tau2: float, se: float, K_e: float, variance: float = 0.0) -> float:
    """Of the 95 % interval for an unseen corpus, observed with an error of this variance."""
    return float(t_isf(ALPHA / 2, max(K_e - 2, LEAST_DF))) * math.sqrt(tau2 + se**2 + variance)


def pooled_rows(lines: pd.DataFrame) -> pd.DataFrame:
    """Of each row and metric of `lines` (long_table.py) with an interval in enough studies `random_effects`, p
    corrected over the rows of the metric, and a word."""
    enough = lines[lines.lower.notna()].groupby(["metric", "row"], sort=False).filter(lambda of: len(of) >= LEAST)
    of = enough.groupby(["row", "metric"], sort=False)
    made = pd.DataFrame([dict(row=k, metric=m) | random_effects(own.estimate, own.se**2) for (k, m), own in of])
    if made.empty:
        return made
    made["p"] = made.groupby("metric")["p"].transform(lambda p: benjamini_hochberg(p.to_numpy()))
    better = [METRICS[m].better(x) for m, x in zip(made.metric, made.estimate, strict=True)]
    words = np.where(better, Verdict.BETTER.value, Verdict.WORSE.value)
    return made.assign(word=np.where(made.p < ALPHA, words, Verdict.UNDECIDED.value))


# --- for people ---


def meta_analysis(reports: Sequence[Report], kinds: Mapping[str, str] | None = None) -> Document:
    """The rows over the studies. `kinds`: study -> name of the family of its text, by default its corpus and folder.

    Raises UserError where fewer than three studies are given, two of them share runs, or no row is in three.
    """
    if len(reports) < LEAST:
        given = " ".join(by_name(reports))
        raise UserError(f"meta-analysis {given}: an unseen corpus takes {LEAST} studies, {len(reports)} given")
    studies = Studies.of(reports, to_first=False)
    _check_no_shared_runs(studies.reports)
    made, names = pooled_rows(studies.lines), list(studies.reports)
    rows = list(made.row.unique()) if len(made) else []
    left_out = [*studies.left_out, *_absences(studies, rows)]
    if not rows:
        raise UserError(f"no row has an interval in {LEAST} of the studies {', '.join(names)}: {'; '.join(left_out)}")
    groups: dict[str, list[str]] = {}
    for study, report in studies.reports.items():
        text = report.cells.study.base.data
        groups.setdefault((kinds or {}).get(study, f"{text.corpus} {text.folder}"), []).append(study)
    families, drawn = {of[0]: of for of in groups.values()}, picture(made, studies)
    tables: list[Block] = [table(made[made.metric == m], studies, m) for m in METRICS if m in set(made.metric)]
    notes = Notes([*_notes(made, studies, families), *left_out])
    data = records(made)
    return Document(
        studies.heading("pooled"),
        studies.question,
        "pool",
        f"{plural(len(rows), 'row')} over {len(names)} studies",
        [
            Section("picture", "Over corpora", [Main(drawn)]),
            Section("rows", "Rows over corpora", tables),
            Section("method", "How to read this", [notes]),
        ],
        data,
        {"studies": names, "families": families, "rows": data, "left out": left_out},
        schema=3,
        headline=[drawn.title],
        scope=drawn.scope,
    )


def _check_no_shared_runs(reports: Mapping[str, Report]) -> None:
    runs = {study: runs_of(report) for study, report in reports.items()}
    for one, other in combinations(runs, 2):
        if shared := runs[one] & runs[other]:
            have = f"{one} and {other} have {plural(len(shared), 'run')} in common"
            raise UserError(f"meta-analysis: {have}, which would count twice: leave one of them out")


def _one_scale(studies: Studies) -> bool:
    models = (report.cells.study.base.scaled().model for report in studies.reports.values())
    return len({tuple(getattr(model, size) for size in SIZES) for model in models}) == 1


def _scope(studies: Studies) -> str:
    """What the verdicts are over."""
    return "over corpora: this scale" if _one_scale(studies) else "over corpora and scales"


def picture(made: pd.DataFrame, studies: Studies) -> Forest:
    """Corpora as dots, their mean, its interval, around it the interval for an unseen corpus; the paper's beside."""
    metric, names = studies.deciding, list(studies.reports)
    of, scales = METRICS[metric], "One scale" if _one_scale(studies) else "Several scales"
    own = studies.lines[(studies.lines.metric == metric) & studies.lines.lower.notna()]
    order = made[made.metric == metric].sort_values("estimate", ascending=not of.lower_is_better, kind="stable")
    lines, papers = [], []
    for r in order.to_dict("records"):
        by_study = own[own.row == r["row"]]
        dots = [(study, of.in_units(float(x))) for study, x in zip(by_study.study, by_study.estimate, strict=True)]
        papers.append(_paper(studies, r["row"], metric))
        lines.append(studies.line(r["row"], [_entry(r, metric, dots, papers[-1])]))
    return Forest(
        finding([axis_of(of)], lines, lead="on average over corpora "),
        f"{tally(lines, '', '')} {scales}; {', '.join(names)} are taken for a sample of corpora.",
        [axis_of(of)],
        lines,
        published="the paper" * any(paper is not None for paper in papers),
        here="mean over corpora",
        dots="a corpus",
        outer="95 % of unseen corpora",
    )


def _paper(studies: Studies, row: str, metric: str) -> float | None:
    """The paper's own difference in the metric's units, of a row that it has in that metric."""
    rows = (studies.row_in(study, row) for study in studies.reports)
    differences = (of and of.metric(metric).difference for of in rows)
    return next((d.paper_in_print for d in differences if d and d.paper_in_print is not None), None)


def _entry(r: Mapping[str, Any], metric: str, dots: Sequence[tuple[str, float]], paper: float | None) -> Entry:
    unseen = r["unseen lower"], r["unseen upper"]
    (low, high), outer = _drawn(metric, r["lower"], r["upper"]) or (None, None), _drawn(metric, *unseen)
    tip = [f"an unseen corpus, 95 %{', in %' * METRICS[metric].log}: {interval(metric, *unseen)}"]
    estimate = METRICS[metric].in_units(float(r["estimate"]))
    return Entry(estimate, low, high, r["word"], published=paper, dots=dots, outer=outer, tip=tip)


def _drawn(metric: str, low: float, high: float) -> tuple[float, float] | None:
    """An interval in the metric's units, None where it says nothing."""
    of = METRICS[metric]
    return (of.in_units(float(low)), of.in_units(float(high))) if informative(metric, low, high) else None


def _absences(studies: Studies, pooled: Sequence[str]) -> Iterator[str]:
    """Which rows lack an interval in some studies, and why: what diverges there is in no mean."""
    own = studies.lines[(studies.lines.metric == studies.deciding) & studies.lines.lower.notna()]
    there = set(zip(own.row, own.study, strict=True))
    for row in studies.lines.row.unique():
        absent = (study for study in studies.reports if (row, study) not in there)
        whys = [f"{study} ({studies.without_interval(study, row, studies.deciding)})" for study in absent]
        few = "" if row in pooled else f"an interval in fewer than {LEAST} studies, "
        if whys or few:
            yield f"{row}: {few}without {', '.join(whys)}"


def table(made: pd.DataFrame, studies: Studies, metric: str) -> Table:
    of_all = len(studies.reports)
    count = [Column("studies", lines="stu-\ndies")] * bool((made.studies < of_all).any())
    lines = [
        [
            studies.cell(r["row"]),
            *[str(r["studies"])] * len(count),
            signed(metric, r["estimate"]),
            interval(metric, r["lower"], r["upper"]),
            interval(metric, r["unseen lower"], r["unseen upper"]),
            p_value(r["p"]),
            f"{100 * r['I2']:.0f} %",
            verdict_cell(r["word"]),
        ]
        for r in made.to_dict("records")
    ]
    unseen = Column("unseen corpus, 95 %", lines="unseen\ncorpus, 95 %")
    heads = [ROW, *count, DIFFERENCE, Column("95 %"), unseen, P, Column("I²"), VERDICT]
    return Table(f"{unit(metric)}, {of_all} studies; verdicts are {_scope(studies)}", heads, lines, dense=True)


def _notes(made: pd.DataFrame, studies: Studies, families: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What the numbers mean."""
    yield (
        f"verdicts are {_scope(studies)}; they take {', '.join(studies.reports)} for a sample of corpora: difference "
        "and its interval are of the mean over corpora (Paule-Mandel, Hartung-Knapp; degrees of freedom by the "
        "studies' weights), p is corrected over the rows by Benjamini and Hochberg; unseen corpus: where the "
        "difference on another one would lie; I²: share of the spread between studies that seeds do not explain"
    )
    alike = [of for of in families.values() if len(of) > 1]
    yield from (
        f"{', '.join(of)} are of one family of texts, so that they say less than as many corpora" for of in alike
    )
    for metric in (m for m in METRICS if m in set(made.metric)):
        own, of = made[made.metric == metric], METRICS[metric]
        half = median((own["unseen upper"] - own["unseen lower"]) / 2)
        width = f"{half:.2f} of {of.tested_as}" if of.log else f"{half:.1f} {of.tested_as}"
        width = width if informative(metric, -half, half) else f"{NO_INFORMATION} in {of.label}"
        yield f"median half-width of the intervals for an unseen corpus: {width}"
