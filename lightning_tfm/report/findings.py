"""Three sentences on top of a report, made from the summary by rules: what was found, the largest effects, how far to
trust them. They never say more than the verdicts do.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from lightning_tfm.metrics import PPL, WORD, Metric
from lightning_tfm.report import agreement_text
from lightning_tfm.report.power import ABOUT
from lightning_tfm.report.summary import Difference, Summary, SummaryRow
from lightning_tfm.report.verdict import OPEN, SCOPE, UNDECIDED, UNTESTABLE, WORDS, Word

NAMED = 4
"""rows of one verdict that are named"""

Tested = tuple[SummaryRow, Difference]


def findings(report: Summary) -> list[str]:
    """Three sentences."""
    tested = [(r, d) for r in report.rows if (d := r.metric(_metric(report).name).difference) is not None]
    return [_verdicts(report, tested), _effects(report, tested), _trust(report)]


def _metric(report: Summary) -> Metric:
    """The one that decides: perplexity, or where rows have other pieces the nll per word."""
    return WORD if WORD.name in report.metrics else PPL


# --- what was found ---


def _verdicts(report: Summary, tested: Sequence[Tested]) -> str:
    if report.finished == 0:
        return "No run has finished, so nothing is known yet."
    if report.against is None:
        return "No row of this study is base, so nothing is compared."
    if not tested:
        return f"There is no row beside {report.to}, so nothing is compared."
    if all(d.verdict == UNTESTABLE for _, d in tested):
        return f"No difference to {report.to} can be tested: {_commonest([d.why for _, d in tested])}."
    by_word = {word: [r.name for r, d in tested if d.verdict == word] for word in Word}
    parts = [_counted(word, names, report.to) for word, names in by_word.items() if names]
    count = len(tested)
    rows = f"{count} row{'s' * (count != 1)} beside {report.to}"
    return f"In {_metric(report).called}, of {rows}, {_listed(parts)} ({SCOPE})."


def _counted(word: Word, names: list[str], to: str) -> str:
    named = f" ({', '.join(names)})" if len(names) <= NAMED and word not in OPEN else ""
    said = word.clause[len(names) > 1].replace("{to}", to)
    return f"{len(names)} {said}{named}"


def _commonest(reasons: Sequence[str]) -> str:
    return Counter(reasons).most_common(1)[0][0]


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


# --- the largest effects ---


def _effects(report: Summary, tested: Sequence[Tested]) -> str:
    metric = _metric(report)
    scored = [r for r in report.rows if r.metric(metric.name).mean is not None]
    if not scored:
        return "There is no score to show."
    found = sorted(
        ((d.shown.estimate, r, d) for r, d in tested if WORDS[d.verdict].found and d.shown.estimate is not None),
        key=lambda one: one[0],
    )
    if found:
        gains, losses = ([one for one in found if (one[0] < 0) == better] for better in (True, False))
        best = (
            f"The largest gain found is {_effect(metric, *gains[0])}"
            if gains
            else f"No row is found to be better than {report.to}"
        )
        worst = f"the largest loss {_effect(metric, *losses[-1])}" if losses else "no row is found to be worse"
        return f"{best}; {worst}."
    smallest = [d.shown.smallest for _, d in tested if d.verdict == UNDECIDED and d.shown.smallest is not None]
    if smallest:
        return (
            f"No row is found to differ from {report.to}; a true difference of {metric.size(median(smallest))} would "
            f"typically have been found with a probability of about {ABOUT:.0%}."
        )
    lowest = min(scored, key=lambda r: r.metric(metric.name).mean or 0.0)
    beside = "" if lowest.base else _beside(report.base, metric)
    mean = lowest.metric(metric.name).mean
    return f"The lowest mean {metric.called} is that of {lowest.name}, {mean:.2f}{beside}, without a test."


def _beside(base: SummaryRow | None, metric: Metric) -> str:
    mean = None if base is None else base.metric(metric.name).mean
    return "" if mean is None else f" (base {mean:.2f})"


def _effect(metric: Metric, estimate: float, row: SummaryRow, d: Difference) -> str:
    low, high, digits = d.shown.lower, d.shown.upper, metric.fine
    interval = "" if low is None or high is None else f" [{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"{row.name}, {metric.size(estimate, '+')}{interval}"


# --- how far to trust it ---


def _trust(report: Summary) -> str:
    parts = [
        part
        for part in (_empty(report), _far_above(report), _still_learning(report), _agreement(report), _seeds(report))
        if part
    ]
    said = "; ".join(parts[:3])
    return f"{said[0].upper()}{said[1:]}."


def _empty(report: Summary) -> str:
    reasons = Counter(why for r in report.rows if r.same_as is None for why in r.missing.values())
    empty = report.cells - report.finished
    if empty <= 0:
        return ""
    why = ", ".join(f"{_short(reason)} ({n})" for reason, n in reasons.most_common(2))
    more = len(reasons) - 2
    rest = f", and {more} other reason{'s' * (more > 1)}" * (more > 0)
    return f"{empty} of {report.cells} cells {'is' if empty == 1 else 'are'} empty" + f": {why}{rest}" * bool(why)


def _short(reason: str, most: int = 80) -> str:
    return reason if len(reason) <= most else reason[: most - 1] + "…"


def _far_above(report: Summary) -> str:
    far = [f"{len(r.far_above)} seed{'s' * (len(r.far_above) > 1)} of {r.name}" for r in report.rows if r.far_above]
    one = sum(len(r.far_above) for r in report.rows) == 1
    lie = "is far above the others of its row" if one else "are far above the others of their row"
    return f"{_listed(far)} {lie}, which all numbers include" if far else ""


def _still_learning(report: Summary) -> str:
    fall = report.last_eighth
    if fall is None or not fall.still_falling:
        return ""
    return f"base still fell {100 * fall.fall:.1f} % over the last eighth of its training: {agreement_text.SPEED}"


def _agreement(report: Summary) -> str:
    found = report.agreement.ppl if report.agreement else None
    if found is None or found.spearman is None:
        return ""
    alone, less = found.parameter_count_alone, agreement_text.shown(found)["less parameter count"]
    beside = "" if alone is None else f", that of the parameter count alone {alone:.2f} (difference {less} over rows)"
    return f"over {found.rows} rows the rank correlation with the paper is {found.spearman:.2f}{beside}"


def _seeds(report: Summary) -> str:
    counts = sorted({r.n for r in report.rows if r.n and r.same_as is None})
    if not counts:
        return "nothing has been trained to the end"
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"the rows stand on {n} seed{'s' * (counts[-1] > 1)}{' each' * (len(counts) == 1)}"
