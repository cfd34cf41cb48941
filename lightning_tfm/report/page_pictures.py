"""The page's pictures, with the controls that belong to them."""

import json
from collections.abc import Sequence
from html import escape

from lightning_tfm.report import figures, provenance
from lightning_tfm.report.cells import Cells
from lightning_tfm.report.document import Plain, figure, scrolling, text
from lightning_tfm.report.verdict import WORDS


def forests(report: Plain) -> str:
    pictures = [
        figure(
            figures.forest(report, m),
            f"{m.upper()}: estimate and marginal 95 % interval; the hollow diamond is the paper's own difference, "
            f"clear of the noise of single runs beyond {_clear(report, m)}.",
        )
        for m in ("ppl", "bleu")
    ]
    return f'{_words(report)}<div class="pictures">{"".join(pictures)}</div>' if any(pictures) else ""


def _clear(report: Plain, metric: str) -> str:
    tau = report["clear"][metric]
    return f"{100 * tau:.1f} %" if metric == "ppl" else f"{tau:.2f} BLEU"


def _words(report: Plain) -> str:
    """Which colour is which word."""
    found = {r[m]["difference"]["verdict"] for r in report["rows"] for m in ("ppl", "bleu") if not r["base"]}
    items = "".join(f'<li class="{figures.VERDICT_CLASS[word]}">{word}</li>' for word in WORDS if word in found)
    return f'<ul class="key" aria-label="Colours of the words">{items}</ul>'


def _pick(report: Plain, id_: str, names: Sequence[str]) -> str:
    options = "".join(f'<option value="{escape(n, quote=True)}">{escape(n)}</option>' for n in names)
    return f'<label>Highlight <select class="pick" id="{id_}"><option value="">all</option>{options}</select></label>'


def curves(report: Plain, cells: Cells) -> str:
    straight, log = figures.curves(report, cells, False), figures.curves(report, cells, True)
    if not straight:
        return ""
    names = [r["row"] for r in report["rows"] if r["n"]]
    controls = (
        f'<div class="controls">{_pick(report, "pick-curve", names)}'
        '<label class="uses-log"><input type="checkbox"> logarithmic axis</label></div>'
    )
    picture = f'<div class="linear">{straight}</div><div class="log">{log}</div>'
    caption = "Mean over seeds; the band spans the seeds. Point at a curve to read it."
    return figure(picture, caption, controls + _key(report))


def _key(report: Plain) -> str:
    """Which colour is which group of the table."""
    classes = figures.group_classes(report)
    found = {r["group"]: classes[r["row"]] for r in report["rows"]}
    items = "".join(f'<li class="{c}">{text(figures.short_name(group))}</li>' for group, c in found.items())
    return f'<ul class="key" aria-label="Colours of the groups">{items}</ul>'


def quality(report: Plain) -> str:
    pictures = [
        figure(figures.quality(report, key, title), f"Dashed: rows that no row with fewer {noun} beats.")
        for key, title, noun in (("parameters", "parameters", "parameters"), ("flops", "training FLOPs", "FLOPs"))
    ]
    return f'{_key(report)}<div class="pictures">{"".join(pictures)}</div>' if any(pictures) else ""


def lengths(report: Plain, cells: Cells) -> str:
    heads, found = figures.lengths(cells, [r["row"] for r in report["rows"]])
    if not found:
        return ""
    low, high = (f(v for row in found.values() for v in row) for f in (min, max))
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = ""
    for name, values in found.items():
        shades = [round(30 * (v - low) / ((high - low) or 1)) for v in values]
        tds = "".join(f'<td style="--h:{s}">{v:.1f}</td>' for s, v in zip(shades, values, strict=True))
        body += f'<tr><th scope="row" class="w">{text(name)}</th>{tds}</tr>'
    top = f'<thead><tr><th scope="col" class="w">row</th>{head}</tr></thead>'
    table = f'<table class="heat">{top}<tbody>{body}</tbody></table>'
    return "<p>By pieces of the reference, pooled over seeds.</p>" + scrolling("Table of BLEU by length", table)


def calibration(report: Plain, cells: Cells) -> str:
    found = {}
    for r in report["rows"]:
        seeds = [c for cell in cells.of(r["row"]) if (c := provenance.collected(cell, "calibration"))]
        if seeds:
            found[r["row"]] = seeds
    if not found:
        return ""
    picture = figures.reliability({name: seeds[0]["bins"] for name, seeds in found.items()}, "Reliability diagram")
    errors = "".join(
        f'<tr><th scope="row" class="w">{text(name)}</th><td>{100 * sum(s["ece"] for s in seeds) / len(seeds):.2f}</td>'
        f"<td>{len(seeds)}</td></tr>"
        for name, seeds in found.items()
    )
    table = (
        '<figure><table><thead><tr><th scope="col" class="w">row</th><th scope="col">ECE, %</th>'
        f'<th scope="col">n</th></tr></thead><tbody>{errors}</tbody></table>'
        "<figcaption>Expected calibration error, mean over n seeds.</figcaption></figure>"
    )
    controls = f'<div class="controls">{_pick(report, "pick-calibration", list(found))}</div>'
    caption = "Dev text, reference as prefix, first seed; 15 bins of the likeliest piece's probability."
    return f'<div class="pictures">{figure(picture, caption, controls)}{table}</div>'


def attention(cells: Cells) -> str:
    found = [
        {"row": cell.row, "seed": cell.seed, "sentences": record["sentences"]}
        for _, cell in sorted(cells.filled.items())
        if (record := provenance.collected(cell, "attention"))
    ]
    if not found:
        return ""
    data = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    data = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return (
        '<div class="controls"><label>Run <select id="attention-run"></select></label>'
        '<label>Sentence <select id="attention-sentence"></select></label>'
        '<label>Kind <select id="attention-kind"><option value="encoder">encoder</option>'
        '<option value="decoder">decoder</option><option value="cross">cross</option></select></label></div>'
        '<p id="attention-said" role="status">Point at a square: query → key: weight.</p>'
        '<div id="attention-maps" class="maps"></div>'
        f'<script type="application/json" id="attention-data">{data}</script>'
    )
