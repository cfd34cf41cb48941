"""The agreement with the paper in words: a line for the terminal, notes for Markdown, one label for each figure."""

from collections.abc import Callable

from lightning_tfm.metrics import METRICS
from lightning_tfm.report.agreement import (
    Agreement,
    CoursePoint,
    LastEighth,
    MetricAgreement,
    RankDifference,
    RowSetAgreement,
)

NOTHING = "–"
SPEED = "this table shows the speed of learning"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:z.2f}"


def _interval(ends: list[float | None] | None) -> str:
    return NOTHING if ends is None else "[{}, {}]".format(*map(_number, ends))


def _difference(found: RankDifference | None) -> str:
    return NOTHING if found is None else f"{found.estimate:+z.2f} {_interval([found.low, found.high])}"


FIGURES: dict[str, tuple[str, Callable[[MetricAgreement], str]]] = {
    "sides": ("Clear rows on the paper's side", lambda a: f"{a.with_the_paper} of {a.clear_rows}"),
    "rule": (
        "The same, if every change were for the worse",
        lambda a: f"{a.if_every_change_is_worse} of {a.clear_rows}",
    ),
    "spearman": ("Rank correlation (Spearman)", lambda a: _number(a.spearman)),
    "interval over rows": ("95 % with the rows as a sample of rows", lambda a: _interval(a.interval_over_rows)),
    "parameter count alone": ("Parameter count alone, nothing trained", lambda a: _number(a.parameter_count_alone)),
    "less parameter count": (
        "Difference to the parameter count, 95 % over rows",
        lambda a: _difference(a.less_parameter_count),
    ),
    "kendall": (
        "The same by Kendall's tau-b (the parameter count's)",
        lambda a: f"{_number(a.kendall)} ({_number(a.parameter_count_kendall)})",
    ),
    "given parameter count": ("Partial, given the parameter count", lambda a: _number(a.given_parameter_count)),
    "size of base": (
        "Within the rows of base's size",
        lambda a: f"{_number(a.size_of_base.spearman)} ({a.size_of_base.rows} rows)",
    ),
    "ceiling": ("Ceiling, given the paper's noise and ours", lambda a: _number(a.ceiling)),
}
"""figure -> what it is, and its value in print"""
LABELS = {key: label for key, (label, _) in FIGURES.items()}


def shown(found: MetricAgreement | None) -> dict[str, str]:
    """Figure -> its value in print, for one metric; a dash for what is unknown."""
    return {key: NOTHING if found is None else written(found) for key, (_, written) in FIGURES.items()}


def parts(agreement: Agreement) -> list[tuple[str, RowSetAgreement]]:
    """(which rows, figures of each metric): all rows and, of a miniature, those its regime was not chosen on."""
    found: list[tuple[str, RowSetAgreement]] = [("all rows", agreement)]
    if agreement.not_calibrated_on:
        found.append(("rows not calibrated on", agreement.not_calibrated_on))
    return found


def line(agreement: Agreement | None, fall: LastEighth | None) -> str:
    """For the end of a table in a terminal, no break before %; empty where nothing is known."""
    said = []
    if agreement is not None:
        ppl = agreement.ppl
        values = shown(ppl)
        said.append(f"{values['sides']} clear rows on the paper's side")
        if ppl.spearman is not None:
            alone = f" (parameter count alone {values['parameter count alone']})"
            said.append(f"rank correlation {values['spearman']}" + alone * (ppl.parameter_count_alone is not None))
    if fall is not None:
        unbroken = fell(fall).replace(" %", "\N{NO-BREAK SPACE}%")
        said.append(f"base {unbroken} in the last eighth" + f": {SPEED}" * fall.still_falling)
    return "; ".join(said)


def fell(fall: LastEighth) -> str:
    """How base's perplexity moved."""
    percent = 100 * fall.fall
    return f"rose {-percent:.1f} %" if percent <= -0.05 else f"still fell {max(percent, 0):.1f} %"


def notes(agreement: Agreement | None, fall: LastEighth | None) -> list[str]:
    """Every figure, a sentence for each metric and set of rows; the course of training; base's fall."""
    found = []
    for which, metrics in parts(agreement) if agreement else []:
        for name, one in metrics.by_metric.items():
            if one is not None:
                found.append(_sentence(which, METRICS[name].tested_as, one))
    if agreement:
        found.append(clear(agreement))
    if agreement and agreement.calibrated_on:
        found.append(f"The shipped miniature's regime was chosen on base and {', '.join(agreement.calibrated_on)}")
    course = agreement.curve if agreement else None
    if course:
        found.append(
            f"Rank correlation in log PPL in the course of training, {course.rows} rows, each at the same share of "
            f"its own training: {', '.join(map(at, course.points))}"
        )
    if fall is not None:
        found.append(last_eighth(fall))
    return found


def _sentence(which: str, name: str, found: MetricAgreement) -> str:
    values = "; ".join(f"{LABELS[key][0].lower()}{LABELS[key][1:]} {value}" for key, value in shown(found).items())
    return f"Agreement with the paper in {name}, {which} ({found.rows}): {values}"


def clear(found: RowSetAgreement) -> str:
    """From where a row is clear."""
    beyond = {METRICS[name]: one.clear_beyond for name, one in found.by_metric.items() if one}
    said = [f"{100 * x:.1f} % of {m.prose_name}" if m.log else m.size(x) for m, x in beyond.items()]
    return (
        f"A row is clear where the paper's own difference to base is beyond the noise of single runs: {', '.join(said)}"
    )


def about(found: Agreement) -> list[str]:
    """What the figures are, for a page."""
    said = [
        f"{clear(found)} (two standard deviations of a difference of two)",
        "Both intervals take the rows as a sample of possible rows; that of the difference to the parameter count "
        "resamples whole rows. Where it holds 0, the ranking of the rows is not shown to say more than their sizes do",
        "The ceiling is the rank correlation of two such noisy studies if the paper's differences were the truth",
        "Rows of base's size: parameters within 1 % of base's, not counting tables of positions",
    ]
    if against := found.ppl.against_the_paper:
        said.append(f"Clear rows of perplexity that are not on the paper's side: {', '.join(against)}")
    if found.calibrated_on:
        said.append(
            f"The shipped miniature's regime was chosen on base and {', '.join(found.calibrated_on)}; “rows not "
            "calibrated on” are all others"
        )
    return [f"{one}." for one in said]


def at(point: CoursePoint) -> str:
    """One validation."""
    return f"{100 * point.share:.3g} % {_number(point.spearman)}"


def last_eighth(fall: LastEighth) -> str:
    """A sentence, which is a warning where base was still learning."""
    said = f"Base's dev perplexity {fell(fall)} over the last eighth of its training"
    limit = f"{100 * fall.threshold:.0f} %"
    return said + (f", more than {limit}: {SPEED}, not what rows are worth at convergence" * fall.still_falling)
