"""A matrix as a picture: the stronger the colour the larger the number, one colour above zero and one below."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from lightning_tfm.report.charts.svg import figure, label, tag, tick_text

Matrix = Sequence[Sequence[float | None]]
LEVELS = 14
LEFT, TOP, WIDTH = 62, 22, 400
"""of the cells; room for names on the left"""


def grid(
    title: str,
    values: Matrix,
    down: Mapping[int, str],
    across: Mapping[int, str],
    axes: tuple[str, str],
    least: float = 0.0,
) -> Markup:
    """`values` [row][column], None: nothing there. `down`, `across`: names of some rows and columns, by number; `axes`:
    what rows and columns are; `least`: what the scale of colours reaches at least, to share it."""
    rows, columns = len(values), len(values[0])
    wide = WIDTH / columns
    high = min(16.0, max(3.0, 260 / rows))
    bottom = TOP + rows * high
    most = max((abs(x) for row in values for x in row if x is not None), default=0.0)
    most = max(most, least)
    ground = tag("rect", x=float(LEFT), y=float(TOP), width=float(WIDTH), height=rows * high, class_="ground")
    cells = tag("g", "".join(_levels(values, most)), transform=f"translate({LEFT} {TOP}) scale({wide:.4g} {high:.4g})")
    body = [ground, cells]
    body += [label(LEFT - 5, TOP + (i + 0.5) * high + 4, words, "end", "tick") for i, words in down.items()]
    body += [label(LEFT + (i + 0.5) * wide, bottom + 14, words, "middle", "tick") for i, words in across.items()]
    body.append(label(LEFT - 5, TOP - 9, axes[0], "start", "title"))
    body.append(label(LEFT + WIDTH / 2, bottom + 30, axes[1], "middle", "title"))
    body += _key(most, bottom + 44, any(x is not None and x < 0 for row in values for x in row))
    return figure(LEFT + WIDTH + 14, round(bottom + 62), title, "".join(body))


def _levels(values: Matrix, most: float) -> list[str]:
    """One path for each level of colour, in units of cells, neighbours of a row in one rectangle."""
    paths: dict[int, list[str]] = {}
    for i, row in enumerate(values):
        start = 0
        for j in range(1, len(row) + 1):
            level = _level(row[start], most)
            if j < len(row) and _level(row[j], most) == level:
                continue
            if level:
                paths.setdefault(level, []).append(f"M{start} {i}h{j - start}v1H{start}z")
            start = j
    return [_filled("path", level, d="".join(parts)) for level, parts in sorted(paths.items())]


def _level(value: float | None, most: float) -> int:
    return 0 if value is None or not most else round(value / most * LEVELS)


def _filled(name: str, level: int, **at: str | float) -> str:
    shade = f"{abs(level) / LEVELS:.2f}"
    return tag(name, "", class_="warm" if level > 0 else "cool", fill_opacity=shade, **at)


def _key(most: float, y: float, below: bool) -> list[str]:
    steps = range(-LEVELS if below else 0, LEVELS + 1, 2)
    x = LEFT + 40.0
    parts = [label(x - 6, y + 9, tick_text(float(f"{-most if below else 0:.2g}")), "end", "tick")]
    for level in steps:
        if level:
            parts.append(_filled("rect", level, x=x, y=y, width=9.0, height=10.0))
        x += 9
    return [*parts, label(x + 6, y + 9, tick_text(float(f"{most:.2g}")), "start", "tick")]
