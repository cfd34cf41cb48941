"""The agreement with the paper in words: a line for the terminal, notes for Markdown, one label for each figure."""

from lightning_tfm.metrics import METRICS, Metric
from lightning_tfm.plural_words import numeral
from lightning_tfm.report.analyses.agreement import Agreement, CoursePoint, LastEighth, MetricAgreement
from lightning_tfm.report.blocks import NOTHING

SPEED = "not converged, so differences partly reflect how fast rows learn"


def _number(value: float | None) -> str:
    return NOTHING if value is None else numeral(value, "z.2f")


FIGURES = ("Rows that differ in the paper, with its sign here", "Rank correlation (Spearman)", "Error in size")


def figures(m: Metric, found: MetricAgreement) -> list[str]:
    """The values of FIGURES in one metric, each beside what needs no experiment; a dash for what is unknown."""
    signs = (
        f"{found.with_the_paper} of {found.clear_rows} ({found.if_every_change_is_worse} if every change were worse)"
    )
    ranks = f"{_number(found.spearman)} (parameter count alone {_number(found.parameter_count_alone)})"
    errors = found.error_in_size
    sizes = [NOTHING if x is None else m.size(x) for x in (errors.table, errors.parameter_count, errors.no_difference)]
    return [signs, ranks, "{} (parameter count alone {}, no difference {})".format(*sizes)]


def line(agreement: Agreement | None, fall: LastEighth | None) -> str:
    """For the end of a table in a terminal, no break before %; empty where nothing is known."""
    said = []
    if agreement is not None:
        ppl = agreement.ppl
        said.append(f"{ppl.with_the_paper} of {ppl.clear_rows} rows that differ in the paper have its sign here")
        if ppl.spearman is not None:
            alone = f" (parameter count alone {_number(ppl.parameter_count_alone)})"
            said.append(f"rank correlation {_number(ppl.spearman)}" + alone * (ppl.parameter_count_alone is not None))
    if fall is not None:
        unbroken = fell(fall).replace(" %", "\N{NO-BREAK SPACE}%")
        said.append(f"base {unbroken} in the last eighth" + f": {SPEED}" * fall.still_falling)
    return "; ".join(said)


def fell(fall: LastEighth) -> str:
    """How base's perplexity moved."""
    percent = 100 * fall.fall
    return f"rose {-percent:.1f} %" if percent <= -0.05 else f"still fell {max(percent, 0):.1f} %"


def notes(agreement: Agreement | None, fall: LastEighth | None) -> list[str]:
    """Every figure, a sentence for each metric; the course of training; base's fall."""
    found = []
    for name, one in agreement.by_metric.items() if agreement else ():
        if one is not None:
            values = "; ".join(
                f"{key.lower()} {value}" for key, value in zip(FIGURES, figures(METRICS[name], one), strict=True)
            )
            found.append(f"Agreement with the paper in {METRICS[name].tested_as}, {one.rows} rows: {values}")
    if agreement:
        found += [clear(agreement), ERROR_IN_SIZE, FEW_ROWS]
    if agreement and agreement.calibrated_on:
        found.append(f"The shipped training setup was chosen on base and {', '.join(agreement.calibrated_on)}")
    course = agreement.curve if agreement else None
    if course:
        found.append(
            f"Rank correlation in log PPL in the course of training, {course.rows} rows, each at the same share of "
            f"its own training: {', '.join(map(at, course.points))}"
        )
    if fall is not None:
        found.append(last_eighth(fall))
    return found


ERROR_IN_SIZE = (
    "The error in size is what a factor fitted on the other rows leaves of each row's difference in the paper "
    "(root mean square)"
)
FEW_ROWS = (
    "Over 19 rows a rank correlation must reach about 0.92 to be told from a parameter count's 0.77 (Williams 1959)"
)


def clear(found: Agreement) -> str:
    """From where a row is clear."""
    beyond = {METRICS[name]: one.clear_beyond for name, one in found.by_metric.items() if one}
    said = [f"{100 * x:.1f} % of {m.prose_name}" if m.log else m.size(x) for m, x in beyond.items()]
    return (
        f"A row differs in the paper where its difference to base exceeds the noise of single runs: {', '.join(said)}"
    )


def about(found: Agreement) -> list[str]:
    """What the figures are, for a page."""
    said = [
        f"{clear(found)} (two standard deviations of a difference of two)",
        f"{ERROR_IN_SIZE}; that of the parameter count is of a factor of its logarithm",
        FEW_ROWS,
    ]
    if against := found.ppl.against_the_paper:
        said.append(f"Rows that differ in the paper's perplexity and do not have its sign here: {', '.join(against)}")
    if found.calibrated_on:
        said.append(f"The shipped training setup was chosen on base and {', '.join(found.calibrated_on)}")
    return [f"{one}." for one in said]


def at(point: CoursePoint) -> str:
    """One validation."""
    return f"{100 * point.share:.3g} % {_number(point.spearman)}"


def last_eighth(fall: LastEighth) -> str:
    """A sentence, which is a warning where base was still learning."""
    said = f"Base's dev perplexity {fell(fall)} over the last eighth of its training"
    limit = f"{100 * fall.threshold:.0f} %"
    return said + (f", more than {limit}: {SPEED}" * fall.still_falling)
