"""Small pieces of inline SVG: axes, ticks, text. Colours come from the page's style sheet by class."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup


def number(x: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{x:.1f}".removesuffix(".0")


def attribute(text: str) -> str:
    """Text for an attribute or an element, harmless."""
    return escape(text, quote=True)


def tag(name: str, content: str = "", **attributes: str | float) -> str:
    """An element; `class_` becomes class, underscores hyphens. `content` is markup, attributes are escaped here."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(v) if isinstance(v, float) else attribute(str(v))}"'
        for key, v in attributes.items()
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def label(x: float, y: float, text: str, anchor: str = "start", class_: str = "label") -> str:
    return tag("text", attribute(text), x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def figure(width: int, height: int, title: str, body: str) -> Markup:
    """An SVG that scales with the page and says to a screen reader what it shows."""
    box = f"0 0 {width} {height}"
    return Markup(tag("svg", body, viewBox=box, width=width, height=height, role="img", aria_label=title))


_LIGHT = ("#24292f", "#b5460f", "#6639ba", "#0550ae", "#116329", "#a40e26", "#7d5a00", "#99286e")
_DARK = ("#e6edf3", "#ffa657", "#d2a8ff", "#79c0ff", "#56d364", "#ff7b72", "#e3b341", "#f778ba")
_ALONE = """text{font:11px system-ui,sans-serif;fill:var(--fg)}.tick,.title{fill:var(--soft)}.axis{stroke:var(--fg)}
.grid{stroke:var(--rule);stroke-width:.6}.zero{stroke:var(--soft);stroke-dasharray:4 3}.end{fill:currentColor;
font-weight:600}.curve,.front{fill:none;stroke:currentColor;stroke-width:1.6}.front{stroke:var(--soft)}.dot{
fill:currentColor}.box{fill:var(--panel);stroke:var(--soft)}.changed{stroke:var(--g1);stroke-width:2.4}

.frame{stroke:var(--soft);stroke-dasharray:5 4}.strong{font-weight:600}.arrow{fill:none;
stroke:var(--fg)}.head{fill:var(--fg)}.ground{fill:var(--bg)}.cool{fill:var(--g3)}.warm{fill:var(--g1)}
"""


def _colours(fixed: Sequence[str], rest: str) -> str:
    return "".join(f"--g{i}:{colour};" for i, colour in enumerate(fixed)) + rest


def standing_alone(picture: str) -> str:
    """A picture of a page as a file of its own, in the page's colours, light or dark as the reader's screen."""
    light = _colours(_LIGHT, "--fg:#1b1f24;--soft:#57606a;--rule:#d0d7de;--panel:#f6f8fa;--bg:#fff;")
    dark = _colours(_DARK, "--fg:#e6edf3;--soft:#9ea7b3;--rule:#3d444d;--panel:#161b22;--bg:#0d1117;")
    lines = "".join(f".g{i}{{color:var(--g{i})}}" for i in range(len(_LIGHT)))
    style = f"svg{{{light}}}{_ALONE}{lines}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"
    head, _, rest = str(picture).partition(">")
    opened = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{opened}>{tag('style', style)}{rest}\n"


@dataclass(frozen=True)
class Scale:
    """Values `low` … `high` on pixels `start` … `end`, straight or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside."""
        if self.log:
            few, found, many = (self._in_decades(steps) for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)))
            if len(found) > 8:
                return few
            if len(found) < 4 and 2 <= len(many) <= 8:
                return many
            if len(found) >= 2:
                return found
        step = nice((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _in_decades(self, steps: Sequence[float]) -> list[float]:
        """These multiples of the powers of ten that lie inside."""
        every = (m * 10.0**e for e in _decades(self) for m in steps)
        return [value for value in every if self.low <= value <= self.high]


def _decades(scale: Scale) -> range:
    return range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)


def nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, the first not below `step`."""
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * 0.999)


def spanning(values: Sequence[float], start: float, end: float, log: bool = False, margin: float = 0.06) -> Scale:
    """A scale around values, with some room."""
    low, high = min(values), max(values)
    if log:
        pad = (high / low) ** margin if high > low else 1.5
        return Scale(low / pad, high * pad, start, end, True)
    pad = (high - low) * margin or abs(high) * 0.1 or 1.0
    return Scale(low - pad, high + pad, start, end)


def short(value: float) -> str:
    """A number in few characters, to three digits where it is large or tiny: a tick's label."""
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:g}" if abs(value) < 1000 else f"{value / 1000:g}K"


def bottom_axis(scale: Scale, y: float, top: float, title: str) -> str:
    parts = [tag("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    for value in scale.ticks():
        x = scale(value)
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=y, class_="grid"))
        parts.append(label(x, y + 14, short(value), "middle", "tick"))
    parts.append(label((scale.start + scale.end) / 2, y + 30, title, "middle", "title"))
    return "".join(parts)


def bottom_line(scale: Scale, y: float, ticks: Mapping[float, str], title: str) -> str:
    """An axis with these ticks: value -> words."""
    parts = [tag("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    parts += [label(scale(value), y + 14, words, "middle", "tick") for value, words in ticks.items()]
    return "".join([*parts, label((scale.start + scale.end) / 2, y + 30, title, "middle", "title")])


def left_axis(scale: Scale, x: float, right: float, title: str) -> str:
    parts = []
    for value in scale.ticks():
        y = scale(value)
        parts.append(tag("line", x1=x, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(label(x - 5, y + 4, short(value), "end", "tick"))
    parts.append(label(x - 5, min(scale.start, scale.end) - 8, title, "start", "title"))
    return "".join(parts)


def points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in pairs)
