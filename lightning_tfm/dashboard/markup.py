"""Templates of the dashboard and how numbers, times and states are written in them."""

import json
import math
from datetime import datetime
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup

import lightning_tfm.report
from lightning_tfm.dashboard.chart import KEYED
from lightning_tfm.report.pages.shared import templates
from lightning_tfm.report.search_summary import objective_name
from lightning_tfm.watch.time_left import duration

NOTHING = "–"
SYMBOLS = {
    "running": "●",
    "waiting": "○",
    "interrupted": "◐",
    "failed": "✕",
    "damaged": "⚠",
    "stopped early": "■",
    "finished": "✓",
}
"""beside every state's word, so that colour is not the only sign of it"""
SHARED = ("report.css", "pictures.css")
"""style sheets of the report page that the dashboard's begins with"""
CLASSES = {"stopped early": "stopped-early"}


@cache
def environment() -> Environment:
    """The templates; a name that is not known in one of them raises jinja2.UndefinedError."""
    found = templates("lightning_tfm.dashboard")
    found.filters |= {
        "number": number,
        "whole": lambda value: NOTHING if value is None else f"{value:,.0f}",
        "clock": clock,
        "objective": objective_name,
        "when": when,
        "symbol": lambda state: SYMBOLS[state],
        "state_class": lambda state: f"s-{CLASSES.get(state, state)}",
    }
    found.globals |= {"style": static("css"), "script": static("js"), "most": KEYED}
    found.globals["ui"] = found.get_template("macros.html").module
    return found


def render(template: str, **data: Any) -> str:
    """A whole page."""
    return environment().get_template(template).render(data)


def blocks(template: str, names: list[str], **data: Any) -> dict[str, str]:
    """Some blocks of a page, separately."""
    found: Template = environment().get_template(template)
    context = found.new_context(data)
    return {name: "".join(found.blocks[name](context)) for name in names}


@cache
def asset(kind: str) -> bytes:
    """The style sheet (css), which begins with the reports' own, or the script (js), which ends with their tooltip; in
    both what is uPlot's."""
    theirs, here = Path(lightning_tfm.report.__file__).parent / "templates", Path(__file__).parent
    own, uplot = here / "templates", here / "vendored"
    files = {
        "css": [*map(theirs.joinpath, SHARED), uplot / "uPlot.min.css", own / "dashboard.css"],
        "js": [
            theirs / "elements.js",
            own / "charts.js",
            uplot / "uPlot.iife.min.js",
            theirs / "sort.js",
            own / "dashboard.js",
            theirs / "tips.js",
        ],
    }
    return b"".join(file.read_bytes() + b"\n" for file in files[kind])


def static(kind: str) -> str:
    """Its address, which changes with its content."""
    return f"/static/{blake2b(asset(kind), digest_size=6).hexdigest()}.{kind}"


def number(value: float | None, digits: int = 2) -> str:
    """With this many digits after the point, or in powers of ten; a dash for None, ∞ for infinity."""
    if value == math.inf:
        return "∞"
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:.{digits}f}" if abs(value) < 1e5 else f"{value:.2e}"


def clock(seconds: float | None) -> str:
    """A duration; a dash for None."""
    return NOTHING if seconds is None else duration(seconds)


def when(moment: float | None) -> Markup:
    """A time, which the script turns into "3 min ago"; a dash for None."""
    if moment is None:
        return Markup(NOTHING)
    local = datetime.fromtimestamp(moment).astimezone()
    return Markup('<time datetime="{}" data-t="{:.0f}">{}</time>').format(
        local.isoformat(timespec="seconds"), moment, f"{local:%Y-%m-%d %H:%M}"
    )


def spark(points: tuple[tuple[float, float], ...], steps: int | None) -> Markup:
    """A small curve, on a logarithmic axis, over the whole length of the training."""
    if len(points) < 2:
        return Markup("")
    values = [math.log(value) for _, value in points]
    low, high, last = min(values), max(values), max(steps or 0, points[-1][0])
    span = (high - low) or 1.0
    drawn = " ".join(
        f"{1 + 62 * x / last:.1f},{1 + 16 * (high - value) / span:.1f}"
        for (x, _), value in zip(points, values, strict=True)
    )
    return Markup('<svg class="spark" viewBox="0 0 64 18" aria-hidden="true"><polyline points="{}"/></svg>').format(
        drawn
    )


def compact_json(value: Any) -> str:
    """JSON, compact."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
