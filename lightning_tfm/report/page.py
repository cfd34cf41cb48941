"""Summary and cells -> the ablation's page (templates/report.html)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning_tfm.report import figures, provenance
from lightning_tfm.report.agreement_text import LABELS, METRICS, at, clear, last_eighth, parts, shown
from lightning_tfm.report.cells import Cells
from lightning_tfm.report.document import NOTHING, render, spec
from lightning_tfm.report.formats import TWO_SEEDS, two_seeds
from lightning_tfm.report.plateau import FAR, said
from lightning_tfm.report.power import ABOUT
from lightning_tfm.report.render import COLUMNS, millions
from lightning_tfm.report.svg import short
from lightning_tfm.report.verdict import UNDECIDED, WORDS, counted, phrase
from lightning_tfm.study.rows import apply

Plain = Mapping[str, Any]


def page(report: Plain, cells: Cells, texts: bool = True, live: str = "") -> str:
    """The HTML. `texts=False` leaves out every line of the corpus. `live` is the version that --serve asks for."""
    rows = report["rows"]
    found = {word for r in rows for word in _words(r)}
    tau = report["clear"]
    return render(
        "report.html",
        report=report,
        live=live,
        texts=texts,
        head=_head(report),
        words=[word for word in WORDS if word in found],
        classes=figures.VERDICT_CLASS,
        change=_change,
        said=lambda r: "|".join(_words(r)),
        missing=_missing,
        numbers=_numbers,
        compared=lambda r, metric, digits: _compared(r, metric, digits, report["alpha"]),
        plateaued=said,
        counted=counted,
        agreement=_agreement(report),
        clear=clear,
        at=at,
        last_eighth=last_eighth,
        beyond={"ppl": f"{100 * tau['ppl']:.1f} %", "bleu": f"{tau['bleu']:.2f} BLEU"},
        forests=_pictures({m: figures.forest(report, m) for m in ("ppl", "bleu")}),
        colours=_colours(report),
        curves=_curves(report, cells),
        quality=_pictures(
            {
                "parameters": figures.quality(report, "parameters", "parameters"),
                "FLOPs": figures.quality(report, "flops", "training FLOPs"),
            }
        ),
        lengths=_lengths(report, cells),
        calibration=_calibration(report, cells),
        attention=_attention(cells) if texts else [],
        runs=_runs(report, cells, texts),
        far=FAR,
        two_seeds=TWO_SEEDS[0].upper() + TWO_SEEDS[1:] if two_seeds(report) else "",
    )


def _head(report: Plain) -> list[str]:
    parts = [
        f"{report['finished']} of {report['cells']} runs finished",
        f"seeds {', '.join(map(str, report['seeds']))}",
        f"corpus {report['corpus']}, {' to '.join(report['languages'])}",
    ]
    if report["sentences"]:
        parts.append(f"{report['sentences']:,} dev sentences")
    if report["scale"]:
        parts.append(f"a miniature of the paper: {report['scale']}")
    if report["signature"]:
        parts.append(f"BLEU is {report['signature']}")
    return parts


def _words(r: Plain) -> list[str]:
    return [] if r["base"] else [r[m]["difference"]["verdict"] for m in ("ppl", "bleu")]


def _change(r: Plain) -> str:
    """What the row changes, at the sizes that were trained; of base all sizes."""
    if r["base"]:
        return ", ".join(f"{k} {v}" for k, v in r["values"].items())
    known = {name: r["values"][name] for name in COLUMNS if name in r["values"] and name not in r["blank"]}
    columns = {f"{section}.{field}" for section, field in COLUMNS.values()}
    other = {key: value for key, value in r["change"].items() if key not in columns}
    return ", ".join(f"{k} {v}" for k, v in (known | other).items())


def _missing(r: Plain) -> str:
    return "; ".join(f"seed {seed}: {why}" for seed, why in r["missing"].items())[:500]


def _numbers(r: Plain) -> list[tuple[float | None, str]]:
    """(value, as it is shown) of the last columns."""
    paper = r["paper"]
    return [
        (r["parameters"], millions(r["parameters"]) or NOTHING),
        (r["flops"], short(r["flops"]) if r["flops"] else NOTHING),
        (r["seconds"], f"{r['seconds']:,.0f}" if r["seconds"] else NOTHING),
        (paper["ppl"], spec(paper["ppl"], ".2f")),
        (paper["bleu"], spec(paper["bleu"], ".1f")),
        (paper["params"], NOTHING if paper["params"] is None else f"{paper['params']}M"),
    ]


@dataclass(frozen=True)
class Compared:
    """A row's difference to base in one metric, as the table shows it."""

    estimate: float
    shown: str
    """with its interval"""
    p: float | None
    holm: float | None
    word: str
    """the verdict; empty for a row of one seed"""
    number: str
    """what stands beside the word"""
    why: str
    sure: bool
    """found by Holm's p too"""


def _compared(r: Plain, metric: str, digits: str, alpha: float) -> Compared | None:
    """None where nothing can be compared. `digits`: as in a format, .2f."""
    d = r[metric]["difference"]
    if d is None or d.get("estimate") is None:
        return None
    of, word = d["percent"] if metric == "ppl" else d, d["verdict"] if r["n"] > 1 else ""
    interval = "" if of["lower"] is None else f" [{of['lower']:+{digits}}, {of['upper']:+{digits}}]"
    number = phrase(d).removeprefix(word) if word else ""
    sure = d["holm"] is not None and d["holm"] < alpha
    text = f"{of['estimate']:+{digits}}{interval}"
    return Compared(of["estimate"], text, d["p"], d["holm"], word, number, _why(d, metric), sure)


def _why(d: Plain, metric: str) -> str:
    of = d.get("percent", d)
    if d["verdict"] != UNDECIDED or d.get("p") is None or of["smallest"] is None:
        return str(d["why"])
    size = f"{of['smallest']:.1f} % PPL" if metric == "ppl" else f"{of['smallest']:.2f} BLEU"
    return f"{d['why']}; a true difference of {size} would have been found with a probability of about {ABOUT:.0%}"


def _agreement(report: Plain) -> dict[str, Any]:
    """The figures for each metric and set of rows, and their course in training."""
    found = report["agreement"]
    if found is None:
        return {}
    columns = [
        {"metric": name, "which": which, "rows": metrics[m]["rows"], "shown": shown(metrics[m])}
        for which, metrics in parts(found)
        for m, name in METRICS.items()
        if metrics[m]
    ]
    picture = figures.agreement(found["curve"], report["last eighth"]) if found["curve"] else ""
    return {"columns": columns, "labels": LABELS, "picture": picture}


def _pictures(found: Mapping[str, str]) -> list[tuple[str, str]]:
    """Those there are, with their names."""
    return [(name, picture) for name, picture in found.items() if picture]


def _colours(report: Plain) -> list[tuple[str, str]]:
    """(group, class of its colour)"""
    classes = figures.group_classes(report)
    found = {r["group"]: classes[r["row"]] for r in report["rows"]}
    return [(figures.short_name(group), class_) for group, class_ in found.items()]


def _curves(report: Plain, cells: Cells) -> dict[str, Any]:
    linear, log = figures.curves(report, cells)
    rows = [r["row"] for r in report["rows"] if r["n"]]
    return {"linear": linear, "log": log, "rows": rows} if linear else {}


def _lengths(report: Plain, cells: Cells) -> dict[str, Any]:
    """Heads of the columns; row -> (BLEU, shade between 0 and 30)."""
    heads, found = figures.lengths(cells, [r["row"] for r in report["rows"]])
    if not found:
        return {}
    low, high = (f(v for row in found.values() for v in row) for f in (min, max))
    shaded = {row: [(v, round(30 * (v - low) / ((high - low) or 1))) for v in values] for row, values in found.items()}
    return {"heads": heads, "rows": shaded}


def _calibration(report: Plain, cells: Cells) -> dict[str, Any]:
    """The picture of the first seeds; row -> (expected calibration error in percent, seeds it is the mean over)."""
    found = {}
    for r in report["rows"]:
        seeds = [c for cell in cells.of(r["row"]) if (c := provenance.collected(cell, "calibration"))]
        if seeds:
            found[r["row"]] = seeds
    if not found:
        return {}
    picture = figures.reliability({name: seeds[0]["bins"] for name, seeds in found.items()}, "Reliability diagram")
    errors = {row: (100 * sum(s["ece"] for s in seeds) / len(seeds), len(seeds)) for row, seeds in found.items()}
    return {"picture": picture, "errors": errors}


def _attention(cells: Cells) -> list[dict[str, Any]]:
    """What the page's script draws."""
    return [
        {"row": cell.row, "seed": cell.seed, "sentences": record["sentences"]}
        for _, cell in sorted(cells.filled.items())
        if (record := provenance.collected(cell, "attention"))
    ]


def _runs(report: Plain, cells: Cells, texts: bool) -> list[dict[str, Any]]:
    """Where every cell comes from, and what its row translated otherwise than base."""
    base = next((r["row"] for r in report["rows"] if r["base"]), "")
    rows = {row.name: row for row in cells.study.rows}
    examples = provenance.examples(cells, base) if texts else {}
    return [
        {
            "row": r["row"],
            "state": _state(r),
            "missing": r["missing"],
            "runs": [
                (provenance.facts(cell), provenance.fit_command(apply(cells.study.base, rows[cell.row], cell.seed)))
                for cell in cells.of(r["row"])
            ],
            "examples": examples.get(r["row"], []),
        }
        for r in report["rows"]
    ]


def _state(r: Plain) -> str:
    empty = len(r["missing"])
    said = f", {empty} cell{'s' * (empty != 1)} empty or refused" if empty else ""
    return f"{r['n']} run{'s' * (r['n'] != 1)}{said}"
