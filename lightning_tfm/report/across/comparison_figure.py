"""The picture of a comparison: every row's difference to base in each study, one above the other."""

from markupsafe import Markup

from lightning_tfm.metrics import METRICS
from lightning_tfm.report.across.comparison import Comparison
from lightning_tfm.report.charts.panels import short_name
from lightning_tfm.report.intervals import Mark, picture
from lightning_tfm.report.row import Difference
from lightning_tfm.report.stats.statistics import Estimate


def forest(comparison: Comparison, metric: str) -> Markup:
    """With their 95 % intervals, after looks too; perplexity in percent. Empty where there is nothing to draw."""
    studies = [side.study for side in comparison.sides]
    lines = []
    for row in comparison.rows:
        shown = [None if place is None else _shown(place.difference[metric], metric) for place in row.places]
        own = [ends and Mark(f"{row.name}, {studies[k]}", *ends, f"g{k % 8}") for k, ends in enumerate(shown)]
        lines.append((short_name(comparison.labels.get(row.name) or row.name), own))
    key = [(short_name(comparison.asked.of(study), 56), f"g{k % 8}") for k, study in enumerate(studies)]
    title = f"Differences to base in dev {METRICS[metric].label} in {len(studies)} studies"
    return picture(lines, METRICS[metric].axis("base"), title, key)


def _shown(found: Difference | None, metric: str) -> tuple[float, float | None, float | None] | None:
    """(estimate, lower, upper), of which the last two may be unknown."""
    if found is None or found.estimate is None:
        return None
    estimate = METRICS[metric].shown(found.estimate)
    if found.se is None or found.df is None or found.lower is None:
        return estimate, None, None
    low, high = Estimate(found.estimate, found.se, found.df).interval()  # its own are at its looks' level
    return estimate, METRICS[metric].shown(float(low)), METRICS[metric].shown(float(high))
