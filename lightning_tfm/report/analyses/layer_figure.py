"""Operations and seconds of one layer over the length of the text, a line for each type."""

from collections.abc import Mapping

from markupsafe import Markup

from lightning_tfm.measure.record import LayerTable, crossing
from lightning_tfm.report.charts.svg import (
    bottom_axis,
    dot,
    figure,
    label,
    left_axis,
    points,
    spanning,
    standing_alone,
    tag,
)

WIDTH, HEIGHT, LEFT, RIGHT, TOP = 640, 380, 62, 514, 40
FLOPS, SECONDS = "FLOPs of one layer", "seconds of one layer"


def pictures(table: LayerTable) -> list[tuple[str, Markup]]:
    """(what it shows, picture), for a page."""
    said = "over the length of the text, by type"
    return [(what, figure(WIDTH, HEIGHT, f"{what} {said}", _panel(table, what))) for what in (FLOPS, SECONDS)]


def to_svg(table: LayerTable) -> str:
    """Both, one below the other, as a separate file."""
    lower = tag("g", _panel(table, SECONDS), transform=f"translate(0 {HEIGHT})")
    title = "Operations and seconds of one layer over the length of the text, by type"
    return standing_alone(figure(WIDTH, 2 * HEIGHT, title, _panel(table, FLOPS) + lower))


def _panel(table: LayerTable, what: str) -> str:
    """Lines with their names, a ring where self-attention begins to cost more, and where n is d."""
    bottom = HEIGHT - 50
    costs: list[Mapping[int, float]] = [row.flops if what == FLOPS else row.seconds for row in table.rows]
    lengths = sorted(costs[0])
    across = spanning(lengths, LEFT, RIGHT, log=True, margin=0)
    up = spanning([c for one in costs for c in one.values()], bottom, TOP, log=True)
    parts = [bottom_axis(across, bottom, TOP, "positions of the text, n"), left_axis(up, LEFT, RIGHT, what)]
    if lengths[0] < table.d_model < lengths[-1]:
        x = across(table.d_model)
        parts.append(tag("line", x1=x, x2=x, y1=float(TOP), y2=float(bottom), class_="zero"))
        parts.append(label(x, TOP - 6, f"n = d = {table.d_model}", "middle"))
    base = next((c for row, c in zip(table.rows, costs, strict=True) if row.layer == "attention"), None)
    lowest = 0.0
    for y, i in sorted((up(one[lengths[-1]]), i) for i, one in enumerate(costs)):
        row, one = table.rows[i], costs[i]
        lowest = max(y, lowest + 17)
        line = tag("polyline", points=points([(across(n), up(one[n])) for n in lengths]), class_="curve")
        marks = "".join(dot(across(n), up(one[n]), f"{row.short}, n = {n}: {one[n]:.3g}", r=3.0) for n in lengths)
        ring, met = "", crossing(base, one) if base is not None and one is not base else None
        if met:
            words = f"self-attention costs more than {row.short} from n = {met:.0f}"
            near = up(_between(one, met))
            ring = tag("circle", cx=across(met), cy=near, r=5.5, class_="front met", data_tip=words)
        name = label(RIGHT + 10, lowest + 4, row.short, class_="label end")
        parts.append(tag("g", line + marks + name + ring, class_=f"series g{i % 8}", data_row=row.short))
    return "".join(parts)


def _between(costs: Mapping[int, float], n: float) -> float:
    """The cost at a length between two measured ones, by straight logarithms."""
    left, right = max(m for m in costs if m <= n), min(m for m in costs if m >= n)
    if left == right:
        return costs[left]
    scale = spanning([left, right], 0.0, 1.0, log=True, margin=0)
    return float(costs[left] * (costs[right] / costs[left]) ** scale(n))
