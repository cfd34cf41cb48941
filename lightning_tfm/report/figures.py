"""The report's pictures as inline SVG, drawn from the summary and the cells."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

import numpy as np

from lightning_tfm.report import svg
from lightning_tfm.report.agreement_text import at
from lightning_tfm.report.records import Cells, read_curve
from lightning_tfm.report.resampling import bleu
from lightning_tfm.report.summary import AgreementCourse, Difference, LastEighth, Summary, SummaryRow
from lightning_tfm.report.svg import Scale, attribute, bottom_axis, figure, label, left_axis, points, spanning, tag
from lightning_tfm.report.verdict import (
    BETTER,
    CONTRADICTED,
    INCOMPARABLE,
    NEITHER,
    REPRODUCED,
    SMALLER,
    UNCLEAR,
    UNDECIDED,
    UNTESTABLE,
    WORSE,
    phrase,
)

VERDICT_CLASS = {
    REPRODUCED: "good",
    CONTRADICTED: "bad",
    UNCLEAR: "found",
    SMALLER: "less",
    NEITHER: "good",
    BETTER: "found",
    WORSE: "found",
    UNDECIDED: "open",
    UNTESTABLE: "untested",
    INCOMPARABLE: "untested",
}
"""style of a verdict's mark; the word always stands beside the colour"""


def short_name(name: str, most: int = 22) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def group_classes(report: Summary) -> dict[str, str]:
    """row -> class of its group's colour."""
    groups: dict[str, int] = {}
    return {r.name: f"g{groups.setdefault(r.group, len(groups)) % 8}" for r in report.rows}


def forest(report: Summary, metric: str) -> str:
    """Differences to base (or another reference) with their 95 % intervals, in the table's order.

    The paper's stand beside as hollow diamonds.
    """
    found = [(r, d, _shown(d, metric)) for r in report.rows if (d := r.metric(metric).difference) is not None]
    parts = [(r, d, shown) for r, d, shown in found if shown]
    if not parts:
        return ""
    values = [v for _, _, shown in parts for v in shown if v is not None] + [0.0]
    width, left, line, top = 640, 150, 19, 12
    height = top + line * len(parts) + 42
    x = spanning(values, left, width - 14)
    bottom = height - 40
    to = short_name(report.to)
    unit = {"ppl": f"difference in dev perplexity to {to}, % (left is better)"}
    unit["bleu"] = f"difference in dev BLEU to {to} (right is better)"
    unit["word"] = f"difference in nats per reference word to {to} (left is better)"
    body = bottom_axis(x, bottom, top, unit[metric])
    body += tag("line", x1=x(0), x2=x(0), y1=top, y2=bottom, class_="zero")
    for i, (r, d, shown) in enumerate(parts):
        y = top + line * (i + 0.5)
        body += tag("g", _forest_row(r, shown, d, x, y, left), class_="hover")
    return figure(width, height, f"Differences to {to} in dev {metric.upper()}, with 95 % intervals", body)


class Shown(NamedTuple):
    """A difference to base: in percent for perplexity."""

    estimate: float
    lower: float | None
    upper: float | None
    paper: float | None


def _shown(difference: Difference, metric: str) -> Shown | None:
    of = difference.shown
    if of.estimate is None:
        return None
    return Shown(of.estimate, of.lower, of.upper, difference.paper_percent if metric == "ppl" else difference.paper)


def _forest_row(r: SummaryRow, shown: Shown, difference: Difference, x: Scale, y: float, left: float) -> str:
    class_ = VERDICT_CLASS[difference.verdict]
    said = f"{r.name}: {shown.estimate:+.2f}"
    body = label(left - 10, y + 4, short_name(r.name), "end")
    if shown.lower is not None and shown.upper is not None:
        said += f" [{shown.lower:+.2f}, {shown.upper:+.2f}]"
        body += tag("line", x1=x(shown.lower), x2=x(shown.upper), y1=y, y2=y, class_=f"interval {class_}")
    body += tag("circle", cx=x(shown.estimate), cy=y, r=4.0, class_=f"mark {class_}")
    if shown.paper is not None:
        said += f", the paper {shown.paper:+.2f}"
        px = x(shown.paper)
        body += tag("path", d=f"M{svg.number(px - 5)} {svg.number(y)}l5-5 5 5-5 5z", class_="paper")
    return tag("title", attribute(f"{said}; {phrase(difference)}")) + body


Band = list[tuple[int, float, float, float]]


def curves(report: Summary, cells: Cells) -> tuple[str, str]:
    """Dev perplexity in the course of training, its axis straight and logarithmic: mean over seeds, band from the best
    to the worst seed. Two empty texts where no run has any."""
    found = {r.name: _band(cells, r.name) for r in report.rows}
    found = {name: band for name, band in found.items() if band}
    return (_curves(report, found, False), _curves(report, found, True)) if found else ("", "")


def _curves(report: Summary, found: Mapping[str, Band], log: bool) -> str:
    width, height, left, right, top, bottom = 640, 380, 46, 626, 26, 336
    steps = [s for band in found.values() for s, *_ in band]
    values = [v for band in found.values() for _, *vs in band for v in vs]
    if not log:  # the first validations would flatten all the rest
        final = max(band[-1][3] for band in found.values())
        values = [min(v, 2.5 * final) for v in values]
    x = spanning(steps, left, right, margin=0.02)
    y = spanning(values, bottom, top, log)
    body = bottom_axis(x, bottom, top, "step") + left_axis(y, left, right, "dev perplexity")
    classes = group_classes(report)
    for name, band in found.items():
        inside = [(s, lo, m, hi) for s, lo, m, hi in band if m <= y.high]
        area = [(x(s), y(min(hi, y.high))) for s, _, _, hi in inside]
        area += [(x(s), y(lo)) for s, lo, _, _ in reversed(inside)]
        line = points([(x(s), y(m)) for s, _, m, _ in inside])
        marks = "".join(
            tag("circle", tag("title", attribute(f"{name}, step {s}: {m:.3f}")), cx=x(s), cy=y(m), r=4.0, class_="dot")
            for s, _, m, _ in inside
        )
        content = tag("polygon", points=points(area), class_="band") + tag("polyline", points=line, class_="curve")
        body += tag(
            "g", tag("title", attribute(name)) + content + marks, class_=f"series {classes[name]}", data_row=name
        )
    return figure(width, height, "Learning curves of all rows", body)


def _band(cells: Cells, row: str) -> Band:
    """(step, lowest, mean, highest) at the steps that every seed has."""
    runs = [dict(read_curve(cell)) for cell in cells.of(row)]
    runs = [run for run in runs if run]
    shared = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    return [(s, min(v), mean(v), max(v)) for s in shared if (v := [run[s] for run in runs])]


def quality(report: Summary, against: str, title: str) -> str:
    """Perplexity against `against` (parameters or flops); the line joins the rows that no smaller row beats."""
    found = [(r, size, r.ppl.mean) for r in report.rows if r.ppl.mean and (size := getattr(r, against))]
    if not found:
        return ""
    width, height, left, right, top, bottom = 640, 340, 46, 610, 26, 296
    x = spanning([size for _, size, _ in found], left, right, log=True)
    y = spanning([ppl for *_, ppl in found], bottom, top, log=True)
    body = bottom_axis(x, bottom, top, title) + left_axis(y, left, right, "dev perplexity")
    best, front = math.inf, []
    for size, ppl in sorted((size, ppl) for _, size, ppl in found):
        if ppl < best:
            best = ppl
            front.append((x(size), y(best)))
    body += tag("polyline", points=points(front), class_="front")
    classes = group_classes(report)
    taken: list[tuple[float, float]] = []
    for r, size, ppl in found:
        px, py = x(size), y(ppl)
        name = short_name(r.name)
        said = tag("title", attribute(f"{r.name}: {size:,.4g}, perplexity {ppl:.3f}"))
        mark = tag("circle", cx=px, cy=py, r=5.0, class_="dot")
        free = all(abs(py - q) > 11 or abs(px - p) > 6 * len(name) + 20 for p, q in taken)
        if free:
            taken.append((px, py))
        side = px > (left + right) * 0.75
        text = label(px + (-8 if side else 8), py + 4, name, "end" if side else "start") if free else ""
        body += tag("g", said + mark + text, class_=f"point {classes[r.name]}")
    return figure(width, height, f"Perplexity against {title}", body)


def lengths(cells: Cells, names: Sequence[str], bins: int = 5) -> tuple[list[str], dict[str, list[float]]]:
    """BLEU by length of the reference in pieces: (bins, row -> BLEU of each bin, pooled over seeds)."""
    some = next(iter(cells.filled.values()), None)
    if some is None or any(cell.bleu_S10 is None for cell in cells.filled.values()):
        return [], {}
    tokens = some.nll_S2[:, 1]
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, bins + 1)))
    where = np.clip(np.searchsorted(edges, tokens, side="left") - 1, 0, max(len(edges) - 2, 0))
    used = [b for b in range(max(len(edges) - 1, 1)) if (where == b).any()]
    heads = [f"{int(tokens[where == b].min())}–{int(tokens[where == b].max())}" for b in used]
    found = {}
    for name in names:
        runs = cells.of(name)
        if runs:
            total = [sum(c.bleu_S10[where == b].sum(0) for c in runs if c.bleu_S10 is not None) for b in used]
            found[name] = [float(bleu(np.asarray(one))) for one in total]
    return heads, found


def reliability(found: Mapping[str, Sequence[Mapping[str, float]]], title: str) -> str:
    """Reliability diagram: how often the likeliest piece is right, against the probability it was given."""
    if not found:
        return ""
    width, height, left, right, top, bottom = 420, 380, 46, 406, 26, 336
    x, y = Scale(0, 1, left, right), Scale(0, 1, bottom, top)
    body = bottom_axis(x, bottom, top, "probability of the likeliest piece") + left_axis(
        y, left, right, "share correct"
    )
    body += tag("line", x1=x(0), x2=x(1), y1=y(0), y2=y(1), class_="zero")
    for i, (name, bins) in enumerate(found.items()):
        kept = [b for b in bins if b["count"] > 0]
        line = points([(x(b["confidence"]), y(b["accuracy"])) for b in kept])
        marks = "".join(
            tag(
                "circle",
                tag(
                    "title",
                    attribute(f"{name}: {b['confidence']:.3f} predicted, {b['accuracy']:.3f} correct, {b['count']}"),
                ),
                cx=x(b["confidence"]),
                cy=y(b["accuracy"]),
                r=3.5,
                class_="dot",
            )
            for b in kept
        )
        content = tag("title", attribute(name)) + tag("polyline", points=line, class_="curve") + marks
        body += tag("g", content, class_=f"series g{i % 8}", data_row=name)
    return figure(width, height, title, body)


def agreement(course: AgreementCourse, fall: LastEighth | None) -> str:
    """Rank correlation with the paper in the course of training, with its noise interval; the parameter count's dashed.

    `course`: the summary's `agreement` / `curve`; `fall`: its `last eighth`.
    """
    found = [(p, p.spearman) for p in course.points if p.spearman is not None]
    if not found:
        return ""
    width, height, left, right, top, bottom = 640, 330, 80, 526, 30, 262
    null = course.parameter_count_alone
    bounds = [[v for v in p.noise_interval or [] if v is not None] or [rho, rho] for p, rho in found]
    values = [rho for _, rho in found] + [v for pair in bounds for v in pair] + [0.0, null or 0.0]
    x, y = Scale(0, 100, left, right), Scale(min(values) - 0.05, 1.0, bottom, top)
    late = tag("rect", x=x(87.5), y=float(top), width=x(100) - x(87.5), height=float(bottom - top), class_="late")
    body = late + bottom_axis(x, bottom, top, "share of each row's own training, %")
    body += left_axis(y, left, right, "Spearman, log PPL")
    if fall is not None:
        body += label(right, top - 8, f"base PPL {-100 * fall.fall:+.1f} %", "end")
    if null is not None:
        body += tag("line", x1=x(0), x2=x(100), y1=y(null), y2=y(null), class_="front")
        for i, words in enumerate(("parameter", "count alone", f"{null:.2f}")):
            body += label(right + 10, y(null) + 4 + 15 * i, words)
    area = [(100 * p.share, min(pair), max(pair)) for (p, _), pair in zip(found, bounds, strict=True)]
    outline = [(x(s), y(high)) for s, _, high in area] + [(x(s), y(low)) for s, low, _ in reversed(area)]
    line = tag("polyline", points=points([(x(100 * p.share), y(rho)) for p, rho in found]), class_="curve")
    marks = "".join(
        tag(
            "circle",
            tag("title", attribute(f"step {p.step} of base, {at(p)}")),
            cx=x(100 * p.share),
            cy=y(rho),
            r=4.0,
            class_="dot",
        )
        for p, rho in found
    )
    body += tag("g", tag("polygon", points=points(outline), class_="band") + line + marks, class_="point found")
    body += label(left - 5, bottom + 52, "base PPL", "end", "tick")
    known = [p for p, _ in found]
    for p in known[:: -(-len(known) // 9)]:
        body += label(x(100 * p.share), bottom + 52, f"{p.base_ppl:.3g}", "middle", "tick")
    said = f"Rank correlation with the paper in the course of training: {', '.join(map(at, known))}"
    beside = "" if null is None else f"; the parameter count alone {null:.2f}"
    return figure(width, height, said + beside, body)
