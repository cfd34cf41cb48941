"""Small pieces of inline SVG: axes, ticks, text. Colours come from the page's style sheet by class."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from xml.etree import ElementTree

from markupsafe import Markup

from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import numeral


def number(x: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{x:z.1f}".removesuffix(".0")


def attribute(text: str) -> str:
    """Text for an attribute or an element, harmless; an attribute keeps its lines."""
    return escape(text, quote=True).replace("\n", "&#10;")


def tag(name: str, content: str = "", **attributes: str | float) -> str:
    """An element; `class_` becomes class, underscores hyphens. `content` is markup, attributes are escaped here."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(v) if isinstance(v, float) else attribute(str(v))}"'
        for key, v in attributes.items()
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def label(x: float, y: float, text: str, anchor: str = "start", class_: str = "") -> str:
    look = {"text_anchor": anchor} if anchor != "start" else {}
    return tag("text", attribute(text), x=float(x), y=float(y), **look, **({"class_": class_} if class_ else {}))


def figure(width: int, height: int, title: str, body: str, letters: int = 11) -> Markup:
    """An SVG that scales with the page and says to a screen reader what it shows; `letters`: their size.

    What is to be said of its marks (data-tip) is reached by the keyboard, too (tips.js).
    """
    said: dict[str, str | float] = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    said |= {"font_size": letters} if letters != 11 else {}
    said |= {"tabindex": 0} if "data-tip" in body or "data-trial" in body or "data-row" in body else {}
    return Markup(tag("svg", body, **said, role="img", aria_label=title))


LETTER = 8.4
"""width of one on a telephone, where they are largest"""
PAPER = "#fff"
_FG, _SOFT, _RULE, _PANEL = "#1b1f24", "#57606a", "#d0d7de", "#f6f8fa"
_ROWS = ("#24292f", "#b400dc", "#6639ba", "#00707c", "#99286e", "#5c6b00", "#8a4b2d", "#3d5a80")
_WARM = "#c2185b"
_VERDICTS = {"good": "#145b36", "bad": "#6d0008", "found": "#1774bc", "apart": "#b05906", "open": "#5e6671"}
_VERDICTS["untested"] = _VERDICTS["open"]
_ALONE: dict[str, dict[str, str]] = {
    "title": {"fill": _SOFT},
    "tick": {"fill": _SOFT},
    "axis": {"stroke": _FG},
    "grid": {"stroke": _RULE, "stroke-width": ".6"},
    "zero": {"stroke": _SOFT, "stroke-dasharray": "4 3"},
    "end": {"fill": "currentColor", "font-weight": "bold"},
    "curve": {"fill": "none", "stroke": "currentColor", "stroke-width": "1.6"},
    "front": {"fill": "none", "stroke": _SOFT, "stroke-width": "1.6"},
    "dot": {"fill": "currentColor"},
    "box": {"fill": _PANEL, "stroke": _SOFT},
    "changed": {"stroke": _WARM, "stroke-width": "2.4"},
    "frame": {"stroke": _SOFT, "stroke-dasharray": "5 4"},
    "strong": {"font-weight": "bold"},
    "arrow": {"fill": "none", "stroke": _FG},
    "head": {"fill": _FG},
    "ground": {"fill": PAPER},
    "cool": {"fill": "#0550ae"},
    "warm": {"fill": _WARM},
    "headline": {"font-size": "20", "font-weight": "bold"},
    "small": {"font-size": "16"},
    "zero-line": {"stroke": _FG, "stroke-width": "1.1"},
    "row": {"fill": "none"},
    "interval": {"stroke": "currentColor", "stroke-width": "1.2"},
    "band": {"fill": "currentColor", "fill-opacity": ".1"},
    "soft-band": {"fill": "currentColor", "fill-opacity": ".32"},
    "outer": {"stroke": "currentColor", "stroke-width": "1.2"},
    "corpus": {"fill": PAPER, "stroke": "currentColor"},
    "paper": {"fill": PAPER, "stroke": _FG, "stroke-width": "1.2"},
    "ours": {"fill": "currentColor", "stroke": PAPER, "stroke-width": "1"},
    "hollow": {"fill": PAPER, "stroke": "currentColor", "stroke-width": "2"},
    "arrowhead": {"fill": _SOFT},
    "sure": {"fill": "currentColor"},
}
"""class -> how it looks on white paper; where an element has several, the later ones here win"""
_SVG = "http://www.w3.org/2000/svg"


def standalone_svg(picture: str) -> str:
    """A picture of a page as a separate file, as on white paper.

    Colours are in attributes: programs for drawing and printing know neither style sheets nor CSS's variables.
    """
    root = ElementTree.fromstring(str(picture))
    _written_out(root, _FG, root.attrib.get("font-size", "11"))
    ground = {"width": root.attrib["width"], "height": root.attrib["height"], "fill": PAPER}
    root.insert(0, ElementTree.Element("rect", ground))
    root.set("xmlns", _SVG)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _written_out(element: ElementTree.Element, colour: str, size: str) -> None:
    """Classes as attributes, down the tree; `colour` is that of the series or of the verdict around."""
    classes = element.attrib.pop("class", "").split()
    for name in ("data-tip", "tabindex"):
        element.attrib.pop(name, None)
    colour = next((_ROWS[int(name[1:])] for name in classes if re.fullmatch(r"g\d", name)), colour)
    colour = next((_VERDICTS[name] for name in classes if name in _VERDICTS), colour)
    if element.tag == "text":
        element.attrib |= {"font-family": "Helvetica, Arial, sans-serif", "font-size": size, "fill": _FG}
    for name, look in _ALONE.items():
        if name in classes:
            element.attrib |= {key: colour if value == "currentColor" else value for key, value in look.items()}
    for child in element:
        _written_out(child, colour, size)


def standalone_column(title: str, pictures: Sequence[tuple[str, Markup]]) -> str:
    """(words above it, picture), one below the other, as a separate file."""
    y, widest, parts = 0, 0, []
    for words, picture in pictures:
        width, height = (int(x) for x in re.findall(r'(?:width|height)="(\d+)"', picture)[:2])
        parts.append(label(10, y + 16, words, class_="strong"))
        parts.append(str(picture).replace("<svg ", f'<svg y="{y + 24}" ', 1))
        y, widest = y + 24 + height, max(widest, width)
    return standalone_svg(figure(widest, y, title, "".join(parts)))


def to_pdf(picture: str) -> bytes:
    """`standalone_svg` as a page of PDF. Raises UserError where svglib is missing."""
    try:
        from reportlab.graphics.renderPDF import drawToString
        from svglib.svglib import svg2rlg
    except ImportError as error:
        raise UserError(f"PDF needs svglib ({error}): pip install 'lightning_tfm[pdf]', or write an SVG") from None
    return bytes(drawToString(svg2rlg(BytesIO(picture.encode()))))


def to_png(picture: str, zoom: float = 3.0) -> bytes:
    """`standalone_svg` in so many pixels for each of its own. Raises UserError where pypdfium2 or svglib is missing."""
    try:
        from pypdfium2 import PdfDocument
    except ImportError as error:
        raise UserError(f"PNG needs pypdfium2 ({error}): pip install 'lightning_tfm[png]', or write an SVG") from None
    file = BytesIO()
    points = 72 / 96  # of svglib, for each pixel
    PdfDocument(to_pdf(picture))[0].render(scale=zoom / points).to_pil().save(file, "PNG")
    return file.getvalue()


@dataclass(frozen=True)
class Scale:
    """Values `low` … `high` on pixels `start` … `end`: straight, logarithmic, or logarithmic on both sides of zero and
    straight within ± `around`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    around: float = 0.0

    def __call__(self, value: float) -> float:
        low, high, value = map(self._straight, (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def _straight(self, value: float) -> float:
        return math.asinh(value / self.around) if self.around else math.log(value) if self.log else value

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside."""
        if self.around:
            return self._on_both_sides()
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

    def _on_both_sides(self, apart: float = 22) -> list[float]:
        """From zero outwards, at least `apart` pixels from each other."""
        found = [0.0]
        for side, end in ((1, self.high), (-1, -self.low)):
            last = self(0.0)
            for size in (m * 10.0**e for e in range(-3, 7) for m in (1, 2, 5)):
                if size <= end and abs(self(side * size) - last) >= apart:
                    last = self(side * size)
                    found.append(side * size)
        return sorted(found)

    def _in_decades(self, steps: Sequence[float]) -> list[float]:
        """These multiples of the powers of ten inside."""
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


def tick_text(value: float) -> str:
    """A number in few characters, to three digits where it is large or tiny: a tick's label."""
    if value != 0 and (abs(value) >= 1e15 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{numeral(int(exponent), 'd')}"
    unit, name = next(((unit, name) for unit, name in UNITS if abs(value) >= unit), (1.0, ""))
    return numeral(value / unit, "g") + name


UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))


def bottom_axis(scale: Scale, y: float, top: float, title: str) -> str:
    parts, taken = [tag("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")], -math.inf
    for value in scale.ticks():
        x, words = scale(value), tick_text(value)
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=y, class_="grid"))
        if x - LETTER * len(words) / 2 > taken:
            parts.append(label(x, y + 14, words, "middle", "tick"))
            taken = x + LETTER * len(words) / 2
    return "".join([*parts, _bottom_title(scale, y, title)])


def _bottom_title(scale: Scale, y: float, title: str) -> str:
    if LETTER * len(title) <= scale.end - scale.start:
        return label((scale.start + scale.end) / 2, y + 30, title, "middle", "title")
    fits = LETTER * len(title) <= scale.end
    return label(scale.end if fits else 4, y + 30, title, "end" if fits else "start", "title")


def bottom_line(scale: Scale, y: float, ticks: Mapping[float, str], title: str) -> str:
    """An axis with these ticks: value -> words."""
    parts = [tag("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    parts += [label(scale(value), y + 14, words, "middle", "tick") for value, words in ticks.items()]
    return "".join([*parts, _bottom_title(scale, y, title)])


def left_axis(scale: Scale, x: float, right: float, title: str, ticks: Mapping[float, str] | None = None) -> str:
    """`ticks`: value -> words, where they are not round numbers."""
    parts = []
    for value, words in (ticks or {value: tick_text(value) for value in scale.ticks()}).items():
        y = scale(value)
        parts.append(
            tag("line", x1=x, x2=right, y1=y, y2=y, class_="zero-line" if scale.around and not value else "grid")
        )
        parts.append(label(x - 5, y + 4, words, "end", "tick"))
    parts.append(label(x - 5, min(scale.start, scale.end) - 8, title, "start", "title"))
    return "".join(parts)


def in_percent(scale: Scale, zero: str) -> dict[float, str]:
    """Ticks of differences to what `zero` names."""
    return {v: f"{numeral(v, '+.10g')} %" if v else zero for v in scale.ticks()}


def points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in pairs)
