"""What each field is worth, drawn: effects with their intervals, and scores over the levels of two fields."""

from collections.abc import Sequence

from markupsafe import Markup

from lightning_tfm.metrics import METRICS
from lightning_tfm.report.analyses.factors import ABOUT, Effect, FactorSummary, HeatMap, in_few, short, table
from lightning_tfm.report.blocks import Block, Figures, Fold, Notes, Section
from lightning_tfm.report.charts.chart import apart
from lightning_tfm.report.charts.panels import short_name
from lightning_tfm.report.charts.svg import Scale, bottom_line, dot, figure, label, left_axis, points, spanning, tag
from lightning_tfm.report.intervals import Mark, picture
from lightning_tfm.report.wording.word import DISC

RING = DISC + "M-2.7 0a2.7 2.7 0 1 0 5.4 0a2.7 2.7 0 1 0-5.4 0z"
"""of an interaction"""


def section(found: FactorSummary | None) -> Section:
    """Of a page."""
    title = "The effect of each field"
    if found is None or not found.effects:
        return Section("factors", title)
    levels = {factor.key: factor.levels for factor in found.factors}
    metrics = dict.fromkeys(effect.metric for effect in found.effects)
    worth = [(effects(found, metric), "Discs: main effects; rings: interactions.") for metric in metrics]
    maps = sorted(found.maps, key=lambda one: list(metrics).index(one.metric))
    drawn = [(interaction(one, levels[one.first], levels[one.second]), "") for one in maps]
    parallel = "Mean over seeds and the other fields. Lines are parallel where two fields do not interact."
    blocks: list[Block] = [
        Figures([one for one in worth if one[0]]),
        Figures([one for one in drawn if one[0]], small=True),
        Notes([parallel]),
        Fold("All effects in numbers", [table(found), Notes([ABOUT])]),
    ]
    return Section("factors", title, blocks)


def effects(found: FactorSummary, metric: str) -> Markup:
    """Main effects, then interactions."""
    of = METRICS[metric]
    lines = [
        (short_name(in_few(e), 34), [_mark(e, *(None if v is None else of.shown(v) for v in (e.lower, e.upper)))])
        for e in found.effects
        if e.metric == metric
    ]
    return picture(lines, of.axis("the first level"), f"Effects of fields on dev {of.label}")


def _mark(e: Effect, lower: float | None, upper: float | None) -> Mark:
    shape = DISC if e.kind == "main" else RING
    estimate = METRICS[e.metric].shown(e.estimate)
    return Mark(" × ".join(e.words), estimate, lower, upper, "g0", shape, more=f" ({e.kind})")


def interaction(found: HeatMap, down: Sequence[str], across: Sequence[str]) -> Markup:
    """A line for each level of the second field (`across`) over those of the first (`down`)."""
    metric = METRICS[found.metric]
    lines = [[(i, row[k]) for i, row in enumerate(found.values) if row[k] is not None] for k in range(len(across))]
    values = [value for line in lines for _, value in line if value is not None]
    if not values:
        return Markup()
    names = [f"{short(found.second)} {level}" for level in across]
    width, height, left, top = 420, 300, 50, 26
    right, bottom = width - 20 - round(8.8 * max(map(len, names))), height - 44
    x = Scale(-0.2, len(down) - 0.8, left, right)
    y = spanning(values, bottom, top, log=metric.log)
    body = bottom_line(x, bottom, {float(i): level for i, level in enumerate(down)}, short(found.first))
    body += left_axis(y, left, right, f"dev {metric.prose_name}")
    ends = apart([y(line[-1][1] or 0.0) if line else float(bottom) for line in lines], 14.0, top, bottom)
    for k, (line, name, end) in enumerate(zip(lines, names, ends, strict=True)):
        places = [(x(i), y(value), value, down[i]) for i, value in line if value is not None]
        own = tag("polyline", points=points([(px, py) for px, py, *_ in places]), class_="curve")
        for px, py, value, level in places:
            own += dot(px, py, f"{short(found.first)} {level}, {name}: {metric.score(value)}")
        own += label(right + 8, end + 4, name, class_="label end")
        body += tag("g", own, class_=f"point g{k % 8}")
    title = f"Dev {metric.prose_name} by {short(found.first)} and {short(found.second)}"
    return figure(width, height, title, body)
