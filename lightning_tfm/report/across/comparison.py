"""Studies side by side: what each row does in each of them, and whether it does more in one than in another.

Of a row in study k and in the first one the difference of differences (row_k - base_k) - (row_1 - base_1) is tested:
its squared error is the sum of both differences' own (stats/statistics.py), its degrees of freedom Satterthwaite's.
What the studies share, runs or a dev text, makes the two differences alike, so the sum is never too small for them. In
each study and metric the rows are one family, corrected by Benjamini and Hochberg. A row without a p in either study,
as with fewer seeds than a verdict needs, has only its interval.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

from lightning_tfm.config import to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS
from lightning_tfm.report.build import Report
from lightning_tfm.report.row import Difference, SummaryRow
from lightning_tfm.report.stats.multiplicity import adjusted
from lightning_tfm.report.stats.statistics import Estimate
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.to_json import rounded
from lightning_tfm.report.wording.word import UNTESTABLE
from lightning_tfm.study.rows import differences
from lightning_tfm.study.study import HIDDEN, Ablation


@dataclass(frozen=True)
class Against:
    """A row's difference to base in one study, minus that in the first study; as the metric is tested."""

    estimate: float | None = None
    lower: float | None = None
    """of the marginal 95 % interval, as is `upper`"""
    upper: float | None = None
    p: float | None = None
    """corrected over the rows by Benjamini and Hochberg"""
    why: str = ""
    """why there is no test, or no interval either"""


@dataclass(frozen=True)
class Place:
    """A row in one study."""

    n: int
    difference: dict[str, Difference | None]
    """metric -> to base"""
    against: dict[str, Against] = field(default_factory=dict)
    """metric -> to the first study; empty in the first"""


@dataclass(frozen=True)
class ComparedRow:
    """A row that several studies have."""

    name: str = field(metadata={"key": "row"})
    places: list[Place | None]
    """by study; None where it has no such row, or one with another change"""
    same_runs: int
    """runs of this row that at least two of the studies share"""


@dataclass(frozen=True)
class Side:
    """One of the studies."""

    study: str
    corpus: str
    base: dict[str, float | None] = field(metadata={"by metric": "base "})
    """metric -> score of its base"""
    apart: list[str]
    """in what its base differs from the first study's"""
    looks: bool
    """its seeds were added after looking, which the p of a comparison is not corrected for"""


@dataclass(frozen=True)
class Asked:
    """What the studies of an analysis ask."""

    titles: dict[str, str] = field(default_factory=dict)
    """study -> what people call it, which may be empty"""
    question: str = ""
    """theirs, each once"""

    def of(self, study: str) -> str:
        """Its title with its name beside it, or the name where the title does not tell it from another one."""
        title = self.titles.get(study, "")
        return f"{title} ({study})" if title and [*self.titles.values()].count(title) == 1 else study

    def heading(self, names: Sequence[str], what: str) -> str:
        """Over an analysis of them; the title that all share goes first."""
        shared = {*self.titles.values()} if len(names) > 1 else set()
        first = f"{shared.pop()}: " if len(shared) == 1 and "" not in shared else ""
        return f"{first}{', '.join(map(self.of, names))} {what}"


@dataclass(frozen=True)
class Comparison:
    """Everything `compare` says."""

    sides: list[Side]
    rows: list[ComparedRow]
    shared: list[str]
    """runs (first 16 digits) that at least two of the studies share"""
    left_out: list[str]
    """rows that cannot be compared, and why"""
    labels: dict[str, str] = field(default_factory=dict, metadata={"key": ""})
    """row -> what people call it"""
    asked: Asked = field(default_factory=Asked, metadata={"key": ""})

    @property
    def metrics(self) -> list[str]:
        """What all of the studies are tested in, but no nll over another count than pieces."""
        return [*self.sides[0].base]


def compare(reports: list[Report]) -> Comparison:
    """The studies of `reports`, each after the first against the first. Raises UserError where no row is in two."""
    check_same_texts([report.cells.study for report in reports])
    summaries = [report.summary for report in reports]
    families = [family(summary) for summary in summaries]
    names = list(dict.fromkeys(name for one in families for name, row in one.items() if not row.base))
    common = set.intersection(*(set(summary.metrics) for summary in summaries))
    metrics = [name for name, metric in METRICS.items() if name in common and not metric.beside]
    labels = {row.name: row.label for summary in reversed(summaries) for row in summary.rows}
    rows, left_out = [], []
    for name in names:
        found = [one.get(name) for one in families]
        reason = _incomparable(name, found, summaries)
        if reason:
            left_out.append(reason)
        else:
            flagged = name + HIDDEN * any(row is not None and row.name != name for row in found)
            rows.append(ComparedRow(flagged, [_place(row, metrics) for row in found], len(_shared(reports, flagged))))
    if not rows:
        studies = ", ".join(s.study for s in summaries)
        raise UserError(f"no row is in two of the studies {studies}: nothing to compare ({'; '.join(left_out)})")
    for k in range(1, len(summaries)):
        column = [_against(row, k, _runs(reports[0], row.name), _runs(reports[k], row.name)) for row in rows]
        rows = [_with(row, k, against) for row, against in zip(rows, _corrected(column), strict=True)]
    sides = [
        Side(
            s.study,
            s.corpus,
            {name: s.base.metric(name).mean if s.base else None for name in metrics},
            _apart(reports[0], report),
            s.looks is not None,
        )
        for s, report in zip(summaries, reports, strict=True)
    ]
    asked = Asked({s.study: s.title for s in summaries}, " ".join(dict.fromkeys(s.question for s in summaries)))
    return rounded(Comparison(sides, rows, sorted(_shared(reports, None)), left_out, labels, asked))


def family(summary: Summary) -> dict[str, SummaryRow]:
    """Every row by its name; hidden ones too, by the name that they had, unless another row has it now."""
    shown = {row.name: row for row in summary.rows}
    hidden = {row.name[: row.name.rindex(HIDDEN[:-1])]: row for row in summary.hidden or []}
    return shown | {name: row for name, row in hidden.items() if name not in shown}


UNTRAINED: dict[str, Any] = dict.fromkeys(("test", "long", "long_from", "max_len"))
"""fields of the data that change neither the training text nor the dev text"""


def check_same_texts(studies: Sequence[Ablation]) -> None:
    """Raise UserError where two studies name the same text and were not trained or scored on the same."""
    for one, other in combinations(studies, 2):
        named = [asdict(study.base.data) | UNTRAINED for study in (one, other)]
        changed = [role for role in one.prints.differing(other.prints) if role in ("train", "dev")]
        if changed and named[0] == named[1]:
            role, data = changed[0], one.base.data
            raise UserError(
                f"{one.name} and {other.name} cannot be compared: both have data.corpus={data.corpus} and data.{role}="
                f"{getattr(data, role)}, but that text was edited between them (fingerprints "
                f"{getattr(one.prints, role)[:12]}… and {getattr(other.prints, role)[:12]}… in study.json): run one of "
                "them again on the other's text under its own --name"
            )


def _incomparable(name: str, found: list[SummaryRow | None], summaries: list[Summary]) -> str:
    there = [(row, s.study) for row, s in zip(found, summaries, strict=True) if row is not None]
    if len(there) < 2:
        return f"{name}: only in {there[0][1]}{_renamed(there[0][0], summaries)}"
    if found[0] is None:
        return f"{name}: not in {summaries[0].study}, which the others are compared with"
    for row, study in there:
        if row.same_as:
            return f"{name}: is {row.same_as} in {study}"
    for row, study in there[1:]:
        if row.change != found[0].change and row.change | row.ties != found[0].change | found[0].ties:
            return f"{name}: changes {row.change} in {study}, {found[0].change} in {summaries[0].study}"
    return ""


def _renamed(row: SummaryRow, summaries: list[Summary]) -> str:
    """Where another study has the same change under another name."""
    change = row.change | row.ties
    others = ((s.study, other.name) for s in summaries for other in s.rows if other.change | other.ties == change)
    found = next(((there, name) for there, name in others if name != row.name), None)
    return f"; {found[0]} calls it {found[1]}" if found else ""


def _place(row: SummaryRow | None, metrics: list[str]) -> Place | None:
    return None if row is None else Place(row.n, {name: row.metric(name).difference for name in metrics})


def _runs(report: Report, name: str | None) -> set[str]:
    filled = report.cells.filled.values()
    names = {name, name.removesuffix(HIDDEN)} if name else set()
    return {cell.record.training_hash[:16] for cell in filled if not name or cell.row in names}


def _shared(reports: list[Report], name: str | None) -> set[str]:
    """Runs that several of the studies have, of one row or of all."""
    count: dict[str, int] = {}
    for report in reports:
        for run in _runs(report, name):
            count[run] = count.get(run, 0) + 1
    return {run for run, times in count.items() if times > 1}


def _against(row: ComparedRow, k: int, runs: set[str], other_runs: set[str]) -> dict[str, Against]:
    one, other = row.places[0], row.places[k]
    assert one is not None, "rows that the first study lacks are left out"
    if other is None:
        return {metric: Against(why="no such row") for metric in one.difference}
    if runs and runs == other_runs:
        return {metric: Against(why="the same runs") for metric in one.difference}
    return {metric: minus(other.difference[metric], d) for metric, d in one.difference.items()}


def minus(one: Difference | None, other: Difference | None) -> Against:
    """The difference of two differences to base, tested where both are; `p` is not corrected yet."""
    if one is None or other is None or one.estimate is None or other.estimate is None:
        return Against(why="no scores")
    estimate = one.estimate - other.estimate
    if None in (one.se, one.df, other.se, other.df):
        return Against(estimate, why="single seed")
    (a, f), (b, g) = ((d.se or 0.0, d.df or 1.0) for d in (one, other))
    squared = a**2 + b**2
    if squared == 0:
        return Against(estimate, why="equal seeds")
    found = Estimate(estimate, math.sqrt(squared), squared**2 / (a**4 / f + b**4 / g))
    low, high = found.interval()
    if one.p is None or other.p is None:
        return Against(estimate, float(low), float(high), why=UNTESTABLE)
    return Against(estimate, float(low), float(high), found.two_sided)


def _corrected(column: list[dict[str, Against]]) -> list[dict[str, Against]]:
    """Each metric over its rows."""
    by_metric = {metric: adjusted([against[metric].p for against in column]) for metric in column[0]}
    return [{m: replace(one, p=by_metric[m][i]) for m, one in against.items()} for i, against in enumerate(column)]


def _with(row: ComparedRow, k: int, against: dict[str, Against]) -> ComparedRow:
    places = list(row.places)
    if (place := places[k]) is not None:
        places[k] = replace(place, against=against)
    return replace(row, places=places)


def _apart(first: Report, other: Report) -> list[str]:
    one, two = (to_dict(report.cells.study.base) for report in (first, other))
    return differences(one, two, f"{first.summary.study} has")
