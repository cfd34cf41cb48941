"""Summary and cells -> one self-contained HTML file. Asks nobody for anything; same records, same bytes.

Every text that comes from a record goes through `text`, which makes it harmless; a content security policy forbids the
page to load anything, whatever a record holds.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lightning_tfm.report import figures, provenance
from lightning_tfm.report.cells import Cell, Cells
from lightning_tfm.report.figures import VERDICT_CLASS
from lightning_tfm.report.render import COLUMNS, millions
from lightning_tfm.report.script import JS
from lightning_tfm.report.style import CSS
from lightning_tfm.report.svg import short

Plain = Mapping[str, Any]
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
PAPER_BLEU = (
    "The paper's BLEU is on other text (newstest2013) and, by its first code, on Moses tokens with split hyphens; "
    "read its 25.8 as about 25.5 of sacreBLEU's 13a. Compare directions, not levels."
)
NOTHING = "–"


def text(value: Any) -> str:
    """Harmless: escaped, and isolated from the direction of the text around it."""
    return f"<bdi>{escape(str(value))}</bdi>"


def page(report: Plain, cells: Cells, texts: bool = True, live: str = "") -> str:
    """The HTML. `texts=False` leaves out every line of the corpus. `live` is the version that --serve asks for."""
    name = escape(report["study"])
    parts = {
        "table": ("Table", _table_section(report)),
        "verdicts": ("Against the paper", _verdicts(report)),
        "forest": ("Differences to base", _forests(report)),
        "curves": ("Learning curves", _curves(report, cells)),
        "quality": ("Quality against size", _quality(report)),
        "lengths": ("BLEU by length", _lengths(report, cells)),
        "calibration": ("Calibration", _calibration(report, cells)),
        "attention": ("Attention", _attention(cells) if texts else ""),
        "runs": ("Runs", _runs(report, cells, texts)),
        "method": ("How to read this", _method(report, texts)),
    }
    shown = {key: part for key, part in parts.items() if part[1]}
    nav = "".join(f'<a href="#section-{key}">{title}</a>' for key, (title, _) in shown.items())
    sections = "".join(
        f'<section id="section-{k}"><h2>{title}</h2>{body}</section>\n' for k, (title, body) in shown.items()
    )
    policy = POLICY + ("; connect-src 'self'" if live else "")
    data = f' data-live="1" data-version="{escape(live)}"' if live else ""
    head = (
        f'<meta charset="utf-8"><title>{name}: ablation report</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,"><style>{CSS}</style>'
    )
    header = f'<h1>{text(report["study"])}</h1><p>{_head(report)}</p><nav aria-label="Sections">{nav}</nav>'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body{data}><header>{header}</header>\n'
        f"<main>\n{sections}</main>\n<script>{JS}</script></body></html>\n"
    )


def _head(report: Plain) -> str:
    parts = [
        f"{report['finished']} of {report['cells']} runs finished",
        f"seeds {', '.join(map(str, report['seeds']))}",
    ]
    parts.append(f"corpus {report['corpus']}, {' to '.join(report['languages'])}")
    if report["sentences"]:
        parts.append(f"{report['sentences']:,} dev sentences")
    if report["scale"]:
        parts.append(f"a miniature of the paper: {report['scale']}")
    if report["signature"]:
        parts.append(f"BLEU is {report['signature']}")
    return "; ".join(map(text, parts)) + "."


# --- the table ---

HEADS = (
    ("row", "w"),
    ("change", "w"),
    ("n", ""),
    ("PPL", ""),
    ("Δ PPL, % [95 %]", ""),
    ("p (Holm)", ""),
    ("PPL against the paper", "w"),
    ("BLEU", ""),
    ("Δ BLEU [95 %]", ""),
    ("p (Holm)", ""),
    ("BLEU against the paper", "w"),
    ("params", ""),
    ("FLOPs", ""),
    ("seconds", ""),
    ("paper PPL", ""),
    ("paper BLEU", ""),
    ("paper params", ""),
)


def _table_section(report: Plain) -> str:
    words = sorted({r[m]["difference"]["verdict"] for r in report["rows"] for m in ("ppl", "bleu") if not r["base"]})
    options = "".join(f"<option>{word}</option>" for word in words)
    head = "".join(
        f'<th scope="col" class="{c}" aria-sort="none"><button type="button">{h}</button></th>' for h, c in HEADS
    )
    body, group = [], None
    for i, r in enumerate(report["rows"]):
        body.append(_table_row(r, i, r["group"] != group))
        group = r["group"]
    return (
        '<div class="controls"><label>Find <input id="find" type="search" autocomplete="off"></label>'
        f'<label>Verdict <select id="verdict"><option value="">all</option>{options}</select></label>'
        f'<span id="count" role="status" class="soft">{len(report["rows"])} rows</span></div>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of all rows"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        '<p class="soft">Grey: one seed or none, shown without a verdict. ± is the standard deviation over seeds.</p>'
    ).replace('<div class="scroll"', '<div id="table" class="scroll"', 1)


def _table_row(r: Plain, i: int, first: bool) -> str:
    verdicts = [r[m]["difference"]["verdict"] for m in ("ppl", "bleu")] if not r["base"] else []
    cells = [
        _cell(f'<a href="#runs-{i}">{text(r["row"])}</a>', r["row"], "w", "th"),
        _cell(change(r), "", "w"),
        _cell(f"n={r['n']}", r["n"]),
        *_metric(r, "ppl", 2),
        *_metric(r, "bleu", 1),
        _cell(millions(r["parameters"]) or NOTHING, r["parameters"]),
        _cell(short(r["flops"]) if r["flops"] else NOTHING, r["flops"]),
        _cell(f"{r['seconds']:,.0f}" if r["seconds"] else NOTHING, r["seconds"]),
        *(
            _cell(NOTHING if v is None else f"{v:.{d}f}", v)
            for v, d in ((r["paper"]["ppl"], 2), (r["paper"]["bleu"], 1))
        ),
        _cell(NOTHING if r["paper"]["params"] is None else f"{r['paper']['params']}M", r["paper"]["params"]),
    ]
    classes = " ".join(["first"] * first + ["one"] * (r["n"] < 2))
    said = escape("|".join(verdicts), quote=True)
    return f'<tr class="{classes}" data-verdicts="{said}">{"".join(cells)}</tr>'


def _cell(markup: str, key: Any, class_: str = "", tag: str = "td") -> str:
    value = escape("" if key is None else str(key)[:80], quote=True)
    scope = ' scope="row"' if tag == "th" else ""
    return f'<{tag}{scope} class="{class_}" data-v="{value}">{markup}</{tag}>'


def change(r: Plain) -> str:
    """What the row changes, at the sizes that were trained."""
    known = {name: r["values"][name] for name in COLUMNS if name in r["values"] and name not in r["blank"]}
    columns = {f"{section}.{field}" for section, field in COLUMNS.values()}
    other = {key: value for key, value in r["change"].items() if key not in columns}
    if r["base"]:
        return "all sizes: " + text(", ".join(f"{k} {v}" for k, v in r["values"].items()))
    return text(", ".join(f"{k} {v}" for k, v in (known | other).items()))


def _metric(r: Plain, metric: str, digits: int) -> list[str]:
    found = r[metric]
    if found["mean"] is None:
        missing = "; ".join(f"seed {seed}: {why}" for seed, why in r["missing"].items())
        blank = _cell(NOTHING, None)
        return [f'<td data-v="" title="{escape(missing[:500], quote=True)}">{NOTHING}</td>', blank, blank, blank]
    value = f"{found['mean']:.{digits}f}" + ("" if found["sd"] is None else f" ± {found['sd']:.{digits}f}")
    cells, d = [_cell(value, found["mean"])], found["difference"]
    if d is None or d.get("estimate") is None:
        return [*cells, *[_cell("", None)] * 3]
    shown = d["percent"] if metric == "ppl" else d
    interval = "" if shown["lower"] is None else f" [{shown['lower']:+.{digits}f}, {shown['upper']:+.{digits}f}]"
    cells.append(_cell(f"{shown['estimate']:+.{digits}f}{interval}", shown["estimate"]))
    cells.append(_cell("" if d["p"] is None else p_value(d["p"]), d["p"]))
    return [*cells, _cell("" if r["n"] < 2 else _verdict(d, metric), d["verdict"] if r["n"] > 1 else "", "w")]


def p_value(p: float) -> str:
    return "&lt; 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"


def _verdict(d: Plain, metric: str) -> str:
    word = f'<span class="{VERDICT_CLASS[d["verdict"]]}" title="{escape(d["why"], quote=True)}">{d["verdict"]}</span>'
    if d["verdict"] == "no difference found":
        size = d["percent"]["smallest"] if metric == "ppl" else d["smallest"]
        word += (
            f' <span class="soft">(≥ {size:.{1 if metric == "ppl" else 2}f}{" %" * (metric == "ppl")} findable)</span>'
        )
    return word


# --- verdicts and claims ---


def _verdicts(report: Plain) -> str:
    counted: dict[str, int] = {}
    for r in report["rows"]:
        for m in ("ppl", "bleu"):
            if r[m]["difference"]:
                word = r[m]["difference"]["verdict"]
                counted[word] = counted.get(word, 0) + 1
    parts = [f'<span class="{VERDICT_CLASS[w]}">{w}</span> {n}' for w, n in sorted(counted.items())]
    body = f"<p>Of {sum(counted.values())} verdicts (rows and metrics): {', '.join(parts) or 'none'}.</p>"
    rank = report["rank correlation"]
    if rank:
        body += (
            f"<p>Spearman correlation of our differences in log perplexity with the paper's over {rank['rows']} rows: "
            f"{rank['rho']:.2f} [{rank['lower']:.2f}, {rank['upper']:.2f}].</p>"
        )
    items = "".join(_claim(claim) for claim in report["claims"])
    return body + (f"<h3>Section 6.2 of the paper</h3><ul>{items}</ul>" if items else "")


def _claim(claim: Plain) -> str:
    word = claim["verdict"]
    class_ = {"supported": "good", "supported in part": "good", "contradicted": "bad", "mixed": "bad"}.get(word, "open")
    said = {True: "yes", False: "no, the opposite", None: "nothing found"}
    evidence = "; ".join(
        f"{text(f['row'])} {f['metric'].upper()} {f['says']}: {said[f['holds']]}" for f in claim["findings"]
    )
    return (
        f'<li>“{escape(claim["text"])}” <strong class="{class_}">{word}</strong>'
        f"<details><summary>evidence</summary><p>{evidence}</p></details></li>"
    )


# --- pictures ---


def _figure(picture: str, caption: str, controls: str = "") -> str:
    return f"<figure>{controls}{picture}<figcaption>{caption}</figcaption></figure>" if picture else ""


def _forests(report: Plain) -> str:
    pictures = [
        _figure(
            figures.forest(report, m),
            f"{m.upper()}: estimate and marginal 95 % interval; the hollow diamond is the paper's own difference.",
        )
        for m in ("ppl", "bleu")
    ]
    return f'<div class="pictures">{"".join(pictures)}</div>' if any(pictures) else ""


def _pick(report: Plain, id_: str, names: Sequence[str]) -> str:
    options = "".join(f'<option value="{escape(n, quote=True)}">{escape(n)}</option>' for n in names)
    return f'<label>Highlight <select class="pick" id="{id_}"><option value="">all</option>{options}</select></label>'


def _curves(report: Plain, cells: Cells) -> str:
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
    return _figure(picture, caption, controls + _key(report))


def _key(report: Plain) -> str:
    """Which colour is which group of the table."""
    classes = figures.group_classes(report)
    found = {r["group"]: classes[r["row"]] for r in report["rows"]}
    items = "".join(f'<li class="{c}">{text(figures.short_name(group))}</li>' for group, c in found.items())
    return f'<ul class="key" aria-label="Colours of the groups">{items}</ul>'


def _quality(report: Plain) -> str:
    pictures = [
        _figure(figures.quality(report, key, title), f"Dashed: rows that no row with fewer {noun} beats.")
        for key, title, noun in (("parameters", "parameters", "parameters"), ("flops", "training FLOPs", "FLOPs"))
    ]
    return f'{_key(report)}<div class="pictures">{"".join(pictures)}</div>' if any(pictures) else ""


def _lengths(report: Plain, cells: Cells) -> str:
    heads, found = figures.lengths(cells, [r["row"] for r in report["rows"]])
    if not found:
        return ""
    low, high = (f(v for row in found.values() for v in row) for f in (min, max))
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = ""
    for name, values in found.items():
        shades = [round(60 * (v - low) / ((high - low) or 1)) for v in values]
        tds = "".join(f'<td style="--h:{s}">{v:.1f}</td>' for s, v in zip(shades, values, strict=True))
        body += f'<tr><th scope="row" class="w">{text(name)}</th>{tds}</tr>'
    return (
        "<p>By pieces of the reference, pooled over seeds.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="BLEU by length"><table class="heat">'
        f'<thead><tr><th scope="col" class="w">row</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _calibration(report: Plain, cells: Cells) -> str:
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
    return f'<div class="pictures">{_figure(picture, caption, controls)}{table}</div>'


def _attention(cells: Cells) -> str:
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


# --- runs ---


def _runs(report: Plain, cells: Cells, texts: bool) -> str:
    base = next((r["row"] for r in report["rows"] if r["base"]), "")
    parts = []
    for i, r in enumerate(report["rows"]):
        mine = cells.of(r["row"])
        missing = "".join(f"<li>seed {text(s)}: {text(why)}</li>" for s, why in r["missing"].items())
        body = f"<ul>{missing}</ul>" if missing else ""
        body += "".join(_run(cells, cell) for cell in mine)
        found = provenance.examples(cells, r["row"], base) if texts else []
        body += _examples(found)
        parts.append(f'<details id="runs-{i}"><summary>{text(r["row"])}: {_state(r)}</summary>{body}</details>')
    return "".join(parts)


def _state(r: Plain) -> str:
    empty = len(r["missing"])
    return f"{r['n']} run{'s' * (r['n'] != 1)}" + (
        f", {empty} cell{'s' * (empty != 1)} empty or refused" if empty else ""
    )


def _run(cells: Cells, cell: Cell) -> str:
    items = "".join(f"<dt>{k}</dt><dd>{text(v)}</dd>" for k, v in provenance.facts(cells, cell).items())
    return f"<dl>{items}</dl><pre>{escape(provenance.command(cells, cell))}</pre>"


def _examples(found: list[dict[str, str]]) -> str:
    if not found:
        return ""
    items = "".join(
        "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in one.items()) + "</dl>" for one in found
    )
    return f"<h3>Where the translations differ most</h3>{items}"


def _method(report: Plain, texts: bool) -> str:
    margin = report["margin"]
    lines = [
        "PPL is dev perplexity per piece, end token included. Differences in perplexity are tested as differences of "
        "its logarithm and shown in percent.",
        "A difference has two kinds of noise: training (seeds; the variance of a row is moderated by the study's, "
        "Smyth 2004) and test set (sentences; paired bootstrap on the same resamples for all runs, Koehn 2004).",
        f"p-values are corrected over all rows and both metrics (Holm 1979) at {report['alpha']:g}. The printed "
        "interval is the marginal 95 % one: it decides nothing but equivalence.",
        "reproduced: the paper's sign, and p below the level; contradicted: the other sign; no difference found: with "
        f"the true difference that would have been found with {report['power']:.0%} probability; equivalent: the "
        "paper prints no difference and the interval lies within "
        f"{100 * margin['ppl']:g} % PPL or {margin['bleu']:g} BLEU.",
        PAPER_BLEU,
    ]
    if not report["sentence noise of BLEU"] and report["finished"]:
        lines.append("The references are not at hand: BLEU is tested with the noise of seeds alone.")
    if report["looks"] is not None:
        lines.append(
            "Seeds were added where a verdict was open (--seeds auto), so the study was looked at more than once: "
            f"{len(report['looks'])} of at most {report['most looks']} looks so far. Every look spends a share of the "
            "level (Lan and DeMets 1983), p-values are divided by that share, the smallest of all looks counts, and "
            f"intervals are at {report['interval level']:.2%}."
        )
    if not texts:
        lines.append("Made without any line of the corpus (--no-text).")
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"
