"""The page's table, its verdicts and the paper's claims."""

from html import escape
from typing import Any

from lightning_tfm.report.document import Plain, scrolling, text
from lightning_tfm.report.figures import VERDICT_CLASS
from lightning_tfm.report.plateau import said
from lightning_tfm.report.power import ABOUT
from lightning_tfm.report.summary import COLUMNS
from lightning_tfm.report.svg import short
from lightning_tfm.report.text import millions
from lightning_tfm.report.verdict import UNDECIDED, WORDS, counted, phrase

NOTHING = "–"

HEADS = (
    ("row", "w"),
    ("change", "w"),
    ("n", ""),
    ("PPL", ""),
    ("Δ PPL, % [95 %]", ""),
    ("p (BH)", ""),
    ("p (Holm)", ""),
    ("PPL against the paper", "w"),
    ("BLEU", ""),
    ("Δ BLEU [95 %]", ""),
    ("p (BH)", ""),
    ("p (Holm)", ""),
    ("BLEU against the paper", "w"),
    ("params", ""),
    ("FLOPs", ""),
    ("seconds", ""),
    ("paper PPL", ""),
    ("paper BLEU", ""),
    ("paper params", ""),
)


def table(report: Plain) -> str:
    found = {r[m]["difference"]["verdict"] for r in report["rows"] for m in ("ppl", "bleu") if not r["base"]}
    options = "".join(f"<option>{word}</option>" for word in WORDS if word in found)
    head = "".join(
        f'<th scope="col" class="{c}" aria-sort="none"><button type="button">{h}</button></th>' for h, c in HEADS
    )
    body, group = [], None
    for i, r in enumerate(report["rows"]):
        body.append(_row(r, i, r["group"] != group, report["alpha"]))
        group = r["group"]
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return (
        '<div class="controls"><label>Find <input id="find" type="search" autocomplete="off"></label>'
        f'<label>Verdict <select id="verdict"><option value="">all</option>{options}</select></label>'
        f'<span id="count" role="status" class="soft">{len(report["rows"])} rows</span></div>'
        + scrolling("Table of all rows", whole, "table")
        + '<p class="soft">Grey: one seed or none, shown without a verdict. ± is the standard deviation over seeds. '
        "Words go by p (BH), corrected over the rows of the metric for the share of false findings; bold: it holds by "
        "Holm's p too, corrected for any false finding.</p>"
    )


def _row(r: Plain, i: int, first: bool, alpha: float) -> str:
    verdicts = [r[m]["difference"]["verdict"] for m in ("ppl", "bleu")] if not r["base"] else []
    cells = [
        _cell(f'<a href="#runs-{i}">{text(r["row"])}</a>', r["row"], "w", "th"),
        _cell(change(r), "", "w"),
        _cell(f"n={r['n']}", r["n"]),
        *_metric(r, "ppl", 2, alpha),
        *_metric(r, "bleu", 1, alpha),
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


def _metric(r: Plain, metric: str, digits: int, alpha: float) -> list[str]:
    found = r[metric]
    if found["mean"] is None:
        missing = "; ".join(f"seed {seed}: {why}" for seed, why in r["missing"].items())
        blank = _cell(NOTHING, None)
        return [f'<td data-v="" title="{escape(missing[:500], quote=True)}">{NOTHING}</td>', *[blank] * 4]
    value = f"{found['mean']:.{digits}f}" + ("" if found["sd"] is None else f" ± {found['sd']:.{digits}f}")
    plateau = f' <span class="soft">({said(r)})</span>' if r["plateaued"] and metric == "ppl" else ""
    cells, d = [_cell(value + plateau, found["mean"])], found["difference"]
    if d is None or d.get("estimate") is None:
        return [*cells, *[_cell("", None)] * 4]
    shown = d["percent"] if metric == "ppl" else d
    interval = "" if shown["lower"] is None else f" [{shown['lower']:+.{digits}f}, {shown['upper']:+.{digits}f}]"
    cells.append(_cell(f"{shown['estimate']:+.{digits}f}{interval}", shown["estimate"]))
    cells += [_cell("" if d[p] is None else p_value(d[p]), d[p]) for p in ("p", "holm")]
    return [*cells, _cell("" if r["n"] < 2 else _verdict(d, metric, alpha), d["verdict"] if r["n"] > 1 else "", "w")]


def p_value(p: float) -> str:
    return "&lt; 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"


def _why(d: Plain, metric: str) -> str:
    shown = d.get("percent", d)
    if d["verdict"] != UNDECIDED or d.get("p") is None or shown["smallest"] is None:
        return str(d["why"])
    size = f"{shown['smallest']:.1f} % PPL" if metric == "ppl" else f"{shown['smallest']:.2f} BLEU"
    return f"{d['why']}; a true difference of {size} would have been found with a probability of about {ABOUT:.0%}"


def _verdict(d: Plain, metric: str, alpha: float) -> str:
    word = d["verdict"]
    shown = f"<strong>{word}</strong>" if d["holm"] is not None and d["holm"] < alpha else word
    number = escape(phrase(d).removeprefix(word))
    said = f'<span class="{VERDICT_CLASS[word]}" title="{escape(_why(d, metric), quote=True)}">{shown}</span>'
    return said + (f'<span class="soft">{number}</span>' if number else "")


def verdicts(report: Plain) -> str:
    body = "".join(f"<p>{_counted(report, metric)}.</p>" for metric in ("ppl", "bleu"))
    items = "".join(_claim(claim) for claim in report["claims"])
    return body + (f"<h3>Section 6.2 of the paper</h3><ul>{items}</ul>" if items else "")


def _counted(report: Plain, metric: str) -> str:
    found = counted(report["rows"], metric)
    parts = [f'<span class="{VERDICT_CLASS[word]}">{word}</span> {n}' for word, n in found.items()]
    return f"{metric.upper()}, {sum(found.values())} rows: {'; '.join(parts) or 'none'}"


def _claim(claim: Plain) -> str:
    word, p = claim["verdict"], claim["p"]
    class_ = {"supported": "good", "contradicted": "bad"}.get(word, "open")
    evidence = "; ".join(_finding(f) for f in claim["findings"])
    return (
        f'<li>“{escape(claim["text"])}” <strong class="{class_}">{word}</strong>'
        + ("" if p is None else f" (p {p_value(p)})")
        + f"<details><summary>evidence</summary><p>{evidence}</p></details></li>"
    )


def _finding(f: Plain) -> str:
    said = f"{text(f['row'])} {f['says']}"
    if f["p"] is None:
        return f"{said}: no test"
    return f"{said}: {f['percent']:+.1f} % PPL, one-sided p {p_value(f['p'])}, of the opposite {p_value(f['against'])}"
