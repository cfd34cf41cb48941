"""One shape for each verdict, the same in tables, keys and pictures: no word hangs on its colour."""

from markupsafe import Markup

from lightning_tfm.report.charts.svg import number, tag
from lightning_tfm.report.wording.word import WORDS


def icon_at(shape: str, x: float, y: float) -> str:
    """A mark in a picture, `shape` a path around (0, 0)."""
    return tag("path", d=shape, transform=f"translate({number(x)} {number(y)})", class_="mark")


def icon(word: str) -> Markup:
    """The mark of a word beside it in a text; its colour is the text's."""
    return Markup(tag("svg", tag("path", d=WORDS[word].mark, class_="mark"), **ICON))


ICON = {"viewBox": "-5.5 -5.5 11 11", "width": "11", "height": "11", "class_": "icon", "aria_hidden": "true"}
