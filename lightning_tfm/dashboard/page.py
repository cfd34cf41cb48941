"""What all pages have: their frame, and what the script gets when something has changed."""

import time
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lightning_tfm.dashboard.chart import Chart
from lightning_tfm.dashboard.markup import blocks, compact_json, render


class NoSuchPage(Exception):
    """No such run or study."""


def frame(root: Path, title: str, live: str = "", tag: str = "") -> dict[str, Any]:
    """For base.html; `live` is where the script asks for news, `tag` the state that the page shows."""
    return {"root": str(root), "title": title, "live": live, "tag": tag, "now": f"{time.strftime('%H:%M:%S')}"}


@dataclass(frozen=True)
class News:
    """What the script replaces: parts of the page by id, data of charts, rows of tables."""

    tag: str
    parts: dict[str, str] = field(default_factory=dict)
    charts: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    busy: bool = False
    """the script asks again soon"""

    def body(self) -> str:
        found = {"tag": self.tag, "parts": self.parts, "pause": 2000 if self.busy else 5000}
        found |= {"charts": self.charts} if self.charts else {}
        return compact_json(found | ({"rows": self.rows} if self.rows else {}))


@dataclass(frozen=True)
class Page:
    """A page made of blocks that change and charts."""

    template: str
    title: str
    live: str
    parts: list[str]
    """names of its blocks that change"""
    data: dict[str, Any]
    """what the template is given, but for `charts`"""
    charts: dict[str, Chart]
    busy: bool = False

    def render(self, root: Path) -> str:
        """The whole page."""
        around = frame(root, self.title, self.live, self.news().tag)
        axes = {axis: None for chart in self.charts.values() for curve in chart.curves for axis in curve.across}
        return render(self.template, **around, **self.data, charts=self.charts, axes=list(axes))

    def news(self) -> News:
        """All of it that changes; its tag is the same as long as nothing does."""
        parts = blocks(self.template, self.parts, **self.data)
        charts = {id: chart.plain() for id, chart in self.charts.items()}
        tag = blake2b(compact_json([parts, charts]).encode(), digest_size=12).hexdigest()
        return News(tag, parts, charts, busy=self.busy)
