"""An analysis of studies in every format that `compare`, `meta-analysis` and `scaling` have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning_tfm.report.blocks import Data, Section, Text, blocks_of
from lightning_tfm.report.pages.document import render as page
from lightning_tfm.report.render.data import to_csv, to_json
from lightning_tfm.report.render.latex import to_latex
from lightning_tfm.report.render.markdown import to_markdown
from lightning_tfm.report.render.text import to_text


@dataclass(frozen=True)
class Analysis:
    """What it says."""

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


def render(said: Analysis, kind: str) -> str:
    """As text, markdown, csv, json, latex or html."""
    match kind:
        case "csv":
            return to_csv(said.data)
        case "json":
            return to_json(said.found, schema=said.schema)
        case "html":
            return _html(said)
        case "latex":
            return to_latex(blocks_of(said.sections), said.title)
    answer = Text([*said.headline, *[said.scope] * bool(said.scope)])
    return {"text": to_text, "markdown": to_markdown}[kind]([answer, *blocks_of(said.sections)])


def _html(said: Analysis) -> str:
    """A self-contained page; under its title what was found (`headline`), for what it holds, and `head`, folded."""
    return page(
        "blocks.html",
        title=said.title,
        kind=said.kind,
        live="",
        question=said.question,
        headline=said.headline,
        subtitle=said.scope,
        head=[said.head],
        sections=[(part.key, part.title, bool(part.blocks)) for part in said.sections],
        shown={part.key: part.blocks for part in said.sections},
    )
