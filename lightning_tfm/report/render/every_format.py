"""What a command says of studies or scores, in every format: `compare`, `meta-analysis`, `scaling`, `judge`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning_tfm.atomic_io import to_csv
from lightning_tfm.report.blocks import Section, Text, blocks_of
from lightning_tfm.report.pages.document import render as page
from lightning_tfm.report.render.latex import to_latex
from lightning_tfm.report.render.markdown import to_markdown
from lightning_tfm.report.render.text import to_text
from lightning_tfm.report.serialize import Data, to_json


@dataclass(frozen=True)
class Document:
    """What analyses of several studies, and verdicts on anybody's scores, say."""

    title: str
    question: str
    """of its studies"""
    kind: str
    """of its page"""
    head: str
    """under the title of its page"""
    sections: Sequence[Section]
    """for people"""
    data: Data
    """the lines of its CSV"""
    found: Any
    """what its JSON holds"""
    schema: int
    """of that"""
    headline: Sequence[str] = ()
    """what was found, in sentences"""
    scope: str = ""
    """for what they hold"""


def render(document: Document, kind: str) -> str:
    """As text, markdown, csv, json, latex or html."""
    match kind:
        case "csv":
            return to_csv(document.data)
        case "json":
            return to_json(document.found, schema=document.schema)
        case "html":
            # a self-contained page; under its title what was found (`headline`), for what it holds, and `head`, folded
            return page(
                "blocks.html",
                title=document.title,
                kind=document.kind,
                live="",
                question=document.question,
                headline=document.headline,
                subtitle=document.scope,
                head=[document.head],
                sections=[(part.key, part.title, bool(part.blocks)) for part in document.sections],
                shown={part.key: part.blocks for part in document.sections},
            )
        case "latex":
            return to_latex(blocks_of(document.sections), document.title)
    answer = Text([*document.headline, *[document.scope] * bool(document.scope)])
    return {"text": to_text, "markdown": to_markdown}[kind]([answer, *blocks_of(document.sections)])
