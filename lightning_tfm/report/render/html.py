"""Blocks as a separate page (templates/blocks.html), or within one (templates/macros.html:show)."""

from collections.abc import Sequence

from lightning_tfm.report.blocks import Section
from lightning_tfm.report.pages.document import render


def to_html(
    title: str,
    kind: str,
    head: Sequence[str],
    sections: Sequence[Section],
    question: str = "",
    headline: Sequence[str] = (),
    subtitle: str = "",
) -> str:
    """A self-contained page; under its title what was found (`headline`), for what it holds, and `head`, folded."""
    shown = {part.key: part.blocks for part in sections}
    named = [(part.key, part.title, bool(part.blocks)) for part in sections]
    more = {
        "question": question,
        "headline": headline,
        "subtitle": subtitle,
        "head": list(head),
        "sections": named,
        "shown": shown,
    }
    return render("blocks.html", title=title, kind=kind, live="", **more)
