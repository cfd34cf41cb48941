"""A self-contained HTML document out of templates/: asks nobody for anything; same content, same bytes.

Python brings words, numbers and pictures (SVG, as Markup), the templates all other markup; all but Markup is escaped.
"""

from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

NOTHING = "–"


@cache
def environment() -> Environment:
    """The templates with their filters; an unknown name in one of them raises jinja2.UndefinedError."""
    found = Environment(
        loader=PackageLoader("lightning_tfm.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    found.globals["file"] = source
    found.filters |= {"sort_key": sort_key, "short": short}
    return found


def render(template: str, **data: Any) -> str:
    """The page that `template` makes of `data`."""
    return environment().get_template(template).render(data)


def source(name: str) -> Markup:
    """A file of templates/ as it is: the style sheet, the script."""
    loader = environment().loader
    assert loader is not None
    return Markup(loader.get_source(environment(), name)[0])


def sort_key(value: Any) -> str:
    """What a column is sorted by."""
    return "" if value is None else str(value)[:80]


def short(value: Any) -> str:
    """Four digits of a float, all else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Plain = Mapping[str, Any]
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def text(value: Any) -> str:
    """Harmless: escaped, and isolated from the direction of the text around it."""
    return f"<bdi>{escape(str(value))}</bdi>"


def document(name: str, kind: str, head: str, parts: Mapping[str, tuple[str, str]], live: str = "") -> str:
    """The file. `head` and `parts` (key -> title, body) are markup; parts without a body are left out."""
    shown = {key: part for key, part in parts.items() if part[1]}
    nav = "".join(f'<a href="#section-{key}">{title}</a>' for key, (title, _) in shown.items())
    sections = "".join(
        f'<section id="section-{k}" aria-labelledby="title-{k}"><h2 id="title-{k}">{title}</h2>{body}</section>\n'
        for k, (title, body) in shown.items()
    )
    policy = POLICY + ("; connect-src 'self'" if live else "")
    data = f' data-live="1" data-version="{escape(live)}"' if live else ""
    meta = (
        f'<meta charset="utf-8"><title>{escape(name)}: {kind} report</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,"><style>{source("report.css")}</style>'
    )
    header = f'<h1>{text(name)}</h1><p>{head}</p><nav aria-label="Sections">{nav}</nav>'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{meta}</head>\n<body{data}><header>{header}</header>\n'
        f"<main>\n{sections}</main>\n<script>{source('report.js')}</script></body></html>\n"
    )


def figure(picture: str, caption: str, controls: str = "") -> str:
    """A picture with its controls above and its caption below; nothing where there is no picture."""
    return f"<figure>{controls}{picture}<figcaption>{caption}</figcaption></figure>" if picture else ""


def scrolling(label: str, table: str, id_: str = "") -> str:
    """A table that may be wider than the page."""
    mark = f' id="{id_}"' if id_ else ""
    return (
        f'<div{mark} class="scroll" tabindex="0" role="region" aria-label="{escape(label, quote=True)}">{table}</div>'
    )
