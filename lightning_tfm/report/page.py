"""Summary and cells -> the ablation's page (templates/report.html)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning_tfm.report import agreement_text, columns, figures, provenance, reference, tuning
from lightning_tfm.report.document import render
from lightning_tfm.report.formats import TWO_SEEDS, two_seeds
from lightning_tfm.report.heat_map import Shaded, shaded
from lightning_tfm.report.plateau import FAR, said
from lightning_tfm.report.power import ABOUT
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import COLUMNS, METRICS, Difference, FactorSummary, HeatMap, Summary, SummaryRow
from lightning_tfm.report.svg import short
from lightning_tfm.report.text import NOTHING, compared, effect_numbers, millions, paper, score
from lightning_tfm.report.verdict import UNDECIDED, WORDS, counted, phrase
from lightning_tfm.study.command import fit_command
from lightning_tfm.study.rows import apply


def page(report: Summary, cells: Cells, texts: bool = True, live: str = "") -> str:
    """The HTML. `texts=False` leaves out every line of the corpus. `live` is the version that --serve asks for."""
    found = {word for r in report.rows for word in _words(r)}
    tau = report.clear
    return render(
        "report.html",
        report=report,
        live=live,
        texts=texts,
        head=_head(report),
        notices=reference.said(report),
        words=[word for word in WORDS if word in found],
        classes=figures.VERDICT_CLASS,
        change=_change,
        fields=_fields(report),
        value=columns.value,
        of_the_paper=columns.of_the_paper(report.rows),
        said=lambda r: "|".join(_words(r)),
        missing=_missing,
        numbers=lambda r: _numbers(r, columns.of_the_paper(report.rows)),
        compared=lambda r, metric, digits: _compared(r, metric, digits, report.alpha),
        score=score,
        plateaued=said,
        counted=counted,
        labels=agreement_text.LABELS,
        columns=_columns(report),
        course=_course(report),
        agreement_text=agreement_text,
        beyond={"ppl": f"{100 * tau['ppl']:.1f} %", "bleu": f"{tau['bleu']:.2f} BLEU"},
        tuning=tuning.notes(report.tuning),
        tried=tuning.table(report.tuning) if report.tuning else None,
        factors=report.factors,
        effect_numbers=effect_numbers,
        maps=[_map(report.factors, one) for one in report.factors.maps] if report.factors else [],
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


def _map(found: FactorSummary, shown: HeatMap) -> Shaded:
    """A heat map of two fields."""
    levels = {factor.key: factor.levels for factor in found.factors}
    title = f"{shown.metric.upper()} by {shown.first} (down) and {shown.second} (across)"
    return shaded(title, levels[shown.first], levels[shown.second], shown.values, shown.metric == "ppl")


def _head(report: Summary) -> list[str]:
    parts = [
        f"{report.finished} of {report.cells} runs finished",
        f"seeds {', '.join(map(str, report.seeds))}",
        f"corpus {report.corpus}, {' to '.join(report.languages)}",
    ]
    if report.sentences:
        parts.append(f"{report.sentences:,} dev sentences")
    if report.scale:
        parts.append(f"a {columns.scale(report.scale, report.rows)}")
    elif columns.resized(report.rows):
        parts.append(columns.sizes(report.rows))
    if rest := columns.unchanged(report.rows):
        parts.append(f"the same in every row: {rest}")
    if report.signature:
        parts.append(f"BLEU is {report.signature}")
    return parts


def _words(r: SummaryRow) -> list[str]:
    return [d.verdict for metric in METRICS if (d := r.metric(metric).difference)]


def _change(r: SummaryRow) -> str:
    """What the row changes, at the sizes that were trained; of base all sizes; "is A" where it is the row A."""
    if r.same_as:
        return f"is {r.same_as}: the same runs, no comparison"
    return ", ".join(f"{name} {columns.said(v)}" for name, v in r.values.items() if name not in r.blank)


def _fields(report: Summary) -> list[str]:
    """Columns beside the changes, to sort by: what the rows vary, but for the paper's own columns beside its rows."""
    paper = COLUMNS if columns.of_the_paper(report.rows) else {}
    return [name for name in columns.shown(report.rows) if name not in paper]


def _missing(r: SummaryRow) -> str:
    return "; ".join(f"seed {seed}: {why}" for seed, why in r.missing.items())[:500]


def _numbers(r: SummaryRow, printed: bool) -> list[tuple[float | None, str]]:
    """(value, as it is shown) of the last columns, those of the paper with them where it printed any row."""
    values = [r.parameters, r.flops, r.seconds, *[r.paper.ppl, r.paper.bleu, r.paper.params] * printed]
    flops, seconds = short(r.flops) if r.flops else "", f"{r.seconds:,.0f}" if r.seconds else ""
    words = [millions(r.parameters), flops, seconds, *paper(r, "M") * printed]
    return [(value, said or NOTHING) for value, said in zip(values, words, strict=True)]


@dataclass(frozen=True)
class Compared:
    """A row's difference to base (or another reference) in one metric, as the table shows it."""

    estimate: float | None
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


def _compared(r: SummaryRow, metric: str, digits: int, alpha: float) -> Compared | None:
    """None where nothing can be compared."""
    d = r.metric(metric).difference
    if d is None or d.estimate is None:
        return None
    word = d.verdict if r.n > 1 else ""
    number = phrase(d).removeprefix(word) if word else ""
    sure = d.holm is not None and d.holm < alpha
    return Compared(d.shown.estimate, compared(d, digits), d.p, d.holm, word, number, _why(d, metric), sure)


def _why(d: Difference, metric: str) -> str:
    smallest = d.shown.smallest
    if d.verdict != UNDECIDED or d.p is None or smallest is None:
        return d.why
    size = f"{smallest:.1f} % PPL" if metric == "ppl" else f"{smallest:.2f} BLEU"
    return f"{d.why}; a true difference of {size} would have been found with a probability of about {ABOUT:.0%}"


@dataclass(frozen=True)
class Column:
    """The agreement with the paper in one metric over one set of rows, as the page shows it."""

    metric: str
    which: str
    rows: int
    shown: dict[str, str]
    """figure -> value in print"""


def _columns(report: Summary) -> list[Column]:
    return [
        Column(name, which, one.rows, agreement_text.shown(one))
        for which, metrics in (agreement_text.parts(report.agreement) if report.agreement else [])
        for metric, name in agreement_text.METRICS.items()
        if (one := metrics.metric(metric))
    ]


def _course(report: Summary) -> str:
    found = report.agreement
    return figures.agreement(found.curve, report.last_eighth) if found and found.curve else ""


def _pictures(found: Mapping[str, str]) -> list[tuple[str, str]]:
    """Those there are, with their names."""
    return [(name, picture) for name, picture in found.items() if picture]


def _colours(report: Summary) -> list[tuple[str, str]]:
    """(group, class of its colour)"""
    classes = figures.group_classes(report)
    found = {r.group: classes[r.name] for r in report.rows}
    return [(figures.short_name(group), class_) for group, class_ in found.items()]


def _curves(report: Summary, cells: Cells) -> dict[str, Any]:
    linear, log = figures.curves(report, cells)
    rows = [r.name for r in report.rows if r.n]
    return {"linear": linear, "log": log, "rows": rows} if linear else {}


def _lengths(report: Summary, cells: Cells) -> dict[str, Any]:
    """Heads of the columns; row -> (BLEU, shade between 0 and 30)."""
    heads, found = figures.lengths(cells, [r.name for r in report.rows])
    if not found:
        return {}
    low, high = (f(v for row in found.values() for v in row) for f in (min, max))
    shaded = {row: [(v, round(30 * (v - low) / ((high - low) or 1))) for v in values] for row, values in found.items()}
    return {"heads": heads, "rows": shaded}


def _calibration(report: Summary, cells: Cells) -> dict[str, Any]:
    """The picture of the first seeds; row -> (expected calibration error in percent, seeds it is the mean over)."""
    found = {}
    for r in report.rows:
        seeds = [c for cell in cells.of(r.name) if (c := provenance.collected(cell, "calibration"))]
        if seeds:
            found[r.name] = seeds
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


def _runs(report: Summary, cells: Cells, texts: bool) -> list[dict[str, Any]]:
    """Where every cell comes from, and what its row translated otherwise than the one that it is compared with."""
    against = report.against.name if report.against else ""
    rows = {row.name: row for row in cells.study.rows}
    examples = provenance.examples(cells, against, report.to) if texts else {}
    return [
        {
            "row": r.name,
            "state": _state(r),
            "missing": r.missing,
            "runs": [
                (provenance.facts(cell), fit_command(apply(cells.study.base, rows[cell.row], cell.seed)))
                for cell in cells.of(r.name)
            ],
            "examples": examples.get(r.name, []),
        }
        for r in report.rows
    ]


def _state(r: SummaryRow) -> str:
    empty = len(r.missing)
    said = f", {empty} cell{'s' * (empty != 1)} empty or refused" if empty else ""
    return f"{r.n} run{'s' * (r.n != 1)}{said}"
