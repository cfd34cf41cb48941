"""Several studies as one table, a line for each row, study and metric: what `compare`, `meta-analysis` and `scaling`
begin with, and the words that they share.

A line holds the row's difference to base as the metric is tested (stats/statistics.py). The rows are those that at
least two studies have with the same change, the first among them unless all studies stand alike; all others are named
with the reason.
"""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from textwrap import wrap
from typing import Any

import pandas as pd

from lightning_tfm.config import to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, WORD
from lightning_tfm.plural_words import interval as ends
from lightning_tfm.plural_words import listed, plural
from lightning_tfm.plural_words import signed as with_sign
from lightning_tfm.report.blocks import NOTHING, Cell, Column
from lightning_tfm.report.charts.forest import Entry, Line, clause, in_two_lines
from lightning_tfm.report.serialize import rounded
from lightning_tfm.report.stats.statistics import LEAST
from lightning_tfm.report.study_report import Report
from lightning_tfm.report.summary import Summary, SummaryRow
from lightning_tfm.report.tables.columns import name_cell
from lightning_tfm.report.wording.verdict import SAME_SCORES, UNSCORED
from lightning_tfm.report.wording.verdict_words import WORDS, Shift, Verdict
from lightning_tfm.study.command import with_out
from lightning_tfm.study.rows import differences
from lightning_tfm.study.study import HIDDEN, Ablation

OF = ["estimate", "se", "df", "lower", "upper", "p"]
"""of a difference to base, each NaN where it is not known; the interval is at the level of the study's looks"""


def long_table(reports: Sequence[Report], to_first: bool = True) -> tuple[pd.DataFrame, list[str]]:
    """(lines of row, study, metric, n and `OF`; the rows left out, and why). `to_first`: the first study has every row.

    A row that is hidden in any of the studies is there too, flagged in its name. Raises UserError where no row is in
    two of the studies, or their text was edited between them.
    """
    check_same_texts([report.cells.study for report in reports])
    families = {study: family(report.summary) for study, report in by_name(reports).items()}
    metrics, lines, left_out = metrics_of(reports), [], []
    for name in dict.fromkeys(name for rows in families.values() for name, row in rows.items() if not row.base):
        there = {study: rows[name] for study, rows in families.items() if name in rows}
        if reason := why_incomparable(name, there, families, to_first):
            left_out.append(reason)
            continue
        flagged = name + HIDDEN * any(row.name != name for row in there.values())
        for study, row in there.items():
            for metric in metrics:
                d = row.metric(metric).difference
                of = {key: getattr(d, key) for key in OF} if d else {}
                lines.append({"row": flagged, "study": study, "metric": metric, "n": row.n} | of)
    if not lines:
        first, *others = families
        again = with_out(f"lightning-tfm sweep FILE --name {shlex.quote(first)}", reports[0].cells.root)
        raise UserError(
            f"no row is in two of the studies {', '.join(families)}: nothing to compare ({'; '.join(left_out)}); "
            f"for one table of all rows over the same base: {again}, FILE being the sweep file of {listed(others)}, "
            "which trains only what is missing"
        )
    return pd.DataFrame(lines, columns=["row", "study", "metric", "n", *OF]).astype(dict.fromkeys(OF, float)), left_out


def by_name(reports: Sequence[Report]) -> dict[str, Report]:
    """Study -> report; the second of two studies of one name, from other folders, is `name (2)`."""
    named: dict[str, Report] = {}
    for report in reports:
        own = report.summary.study
        alike = sum(earlier.summary.study == own for earlier in named.values())
        named[own + f" ({alike + 1})" * bool(alike)] = report
    return named


def metrics_of(reports: Sequence[Report]) -> list[str]:
    """What all of the studies are tested in; of the nll over other counts than tokens, none."""
    common = set.intersection(*(set(report.summary.metrics) for report in reports))
    return [name for name, metric in METRICS.items() if name in common and not metric.beside]


def family(summary: Summary) -> dict[str, SummaryRow]:
    """Every row by its name; hidden ones too, by the name that they had, unless another row has it now."""
    visible = {row.name: row for row in summary.rows}
    hidden = {row.name[: row.name.rindex(HIDDEN[:-1])]: row for row in summary.hidden or []}
    return visible | {name: row for name, row in hidden.items() if name not in visible}


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


def why_incomparable(
    name: str,
    there: Mapping[str, SummaryRow],
    families: Mapping[str, Mapping[str, SummaryRow]],
    to_first: bool = True,
) -> str:
    """Why the row, in the studies that have it, cannot be compared; empty where it can."""
    (study, row), *others = there.items()
    if not others:
        change = row.change | row.ties
        alike = [(s, r.name) for s, rows in families.items() for r in rows.values() if r.change | r.ties == change]
        renamed = next((f"; {s} calls it {other}" for s, other in alike if other != name), "")
        return f"{name}: only in {study}{renamed}"
    first = next(iter(families))
    if to_first and study != first:
        return f"{name}: not in {first}, which the others are compared with"
    for other, of in there.items():
        if of.same_as:
            return f"{name}: is {of.same_as} in {other}"
    for other, of in others:
        if of.change != row.change and of.change | of.ties != row.change | row.ties:
            return f"{name}: changes {of.change} in {other}, {row.change} in {study}"
    return ""


# --- what else is said of the studies ---


@dataclass(frozen=True)
class Studies:
    """Several studies, the first of which the others are compared with (`to_first`), or all alike."""

    reports: dict[str, Report]
    lines: pd.DataFrame
    left_out: list[str]
    metrics: list[str]
    labels: dict[str, str]
    """row -> what people call it, in the first study that has it"""
    titles: dict[str, str]
    """study -> its title with its name beside it, or the name where the title does not tell it from another one"""

    @classmethod
    def of(cls, reports: Sequence[Report], to_first: bool = True) -> "Studies":
        """Raises UserError as `long_table` does."""
        named = by_name(reports)
        titles = {study: report.summary.title for study, report in named.items()}
        counts = Counter(titles.values())
        return cls(
            named,
            *long_table(reports, to_first),
            metrics_of(reports),
            {row.name: row.called for report in reversed(reports) for row in report.summary.rows},
            {study: f"{title} ({study})" if title and counts[title] == 1 else study for study, title in titles.items()},
        )

    def heading(self, what: str) -> str:
        """Over an analysis of them; the title that all share goes first."""
        shared = {report.summary.title for report in self.reports.values()} if len(self.reports) > 1 else set()
        first = f"{shared.pop()}: " if len(shared) == 1 and "" not in shared else ""
        return f"{first}{', '.join(self.titles.values())} {what}"

    @property
    def question(self) -> str:
        """Theirs, each once."""
        return " ".join(dict.fromkeys(report.summary.question for report in self.reports.values()))

    @property
    def deciding(self) -> str:
        """The metric that decides: nll per word where that is compared, else perplexity."""
        return WORD.name if WORD.name in self.metrics else self.metrics[0]

    @cached_property
    def families(self) -> dict[str, dict[str, SummaryRow]]:
        """Study -> every row of it, hidden ones too (`family`)."""
        return {study: family(report.summary) for study, report in self.reports.items()}

    def row_in(self, study: str, row: str) -> SummaryRow | None:
        """A row of `lines` as the study has it."""
        return self.families[study].get(row.removesuffix(HIDDEN))

    def without_interval(self, study: str, row: str, metric: str) -> str:
        """Why a row has no interval in a study."""
        of = self.row_in(study, row)
        if of is None:
            return "no such row"
        d = of.metric(metric).difference
        e, why = (d.evidence, d.why) if d else (None, UNSCORED)
        if e is None:
            return why + " of base" * (why == UNSCORED and of.metric(metric).mean is not None)
        if min(e.n, e.n_base) == 1:
            return "1 seed" + " of base" * (e.n > 1)
        return why if e.se is None else SAME_SCORES

    def called(self, row: str) -> str:
        return self.labels.get(row, row)

    def cell(self, row: str) -> str | Cell:
        """Of a table, the row."""
        return name_cell(row, self.labels)

    def line(self, row: str, entries: Sequence[Entry | None]) -> Line:
        """Of a picture."""
        return Line(self.called(row), entries, row * (self.called(row) != row))

    def shared_runs(self, row: str = "") -> list[str]:
        """Runs that several of the studies have, of a row or of all."""
        times = Counter(run for report in self.reports.values() for run in runs_of(report, row))
        return sorted(run for run, n in times.items() if n > 1)

    @property
    def sides(self) -> list[dict[str, Any]]:
        """Of each study its corpus, the scores of its base, in what that differs from the first's, and whether its
        seeds were added after looking, for which no p here is corrected."""
        (first, of_first), *_ = self.reports.items()
        first_base, sides = to_dict(of_first.cells.study.base), []
        for study, report in self.reports.items():
            s, base = report.summary, to_dict(report.cells.study.base)
            scores = {f"base {METRICS[m].key}": s.base.metric(m).mean if s.base else None for m in self.metrics}
            apart = {"apart": differences(first_base, base, f"{first} has"), "looks": s.looks is not None}
            sides.append({"study": study, "corpus": s.corpus} | scores | apart)
        return sides


def runs_of(report: Report, row: str = "") -> frozenset[str]:
    """The first 16 digits of the runs of a row, by default of all."""
    names, filled = {row, row.removesuffix(HIDDEN)}, report.cells.filled.values()
    return frozenset(cell.record.training_hash[:16] for cell in filled if not row or cell.row in names)


ROW, VERDICT = Column("row", words=True), Column("verdict", words=True)
P = Column("p (BH)", lines="p\n(BH)", slim=True)
DIFFERENCE = Column("difference", lines="differ-\nence")
NO_INFORMATION = "no information"
TIMES, POINTS = 10, 100
"""an interval says nothing that reaches beyond so many times base's score or below its so manieth part; of what is not
tested as a logarithm, beyond so many points"""


def signed(metric: str, value: float) -> str:
    """A difference with its sign, in percent without the sign of percent; a dash for NaN."""
    return (
        NOTHING if math.isnan(value) else with_sign(METRICS[metric].in_units(value), METRICS[metric].difference_digits)
    )


def informative(metric: str, low: float, high: float) -> bool:
    """Whether an interval as tested says anything."""
    return max(-low, high) < (math.log(TIMES) if METRICS[metric].log else POINTS)


def interval(metric: str, low: float, high: float) -> str:
    """[lower, upper]; empty where there is none."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return ends(low, high, lambda end: signed(metric, end)) if informative(metric, low, high) else NO_INFORMATION


def unit(metric: str) -> str:
    """Of a table of differences."""
    return f"dev {METRICS[metric].label} to base{', %' * METRICS[metric].log}"


def verdict_cell(verdict: str) -> Cell:
    """A word with its mark, or why there is none."""
    return Cell(verdict, word=verdict if verdict in WORDS else "")


def narrow(head: str) -> str:
    """A name over a column of numbers, in lines."""
    return "\n".join(wrap(head, 9, break_long_words=True))


def records(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """For JSON and CSV, each number at ten significant digits, None for NaN."""
    return [rounded(dict(zip(lines.columns, line, strict=True))) for line in lines.itertuples(index=False)]


def finding(changes: pd.DataFrame, studies: Studies, first: str, other: str) -> tuple[str, str]:
    """(which rows' differences to base change most from one study to the other, in a sentence; how many do what).

    `changes`: row, difference (of the two) and verdict, in the metric that decides.
    """
    both = changes[changes.difference.notna()]
    if both.empty:
        return f"Nothing in {other} can be compared with {first}.", ""
    both = both.reindex(both.difference.abs().sort_values(ascending=False, kind="stable").index)
    rows = {word: [studies.called(row) for row in both[both.verdict == word].row] for word in Shift}
    tested, every = sum(map(len, rows.values())), list(map(studies.called, both.row))

    def sentence(most: int) -> str:
        if not tested:
            ways = ("differs", "differ")
            return f"{clause(every[:most], len(every), ways)} between {first} and {other}, but nothing is tested."
        parts = [clause(rows[word][:most], len(rows[word]), word.clause) for word in Shift if word.found and rows[word]]
        if not parts:
            return f"No change is shown to do more or less in {other} than in {first}."
        return "; ".join(parts) + f" from {first} to {other}."

    counts = [f"{len(of)} {word.clause[len(of) > 1]}" for word, of in rows.items() if of]
    return in_two_lines(sentence), f"Of {plural(tested, 'change')} {'; '.join(counts)}." if tested else ""


def seeds_missing(changes: pd.DataFrame, first: str, other: str) -> str:
    """Which of two studies has too few seeds for a test, in a sentence; empty where none has."""
    untested = changes[changes.verdict == Verdict.UNTESTABLE]
    few = {study: int(n.max()) for study, n in ((first, untested.n_1), (other, untested.n)) if (n < LEAST).any()}
    listed = " and ".join(f"{study} has {n}" for study, n in few.items())
    return f"A verdict takes {LEAST} seeds in each; {listed}." if few else ""
