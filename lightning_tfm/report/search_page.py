"""A search's summary -> its page."""

from collections.abc import Mapping
from html import escape
from itertools import combinations
from typing import Any

from lightning_tfm.report import search_figures as figures
from lightning_tfm.report.document import document, figure, scrolling, text

Plain = Mapping[str, Any]
STATE_CLASS = {"finished": "good", "failed": "bad"}
NOTHING = "–"
KEY = (
    '<ul class="key" aria-label="Colours of the trials"><li class="best">the best</li>'
    '<li class="better">the better quarter</li><li class="rest">the others</li></ul>'
)


def page(report: Plain, live: str = "") -> str:
    """The HTML. `live` is the version that --serve asks for."""
    aims = list(report["objectives"])
    parts = {
        "table": ("Trials", _table(report)),
        "best": ("Best", _best(report)),
        "importance": ("What mattered", _importance(report)),
        "course": ("The course of the search", _each(report, figures.course, "Dashed: the best so far.")),
        "against": ("Objectives against each other", _against(report, aims)),
        "slices": ("Slices", _slices(report, aims)),
        "parallel": ("Parallel coordinates", _parallel(report, aims)),
        "method": ("How to read this", _method(report)),
    }
    return document(report["study"], "search", _head(report), parts, live)


def _head(report: Plain) -> str:
    states = ", ".join(f"{count} {word}" for word, count in report["states"].items() if count)
    aims = ", ".join(f"{direction} {name}" for name, direction in report["objectives"].items())
    parts = [f"{len(report['trials'])} trials of {report['sampler']}: {states or 'none yet'}", aims]
    parts += [f"limit: {name} ≤ {limit:,.0f}" for name, limit in report["constraints"].items()]
    parts.append(f"corpus {report['corpus']}, {' to '.join(report['languages'])}")
    return "; ".join(map(text, parts)) + "."


def _cell(markup: str, key: Any, class_: str = "", tag: str = "td") -> str:
    value = escape("" if key is None else str(key)[:80], quote=True)
    scope = ' scope="row"' if tag == "th" else ""
    return f'<{tag}{scope} class="{class_}" data-v="{value}">{markup}</{tag}>'


def _shown(value: Any) -> str:
    return NOTHING if value is None else text(f"{value:.4g}" if isinstance(value, float) else value)


def _table(report: Plain) -> str:
    names, aims = [p["name"] for p in report["space"]], list(report["objectives"])
    heads = [("trial", "w"), ("state", "w"), *((name, "") for name in (*names, *aims)), ("steps", ""), ("note", "w")]
    head = "".join(
        f'<th scope="col" class="{c}" aria-sort="none"><button type="button">{text(h)}</button></th>' for h, c in heads
    )
    body = ""
    for t in report["trials"]:
        cells = [_cell(text(t["trial"]), t["trial"], "w", "th")]
        word = f'<span class="{STATE_CLASS.get(t["state"], "open")}">{text(t["state"])}</span>'
        cells.append(_cell(word, t["state"], "w"))
        cells += [_cell(_shown(v), v) for v in (*t["change"].values(), *t["values"].values(), t["steps_seen"])]
        note = "" if t["feasible"] else "above a limit"
        cells.append(_cell(text(t["reason"] or note), t["reason"] or note, "w note"))
        said = escape(t["state"], quote=True)
        body += f'<tr data-verdicts="{said}">{"".join(cells)}</tr>'
    options = "".join(f"<option>{escape(w)}</option>" for w in sorted({t["state"] for t in report["trials"]}))
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        '<div class="controls"><label>Find <input id="find" type="search" autocomplete="off"></label>'
        f'<label>State <select id="verdict"><option value="">all</option>{options}</select></label>'
        f'<span id="count" role="status" class="soft">{len(report["trials"])} rows</span></div>'
        + scrolling("Table of all trials", whole, "table")
    )


def _best(report: Plain) -> str:
    found = [t for t in report["trials"] if t["trial"] in report["best"]]
    if not found:
        return "<p>No finished trial keeps the limits yet.</p>"
    return "".join(
        f"<h3>{text(t['trial'])}</h3><p>{text(figures.said(t))}; run {text(t['run'])}</p>"
        f"<pre>{escape(t['command'])}</pre>"
        for t in found
    )


def _importance(report: Plain) -> str:
    body = ""
    for record in report["importance"]:
        without = f" Without {record['stopped']} that were stopped early." if record["stopped"] else ""
        if "why not" in record:
            body += f"<p>{text(record['objective'])}: {text(record['why not'])}.</p>"
        else:
            caption = f"{text(record['objective'])}, on {record['trials']} finished trials.{without}"
            body += figure(figures.importance(record), caption)
    return body


def _each(report: Plain, draw: Any, caption: str) -> str:
    pictures = "".join(figure(draw(report, aim), caption) for aim in report["objectives"])
    return f'{KEY}<div class="pictures">{pictures}</div>' if pictures else ""


def _against(report: Plain, aims: list[str]) -> str:
    pairs = [
        figure(figures.against(report, a, b), "Dashed: trials that no other one beats.")
        for a, b in combinations(aims, 2)
    ]
    return f'<div class="pictures">{"".join(pairs)}</div>' if any(pairs) else ""


def _slices(report: Plain, aims: list[str]) -> str:
    body = ""
    for aim in aims:
        pictures = [figures.slices(report, p, aim) for p in report["space"]]
        body += "".join(f"<figure>{picture}</figure>" for picture in pictures if picture)
    return f'{KEY}<div class="slices">{body}</div>' if body else ""


def _parallel(report: Plain, aims: list[str]) -> str:
    body = ""
    for i, aim in enumerate(aims):
        names = [t["trial"] for t in figures.finished(report, aim)]
        options = "".join(f'<option value="{escape(n, quote=True)}">{escape(n)}</option>' for n in names)
        pick = (
            f'<div class="controls"><label>Highlight <select class="pick" id="pick-parallel-{i}">'
            f'<option value="">all</option>{options}</select></label></div>'
        )
        picture = figures.parallel(report, aim)
        if picture:
            body += figure(scrolling(f"Parallel coordinates to {aim}", picture), text(aim), pick)
    return KEY + body if body else ""


def _method(report: Plain) -> str:
    lines = [
        "Every trial is one run of one seed: differences between neighbours may be noise. What a search recommends is "
        "to be confirmed by a study of several seeds (lightning-tfm sweep).",
        "Importance is PED-ANOVA (Watanabe et al. 2023): how far the better trials' values of a parameter are from all "
        "trials' values, as a share over the parameters. Few trials say little, and a sampler that favours some region "
        "biases it.",
        "Trials that were stopped early have no final value: they are in the table and in no picture.",
    ]
    if report["pruner"] != "none":
        lines.append(f"Trials were stopped early by {text(report['pruner'])}, on dev perplexity at optimizer steps.")
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"
