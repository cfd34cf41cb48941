"""A self-contained HTML document out of templates/: it loads nothing from elsewhere; same content, same bytes.

Python brings words, numbers and pictures (SVG, as Markup), the templates all other markup; all but Markup is escaped.
"""

from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from lightning_tfm.plural_words import p_value
from lightning_tfm.report.blocks import NOTHING
from lightning_tfm.report.charts import forest_picture
from lightning_tfm.report.charts.svg import tag
from lightning_tfm.report.pages.shared import four_digits, templates
from lightning_tfm.report.wording.verdict_words import WORDS


@cache
def environment() -> Environment:
    """The templates with their filters; a name that is not known in one of them raises jinja2.UndefinedError."""
    found = templates("lightning_tfm.report")
    found.globals |= dict.fromkeys(("called", "question", "headline", "subtitle", "tally", "trust"), "")
    found.globals |= {
        "shown": {},
        "file": source,
        "icon": icon,
        "WORDS": WORDS,
        "drawn": forest_picture.both,
    }
    found.filters |= {
        "spec": spec,
        "four": four_digits,
        "p_value": p_value,
        "unbroken": lambda words: words.replace(" %", "\N{NO-BREAK SPACE}%"),
    }
    return found


def render(template: str, **data: Any) -> str:
    """The page that `template` makes of `data`."""
    return environment().get_template(template).render(data) + "\n"


def icon(word: str) -> Markup:
    """The mark of a verdict beside it in a text, in the text's colour: no word hangs on its colour."""
    mark = tag("path", d=WORDS[word].mark, class_="mark")
    return Markup(tag("svg", mark, viewBox="-5.5 -5.5 11 11", width=11, height=11, class_="icon", aria_hidden="true"))


def source(name: str) -> Markup:
    """A file of templates/, unchanged: the style sheet, the script."""
    loader = environment().loader
    assert loader is not None
    return Markup(loader.get_source(environment(), name)[0])


def spec(value: float | None, spec: str) -> str:
    """As a format (.2f) says; a dash for None."""
    return NOTHING if value is None else format(value, spec)
