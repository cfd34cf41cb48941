"""Records -> the summary, cells -> the tested one: the one place where the statistics meet the table.

Pure functions: the same records give the same bytes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from lightning_tfm.config import Experiment, Miniature, Model
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import CHARACTER, METRICS, OF_TEXT, PPL, PRINTED, Metric, paper_metrics
from lightning_tfm.model.size import count_parameters
from lightning_tfm.registry import CORPORA
from lightning_tfm.report.analyses.catalog import ANALYSES
from lightning_tfm.report.analyses.compute_multiplier import with_worth
from lightning_tfm.report.blocks import NOTHING
from lightning_tfm.report.records import Cells
from lightning_tfm.report.sequential import evidence_over_looks
from lightning_tfm.report.serialize import rounded
from lightning_tfm.report.significance import Key, row_evidence
from lightning_tfm.report.stats.evidence import Evidence, untested_evidence
from lightning_tfm.report.stats.statistics import ALPHA
from lightning_tfm.report.summary import Difference, Percent, Scores, Summary, SummaryRow
from lightning_tfm.report.tables import columns
from lightning_tfm.report.wording import claims, verdict
from lightning_tfm.report.wording.outlier_seeds import outlier_seeds
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.runs.record import Missing, RunRecord
from lightning_tfm.study.rows import Paper, Row
from lightning_tfm.study.sequential import NOT_ASKED, Course
from lightning_tfm.study.study import Ablation, own_name

BEFORE = "before the first interim analysis"
ADDED = "seeds were added by verdicts against base, which no p against another row is corrected for"


# --- records -> rows ---


def tabulate(cells: Cells) -> Summary:
    """The study's rows, without tests and analyses."""
    study, signatures = cells.study, cells.signatures
    fields = columns.columns_of(study.rows)
    base = columns.values_of(study.base.scaled("base"), fields)
    twins = study.twins()
    every = [replace(_row(cells, row, fields, base), same_as=twins.get(row.name)) for row in study.every_row]
    rows, hidden = every[: len(study.rows)], every[len(study.rows) :]
    if not columns.of_the_paper(rows):
        rows = [replace(row, paper=Paper(None, None, None)) for row in rows]
    names = {row.name for row in every if row.same_as is None}  # a row with another's experiment has no runs of its own
    finished = len(cells.runs)
    apart = {row.name for row in hidden}
    missing = [why for (row, _), why in cells.empty.items() if row in names - apart]
    m, data = study.base.miniature, study.base.data
    parts = [f"{name} ÷ {by}" for name, by in (("width", m.width), ("depth", m.depth), ("steps", m.steps)) if by != 1]
    return Summary(
        study=study.name,
        title=study.title,
        question=study.question,
        scale=", ".join(parts),
        signature=signatures.pop(OF_TEXT.name, ""),
        signatures=signatures or None,
        seeds=study.seeds,
        corpus=data.corpus,
        text=CORPORA.traits(data.corpus).label or Path(data.folder).name,
        languages=[language for language in data.languages if language],
        clear={name: METRICS[name].clear for name in paper_metrics(data.translated)},
        finished=finished,
        cells=finished + sum(why.reason != NOT_ASKED for why in missing),
        rows=rows,
        hidden=hidden or None,
        foreign=_not_comparable(study, study.base_row),
    )


def _row(cells: Cells, row: Row, fields: dict[str, columns.Where], base: Mapping[str, Any]) -> SummaryRow:
    study, exact = cells.study, cells.study.exact(row)
    values, typed = columns.values_of(exact, fields), columns.values_of(study.written(row), fields)
    missing, runs, diverged = {}, {}, cells.diverged.get(row.name, [])
    for seed in study.seeds:
        if (row.name, seed) in cells.filled:
            runs[str(seed)] = cells.filled[row.name, seed].record
        else:
            missing[str(seed)] = cells.empty.get((row.name, seed), Missing("not asked for")).reason
    counts = {record.parameters.total for record in runs.values()}
    n = len(runs) + len(diverged)
    instead = f"{Verdict.DIVERGED} ({len(diverged)} of {n})" if diverged else NOTHING
    every = {name: _scores(metric, {} if diverged else runs) for name, metric in METRICS.items()}
    scores = {name: every[name] or Scores(None, None, {}) for name in paper_metrics(exact.data.translated)}
    return SummaryRow(
        group=row.group,
        name=row.name,
        base=row.name == study.base_row,
        change=row.change,
        ties=row.ties,
        values=values,
        blank=sorted(name for name in values if values[name] == base[name] and row.name != study.base_row),
        parameters=counts.pop() if len(counts) == 1 else _parameter_count(exact.model, study.data_of(row).V),
        n=n,
        diverged=diverged or None,
        flops=mean(record.flops for record in runs.values()) if runs else None,
        seconds=mean(record.seconds.total for record in runs.values()) if runs else None,
        paper=row.paper,
        missing=missing,
        scores=scores | {PPL.name: replace(scores[PPL.name], instead=instead)},
        more={name: own for name, own in every.items() if own and not METRICS[name].printed},
        elsewhere=row.elsewhere or None,
        label=row.label,
        typed={name: value for name, value in typed.items() if value != values[name]},
        character=_scores(CHARACTER, {} if diverged else runs),
    )


def _scores(metric: Metric, runs: Mapping[str, RunRecord]) -> Scores | None:
    """None unless every run has the number: records of before it was kept have none."""
    values = {seed: metric.of(record.scores["dev"]) for seed, record in runs.items()}
    by_seed = {seed: value for seed, value in values.items() if value is not None}
    if not by_seed or len(by_seed) < len(values):
        return None
    return Scores(metric.mean(by_seed.values()), metric.sd(by_seed.values()), by_seed)


def _parameter_count(model: Model, V: int) -> int | None:
    try:
        return count_parameters(model, V)["total"]
    except UserError:  # a user-defined scheme, before its first record
        return None


# --- cells -> summary ---


def summarise_untested(cells: Cells) -> Summary:
    """The rows with what needs no test: of cells without sentences, too."""
    table = tabulate(cells)
    rows = [*table.rows, *(table.hidden or [])]
    rows = with_worth(rows, cells.study, cells.comparable.curves, cells.study.base_row)
    return with_analyses(_with_rows(table, rows), cells)


def summarise(cells: Cells) -> Summary:
    """The report's data, of cells with sentences."""
    table, tested_cells, course = tabulate(cells), cells.comparable, cells.course
    every = [*table.rows, *(table.hidden or [])]
    shares = course.plan.shares[: max(len(course.looks), 1)] if course and not cells.reference else [1.0]
    printed = any(row.paper.printed for row in table.rows if row.name == cells.reference)
    if cells.reference and not printed:  # the paper says nothing of differences to it
        every = [replace(row, paper=Paper(None, None, None)) for row in every]
    paper, full_size = paper_differences(every, cells.against), _full_size(cells.study.base)
    names = [row.name for row in every if row.same_as is None]
    looks = _each_look(tested_cells, [name for name in names if name not in cells.diverged], paper, full_size, course)
    evidence = evidence_over_looks(looks)
    far = outlier_seeds({name: {c.seed: math.log(c.ppl) for c in tested_cells.of(name)} for name in names})

    def tested(row: SummaryRow) -> SummaryRow:
        missing = {seed: why for seed, why in row.missing.items() if why != NOT_ASKED}
        row = replace(row, missing=missing, far_above=far.get(row.name, []))
        alone = row.name == cells.against or row.same_as
        row = row if alone else _with_differences(row, evidence, paper, full_size, cells.reference or "base")
        if not alone and (row.diverged or cells.against is None or cells.against in cells.diverged):
            why = f"seeds of {cells.reference or 'base'} diverged" if cells.against else f"{verdict.UNSCORED} of base"
            row = _untested_row(row, why)
        if row.name in cells.foreign and not row.same_as:
            why = f"another vocabulary than {cells.reference or 'base'}: see the NLL per reference word"
            not_compared = Difference(Verdict.INCOMPARABLE, why, None)
            row = row.with_metrics({PPL.name: replace(row.ppl, difference=not_compared)})
        return row

    rows = with_worth([tested(row) for row in every], cells.study, tested_cells.curves, cells.against)
    summary = replace(
        _with_rows(table, rows),
        tested=True,
        sentences=next((cell.sentences for cell in tested_cells.filled.values()), None),
        sentence_noise=any(OF_TEXT.name in c.sums for c in tested_cells.filled.values()),
        interval_level=1 - ALPHA * shares[-1],
        looks=None if course is None else [look.seeds for look in course.looks],
        most_looks=None if course is None else len(course.plan.sizes),
        claims=_claims(cells, looks, shares),
        reference=cells.reference,
        foreign=_not_comparable(cells.study, cells.against),
    )
    return with_analyses(summary, cells)


def with_analyses(summary: Summary, cells: Cells) -> Summary:
    """With what every analysis found that applies, rounded where programs read it."""
    analyses: dict[str, Any] = {}
    for analysis in (candidate for candidate in ANALYSES if summary.tested or candidate.without_tests):
        finding = analysis.find(cells, replace(summary, analyses=analyses))
        if finding is not None:
            analyses |= {analysis.key: rounded(finding) if analysis.json else finding}
    return replace(rounded(summary), analyses=analyses, outdated=cells.outdated)


def _not_comparable(study: Ablation, against: str | None) -> list[str] | None:
    """Rows whose perplexities are not compared with those of `against`, without it with each other's; None where all
    have the same pieces."""
    if not study.by_word:
        return None
    return study.foreign(against) if against else [row.name for row in study.every_row]


def _with_rows(table: Summary, rows: list[SummaryRow]) -> Summary:
    """With these rows, the hidden ones last."""
    return replace(table, rows=rows[: len(table.rows)], hidden=rows[len(table.rows) :] or None)


def _claims(
    cells: Cells, looks: Sequence[Mapping[Key, Evidence]], shares: Sequence[float]
) -> list[claims.ClaimSummary]:
    """The paper's, which are about base; a hidden row counts under its own name."""
    if cells.reference:
        return []
    study = cells.study
    called = {own_name(row): row.name for row in study.hidden} | {row.name: row.name for row in study.rows}
    primary = [{row: e for (row, m), e in look.items() if m == PPL.name and not e.untested} for look in looks]
    primary = [{name: e[row] for name, row in called.items() if row in e} for e in primary]
    return claims.claim_verdicts(
        claims.claims_of([*called], study.base.model.h), list(zip(primary, shares, strict=True))
    )


def _full_size(base: Experiment) -> bool:
    """Whether effects should be as large as the paper's: its sizes, and no fewer steps."""
    paper = Experiment()
    same = all(getattr(base.model, name) == getattr(paper.model, name) for name in columns.SIZES)
    return base.miniature == Miniature() and same and base.training.steps >= paper.training.steps


def _each_look(
    cells: Cells, names: list[str], paper: Mapping[Key, float], full_size: bool, course: Course | None
) -> list[dict[Key, Evidence]]:
    """What each look found on the seeds it had, at its share of the level. Before the first look: no test at all."""
    if course is None:
        return [row_evidence(cells, names, paper, full_size)]
    if not course.looks or cells.reference:
        evidence, why = row_evidence(cells, names, paper, full_size), ADDED if course.looks else BEFORE
        return [
            {k: untested_evidence(float(e.estimate), e.n, e.n_base, e.untested or why) for k, e in evidence.items()}
        ]
    plan, taken = course.plan, list(zip(course.looks, course.plan.shares, strict=False))
    last = None if len(taken) == len(plan.sizes) else (plan.sizes[-1], plan.shares[-1])
    evidence_of_looks = []
    for look, share in taken:  # on the cells that it saw
        filled = {(row, seed): cell for (row, seed), cell in cells.filled.items() if seed in look.seeds.get(row, [])}
        seen = replace(cells, filled=filled)
        evidence_of_looks.append(row_evidence(seen, names, paper, full_size, share, last))
    return evidence_of_looks


def paper_differences(rows: Sequence[SummaryRow], against: str | None) -> dict[Key, float]:
    """(row, metric) -> the paper's own difference to what it prints for the row `against`: as tested."""
    base = next((row.paper for row in rows if row.name == against), None)
    differences: dict[Key, float] = {}
    for row in (row for row in rows if row.name != against and not row.same_as):
        for metric in (METRICS[name] for name in PRINTED):
            own, of_base = row.paper.of(metric.name), base.of(metric.name) if base else None
            if own is not None and of_base is not None:
                difference = metric.transform(own) - metric.transform(of_base)
                differences[row.name, metric.name] = difference if metric.log else round(difference, 6)
    return differences


def _with_differences(
    row: SummaryRow, evidence: Mapping[Key, Evidence], paper: Mapping[Key, float], full_size: bool, to: str
) -> SummaryRow:
    def metric(name: str) -> Scores:
        own, printed = evidence.get((row.name, name)), paper.get((row.name, name))
        return replace(row.metric(name), difference=_difference(name, own, printed, full_size, to))

    more = [name for name in row.more if (row.name, name) in evidence]
    return row.with_metrics({name: metric(name) for name in (*row.scores, *more)})


def _untested_row(row: SummaryRow, why: str) -> SummaryRow:
    """A row of which seeds diverged, or without a test for another reason."""
    made = Difference(Verdict.UNTESTABLE, why, None)
    if row.diverged:
        k_of_n = f"{len(row.diverged)} of {row.n}"
        made = Difference(Verdict.DIVERGED, f"{k_of_n} seeds diverged", None, beside=k_of_n)

    def metric(scores: Scores) -> Scores:
        printed = scores.difference.paper if scores.difference else None
        percent = scores.difference.paper_percent if scores.difference else None
        return replace(scores, difference=replace(made, paper=printed, paper_percent=percent))

    return row.with_metrics({name: metric(scores) for name, scores in row.scores.items()})


def _difference(metric: str, evidence: Evidence | None, printed: float | None, full_size: bool, to: str) -> Difference:
    judged = verdict.judge(evidence, printed, metric, full_size, to=to)
    of = METRICS[metric]
    clear = None if printed is None else abs(printed) > of.clear
    paper_percent = of.in_units(printed) if of.log and printed is not None else None
    why = f"{judged.why} ({verdict.SCOPE})" if judged.word.found else judged.why
    made = Difference(judged.word, why, printed, clear, paper_percent=paper_percent, beside=judged.beside)
    if evidence is None:
        return made
    parts = [of.in_units(getattr(evidence, end)) for end in ("estimate", "lower", "upper", "smallest")]
    return replace(made, evidence=evidence, percent=Percent(*parts) if of.log else None, factor=judged.factor)
