"""Blocks as a page of their own (templates/blocks.html), or as part of one (templates/macros.html:show)."""

from collections.abc import Sequence

from lightning_tfm.report.blocks import Section
from lightning_tfm.report.document import render


def to_html(title: str, kind: str, head: Sequence[str], sections: Sequence[Section]) -> str:
    """A self-contained page; `head` stands under its title."""
    return render("blocks.html", title=title, kind=kind, live="", head=list(head), parts=list(sections))
