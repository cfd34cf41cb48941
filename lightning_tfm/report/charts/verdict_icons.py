"""One shape for each verdict, the same in tables, keys and pictures: no word hangs on its colour."""

from markupsafe import Markup

from lightning_tfm.report.charts.svg import tag
from lightning_tfm.report.wording.verdict_words import WORDS


def icon(word: str) -> Markup:
    """The mark of a word beside it in a text; its colour is the text's."""
    return Markup(tag("svg", tag("path", d=WORDS[word].mark, class_="mark"), **ICON))


ICON = {"viewBox": "-5.5 -5.5 11 11", "width": "11", "height": "11", "class_": "icon", "aria_hidden": "true"}
