"""The headline of a report, made from the summary by rules: what was found in words of the rows, how many rows got
which verdict, and how far to trust it. It never says more than the verdicts do.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from lightning_tfm.metrics import PPL, Metric
from lightning_tfm.plural_words import listed, numeral, plural, several, signed
from lightning_tfm.report.analyses import agreement
from lightning_tfm.report.analyses.catalog import findings
from lightning_tfm.report.charts.forest import sentence_case
from lightning_tfm.report.charts.panels import short_name
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.stats import base_alone
from lightning_tfm.report.stats.evidence import ABOUT
from lightning_tfm.report.summary import Difference, Summary, SummaryRow
from lightning_tfm.report.wording import outlier_seeds
from lightning_tfm.report.wording.verdict import SCOPE
from lightning_tfm.report.wording.verdict_words import OPEN, WORDS, Verdict

NAMED = 3
"""rows that a sentence names"""
NO_BASE = "no row is base, so nothing is compared; --reference ROW names another row to compare with"

Tested = tuple[SummaryRow, Difference]


def headline(report: Summary, counts: bool = True) -> list[str]:
    """Sentences: what the kind of study asks first, the largest differences found, how often each verdict occurs."""
    metric, tested = report.primary, _tested_rows(report)
    analysed = findings(report)
    leads = [line for analysis, what in analysed for line in analysis.lead(what, report)]
    costs = [line for analysis, what in analysed for line in analysis.closing(what, report)]
    if nothing := why_untested(report):
        return [*leads, *costs, nothing] if leads or costs else [nothing, *_lowest(report, metric)]
    last = [_counts(report, metric, tested)] * counts
    return [*leads, *_effects(report, metric, tested), *costs, *last]


def base_apart(report: Summary) -> list[str]:
    """A sentence where base may be what stands apart and not the rows (stats/base_alone.py)."""
    metric, against = report.primary, report.against
    rows = [row for row in report.rows if row.same_as is None and not row.diverged]
    if against is None or against not in rows:
        return []
    rows.sort(key=lambda row: row is not against)
    scores = [[metric.transform(x) for x in row.metric(metric.name).by_seed.values()] for row in rows]
    return base_alone.warning(against.name, base_alone.why(scores, against.name))


# --- of rows ---


def _tested_rows(report: Summary) -> list[Tested]:
    name = report.primary.name
    return [(r, d) for r in report.rows if (d := r.metric(name).difference) is not None]


def why_untested(report: Summary) -> str:
    """Why no row has a verdict; empty where one has."""
    tested = _tested_rows(report)
    if report.finished == 0:
        return "No run has finished, so nothing is known yet."
    if report.against is None:
        return f"{sentence_case(NO_BASE)}."
    if not tested:
        return f"There is no row beside {report.to}, so nothing is compared."
    if all(d.verdict == Verdict.UNTESTABLE for _, d in tested):
        return f"No difference to {report.to} can be tested: {Counter(d.why for _, d in tested).most_common(1)[0][0]}."
    return ""


def _counts(report: Summary, metric: Metric, tested: Sequence[Tested]) -> str:
    by_word = {word: [r.called for r, d in tested if d.verdict == word] for word in Verdict}
    parts = [_count_clause(word, names) for word, names in by_word.items() if names]
    rows = plural(len(tested), "row") + f" beside {report.reference}" * bool(report.reference)
    where = f"In {metric.prose_name}, of" if metric is not PPL else "Of"
    return f"{where} {rows} {listed(parts)} ({SCOPE})."


def _count_clause(word: Verdict, names: list[str]) -> str:
    named = f" ({', '.join(names)})" if len(names) < NAMED and word not in OPEN else ""
    return f"{len(names)} {word.clause[len(names) > 1]}{named}"


def _effects(report: Summary, metric: Metric, tested: Sequence[Tested]) -> list[str]:
    significant = [
        (d.in_print.estimate, r) for r, d in tested if WORDS[d.verdict].found and d.in_print.estimate is not None
    ]
    if significant:
        worse, better = (
            [effect for effect in significant if metric.better(effect[0]) == gain] for gain in (False, True)
        )
        return [" ".join([*_largest(metric, worse, ("costs", "cost")), *_largest(metric, better, ("gains", "gain"))])]
    smallest = [
        d.in_print.smallest for _, d in tested if d.verdict == Verdict.UNDECIDED and d.in_print.smallest is not None
    ]
    if not smallest:
        return []
    size = metric.true_difference(median(smallest))
    detected = f"{size} would typically be detected with a probability of about {100 * ABOUT:.0f} %."
    return [f"{forest_of(report).title} {sentence_case(detected)}"]


def _largest(metric: Metric, significant: Sequence[tuple[float, SummaryRow]], verbs: tuple[str, str]) -> list[str]:
    """“A, b and c cost most (+28, +27, +21 % perplexity).”"""
    if not significant:
        return []
    first = sorted(significant, key=lambda effect: -abs(effect[0]))[:NAMED]
    sizes = ", ".join(signed(x, 0 if abs(x) >= 10 else metric.difference_digits) for x, _ in first)
    names = listed([row.called for _, row in first])
    names = names[:1].upper() + names[1:] if first[0][1].label else names
    most = " most" * (len(significant) > len(first))
    plural_verb = len(first) > 1 or several(first[0][1].called)
    return [f"{names} {verbs[plural_verb]}{most} ({sizes} {'% ' * metric.log}{metric.prose_name})."]


def _lowest(report: Summary, metric: Metric) -> list[str]:
    """Of studies that no test is made of."""
    scored = [(mean, r) for r in report.rows if (mean := r.metric(metric.name).mean) is not None]
    if not scored:
        return []
    mean, row = min(scored, key=lambda score: score[0])
    base = None if row.base or report.base is None else report.base.metric(metric.name).mean
    beside = "" if base is None else f" (base {base:.2f})"
    return [f"The lowest mean {metric.prose_name} is {mean:.2f} with {row.called}{beside}, without a test."]


# --- how far to trust it ---


def trust(report: Summary) -> str:
    """What holds for all of it, in one sentence."""
    parts = [
        _empty(report),
        *outlier_seeds.outlier_clauses(report.rows)[:2],
        _still_learning(report),
        _agreement(report),
    ]
    sentence = "; ".join([*list(filter(None, parts))[:3], _seeds(report)])
    return f"{sentence[0].upper()}{sentence[1:]}."


def _empty(report: Summary) -> str:
    reasons = Counter(why for r in report.rows if r.same_as is None for why in r.missing.values())
    empty = report.cells - report.finished
    if empty <= 0:
        return ""
    why = ", ".join(f"{short_name(reason, 80)} ({n})" for reason, n in reasons.most_common(2))
    more = len(reasons) - 2
    rest = f", and {more} other reason{'s' * (more > 1)}" * (more > 0)
    return f"{empty} of {report.cells} cells {'is' if empty == 1 else 'are'} empty" + f": {why}{rest}" * bool(why)


def _still_learning(report: Summary) -> str:
    fall = report.of(agreement.LAST_EIGHTH)
    if fall is None or not fall.still_falling:
        return ""
    return f"base still fell {100 * fall.fall:.1f} % over the last eighth of its training: {agreement.SPEED}"


def _agreement(report: Summary) -> str:
    whole = report.of(agreement.ANALYSIS)
    of_ppl = whole.ppl if whole else None
    if of_ppl is None or of_ppl.spearman is None:
        return ""
    alone = of_ppl.parameter_count_alone
    beside = "" if alone is None else f", and {numeral(alone, 'z.2f')} by the parameter count alone"
    return f"over {of_ppl.rows} rows the rank correlation with the paper is {numeral(of_ppl.spearman, 'z.2f')}{beside}"


def _seeds(report: Summary) -> str:
    counts = sorted({r.n for r in report.rows if r.n and r.same_as is None})
    if not counts:
        return "nothing has been trained to the end"
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{n} seed{'s' * (counts[-1] > 1)} per row"
