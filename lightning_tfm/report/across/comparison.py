"""`compare`: what each row does in several studies, and whether it does more in one than in another.

Of a row in study k and in the first one the difference of differences (row_k - base_k) - (row_1 - base_1) is tested:
its squared error is the sum of both differences' own (stats/statistics.py), its degrees of freedom Satterthwaite's.
What the studies share, runs or a dev text, makes the two differences alike, so the sum is never too small for them. In
each study and metric the rows are one family, corrected by Benjamini and Hochberg. A row without a p in either study,
as with fewer seeds than a verdict needs, has only its interval.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
import pandas as pd

from lightning_tfm.metrics import METRICS
from lightning_tfm.plural_words import p_value, plural
from lightning_tfm.report.across.long_table import (
    DIFFERENCE,
    ROW,
    VERDICT,
    P,
    Studies,
    finding,
    interval,
    narrow,
    records,
    runs_of,
    seeds_missing,
    signed,
    unit,
    verdict_cell,
)
from lightning_tfm.report.blocks import NOTHING, Block, Column, Main, Notes, Section, Table
from lightning_tfm.report.charts.forest import Entry, Forest
from lightning_tfm.report.charts.study_forest import axis_of
from lightning_tfm.report.render.every_format import Document
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import ALPHA, Estimate
from lightning_tfm.report.study_report import Report
from lightning_tfm.report.wording.verdict_words import WORDS, Shift, Verdict

AXES = 2
"""metrics in a picture"""
NO_INTERVAL = "no interval"


# --- the numbers ---


def difference_of(one: Estimate, other: Estimate) -> Estimate:
    """The difference of two differences to base, which are arrays."""
    a, b = np.square(one.se), np.square(other.se)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = (a + b) ** 2 / (a**2 / one.df + b**2 / other.df)
    return Estimate(np.asarray(one.estimate) - other.estimate, np.sqrt(a + b), df)


Cells = Set[tuple[str, str]]
"""(row, study)"""


def changes_between(lines: pd.DataFrame, same: Cells = frozenset(), diverged: Cells = frozenset()) -> pd.DataFrame:
    """Every other study against the first of `lines` (long_table.py), whose columns end in _1: also the difference of
    differences, low and high of its marginal 95 % interval, p_BH and the verdict, or why there is none.

    `same`: those whose runs are those of the first study; `diverged`: those of which seeds diverged.
    """
    first, *others = lines.study.unique()
    of_first = lines[lines.study == first]
    parts = [
        of_first.merge(lines[lines.study == k], "left", on=["row", "metric"], suffixes=("_1", "")).assign(study=k)
        for k in others
    ]
    both = pd.concat(parts, ignore_index=True)
    d = difference_of(
        *(Estimate(*(both[key + end].to_numpy() for key in ("estimate", "se", "df"))) for end in ("", "_1"))
    )
    low, high = d.interval()
    alike = [pair in same for pair in zip(both.row, both.study, strict=True)]
    apart = [bool({(row, first), (row, k)} & diverged) for row, k in zip(both.row, both.study, strict=True)]
    reasons = {
        "no such row": both.n.isna(),
        "the same runs": alike,
        Verdict.DIVERGED.value: apart,
        NO_INTERVAL: np.isnan(d.estimate + d.se + d.df),
        Verdict.UNTESTABLE.value: both.p.isna() | both.p_1.isna(),
    }
    why = np.select(list(reasons.values()), list(reasons), "")
    both = both.assign(difference=d.estimate, low=low, high=high, p_BH=np.where(why == "", d.two_sided, np.nan))
    both.loc[alike, ["difference"]] = np.nan
    both.loc[~np.isin(why, ["", Verdict.UNTESTABLE.value]), ["low", "high"]] = np.nan
    families = both.groupby(["study", "metric"])["p_BH"]
    both["p_BH"] = families.transform(lambda p: benjamini_hochberg(p.to_numpy()))
    return both.assign(verdict=np.where(why == "", shift_verdicts(both), why))


def shift_verdicts(both: pd.DataFrame) -> np.ndarray:
    """A `Shift` for each line, from the first study to the other."""
    side_1, side = (np.sign(both["lower" + end]) + np.sign(both["upper" + end]) for end in ("_1", ""))
    rules = {
        Shift.TURNS: (both.p_BH < ALPHA) & (side_1 * side == -4),
        Shift.GROWS: (both.p_BH < ALPHA) & (both.estimate.abs() > both.estimate_1.abs()),
        Shift.SHRINKS: both.p_BH < ALPHA,
        Shift.HOLDS: np.maximum(-both.low, both.high) < both.estimate_1.abs() / 2,
    }
    return np.select(list(rules.values()), [word.value for word in rules], Shift.CANNOT_TELL.value)


# --- for people ---


def compare(reports: Sequence[Report]) -> Document:
    """The studies of `reports`, each after the first against the first. Raises UserError where no row is in two."""
    studies = Studies.of(reports)
    (first, of_first), *others = studies.reports.items()
    mine = {row: runs_of(of_first, row) for row in studies.lines.row.unique()}
    same = {(row, k) for k, report in others for row, runs in mine.items() if runs and runs == runs_of(report, row)}
    diverged = {(row, k) for row in mine for k in studies.reports if (of := studies.row_in(k, row)) and of.diverged}
    both = changes_between(studies.lines, same, diverged)
    for r in both[both.verdict == NO_INTERVAL].itertuples():
        lacks = r.study if np.isnan(r.lower) else first
        both.loc[r.Index, "verdict"] = studies.without_interval(lacks, r.row, r.metric)
    forests = [picture(of, studies, first, k) for k, of in both.groupby("study", sort=False)]
    pictures: list[Block] = [Main(f, f.title * (len(forests) > 1)) for f in forests if f.lines]
    tables = [table(of, studies, first, k, metric) for (k, metric), of in both.groupby(["study", "metric"], sort=False)]
    data, shared = _data(studies.lines, both), studies.shared_runs()
    return Document(
        studies.heading("side by side"),
        studies.question,
        "comparison",
        f"{plural(len(mine), 'row')} in {len(studies.reports)} studies",
        [
            Section("rows", "Rows", pictures),
            Section("tables", "Differences of differences", tables),
            Section("method", "How to read this", [Notes([*_notes(studies, both), *studies.left_out])]),
        ],
        data,
        {"sides": studies.sides, "rows": data, "shared": shared, "left out": studies.left_out},
        schema=3,
        headline=[f.title for f in forests],
        scope=forests[0].scope if len(forests) == 1 else "",
    )


def picture(both: pd.DataFrame, studies: Studies, first: str, other: str) -> Forest:
    """Each row's difference to base in the second of two studies, beside that in the first."""
    decides = studies.deciding
    metrics = [decides, *(m for m in studies.metrics if m != decides)][:AXES]
    entries: dict[str, list[Entry | None]] = {row: [] for row in both.row}
    for metric in metrics:
        for r in both[both.metric == metric].itertuples():
            entries[r.row].append(_entry(r, metric, first, other))
    decided = both[both.metric == decides]
    order = decided.difference.abs().sort_values(ascending=False, kind="stable").index
    lines = [studies.line(row, entries[row]) for row in decided.row.loc[order] if any(entries[row])]
    title, scope = finding(decided, studies, first, other)
    return Forest(
        title,
        " ".join(filter(None, [scope, seeds_missing(decided, first, other)])),
        [axis_of(METRICS[metric]) for metric in metrics],
        lines,
        published=first,
        asks="Another size there?",
        here=studies.titles[other],
        beside=studies.titles[first],
    )


def _entry(r: Any, metric: str, first: str, other: str) -> Entry | None:
    """Its interval at 95 %, after looks too."""
    if np.isnan(r.estimate):
        return None
    ends = Estimate(r.estimate, r.se, r.df).interval() if not np.isnan(r.lower) else (np.nan, np.nan)
    before, low, high = (None if np.isnan(x) else METRICS[metric].in_units(float(x)) for x in (r.estimate_1, *ends))
    apart = f"{signed(metric, r.difference)} {interval(metric, r.low, r.high) or r.verdict}"
    words = f"{other} less {first}{' in %' * METRICS[metric].log}: {apart}"
    verdict = r.verdict if r.verdict in WORDS else Verdict.UNTESTABLE.value
    return Entry(METRICS[metric].in_units(r.estimate), low, high, verdict, published=before, tip=[words])


def table(both: pd.DataFrame, studies: Studies, first: str, other: str, metric: str) -> Table:
    of_studies = [Column(study, lines=narrow(study)) for study in (first, other)]
    lines = [
        [
            studies.cell(r.row),
            f"{r.n_1:.0f}/{NOTHING if np.isnan(r.n) else f'{r.n:.0f}'}",
            *(signed(metric, value) for value in (r.estimate_1, r.estimate, r.difference)),
            interval(metric, r.low, r.high) or NOTHING,
            p_value(r.p_BH),
            verdict_cell(r.verdict),
        ]
        for r in both.itertuples()
    ]
    heads = [ROW, Column("n"), *of_studies, DIFFERENCE, Column("95 %"), P, VERDICT]
    title = f"{studies.titles[other]} against {studies.titles[first]}: {unit(metric)}"
    return Table(title, heads, lines, dense=True)


def _notes(studies: Studies, both: pd.DataFrame) -> Iterator[str]:
    """What the numbers mean, and what is not the same in the studies."""
    (first, of_first), *_ = studies.reports.items()
    ratio = ", of perplexities their ratio" * any(METRICS[metric].log for metric in studies.metrics)
    yield (
        f"difference: the row's difference to base minus that in {first}{ratio}; intervals are marginal, p is "
        "corrected over the rows by Benjamini and Hochberg; where nothing differs, at most 5.4 % of metrics hold a "
        "false one in simulated studies of five seeds (benchmarks/results/effects.txt)"
    )
    if words := [f"{word}: {word.means}" for word in Shift if word in set(both.verdict)]:
        yield f"verdicts, from {first} to the other study: {'; '.join(words)}"
    for side in studies.sides:
        scores = {METRICS[m].label: side[f"base {METRICS[m].key}"] for m in studies.metrics}
        values = ", ".join(f"{label} {NOTHING if x is None else f'{x:.2f}'}" for label, x in scores.items())
        yield f"{side['study']}: corpus {side['corpus']}, base {values}"
        if side["apart"]:
            yield f"{side['study']}: {'; '.join(side['apart'])}"
        if side["looks"]:
            yield f"{side['study']}: its seeds were added after looking, which p is not corrected for here"
    if runs := studies.shared_runs():
        rows = {row: len(studies.shared_runs(row)) for row in studies.labels}
        listed = ", ".join(f"{row} {n}" for row, n in rows.items() if n and row != of_first.cells.study.base_row)
        yield f"{plural(len(runs), 'run')} shared ({listed or 'of base'}): their differences share noise"


def _data(lines: pd.DataFrame, both: pd.DataFrame) -> list[dict[str, Any]]:
    """A line for each row, study and metric, at full precision; differences as the metric is tested."""
    tested = both[["row", "study", "metric", "difference", "low", "high", "p_BH", "verdict"]]
    joined = lines.drop(columns=["lower", "upper", "p"]).merge(tested, "left", on=["row", "study", "metric"])
    heads = dict(estimate="difference to base", difference="difference of differences", low="lower", high="upper")
    return records(joined.rename(columns=heads | {"p_BH": "p (BH)"}))
