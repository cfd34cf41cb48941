"""A comparison of studies in words and tables: for a terminal, as Markdown, CSV and JSON, and as a page."""

import json
import math
import textwrap
from collections.abc import Iterator
from typing import Any

from lightning_tfm.report.comparison import Against, ComparedRow, Comparison
from lightning_tfm.report.comparison_figure import forest
from lightning_tfm.report.document import p_value, render
from lightning_tfm.report.formats import csv_text, markdown_text
from lightning_tfm.report.summary import METRICS, Difference, plain
from lightning_tfm.report.text import NOTHING

UNITS = {"ppl": "dev PPL to base, %", "bleu": "dev BLEU to base"}
DIGITS = {"ppl": 1, "bleu": 2}


def percent(metric: str, value: float | None) -> float | None:
    """A difference as it is printed: that of log PPL in percent of PPL."""
    return value if value is None or metric == "bleu" else 100 * math.expm1(value)


def signed(metric: str, value: float | None) -> str:
    """A difference with its sign; a dash for None."""
    shown = percent(metric, value)
    return NOTHING if shown is None else f"{shown:+.{DIGITS[metric]}f}"


def to_base(row: ComparedRow, k: int, metric: str) -> Difference | None:
    """A row's difference to base in study k."""
    place = row.places[k]
    return None if place is None else place.difference[metric]


def against(row: ComparedRow, k: int, metric: str) -> Against:
    """What a row does in study k beyond what it does in the first."""
    place = row.places[k]
    return Against(why="no such row") if place is None else place.against[metric]


def interval(metric: str, found: Against) -> str:
    """[lower, upper], or why there is none."""
    if found.lower is None:
        return found.why
    return f"[{signed(metric, found.lower)}, {signed(metric, found.upper)}]"


def line(row: ComparedRow, k: int, metric: str) -> list[str]:
    """Name, seeds, both differences, the difference of them, its interval, p."""
    one, other, found = to_base(row, 0, metric), to_base(row, k, metric), against(row, k, metric)
    n = "/".join(str(place.n) if place else NOTHING for place in (row.places[0], row.places[k]))
    sides = [signed(metric, d.estimate if d else None) for d in (one, other)]
    return [row.name, n, *sides, signed(metric, found.estimate), interval(metric, found), p_value(found.p) or NOTHING]


def heads(comparison: Comparison, k: int) -> list[str]:
    """Of `line`."""
    return ["row", "n", comparison.sides[0].study, comparison.sides[k].study, "difference", "95 %", "p (BH)"]


def notes(comparison: Comparison) -> Iterator[str]:
    """What the numbers mean, and what is not the same in the studies."""
    first = comparison.sides[0]
    yield (
        f"difference: the row's difference to base minus that in {first.study}; intervals are marginal, p is "
        "corrected over the rows by Benjamini and Hochberg"
    )
    for side in comparison.sides:
        ppl, bleu = (NOTHING if x is None else f"{x:.2f}" for x in (side.base_ppl, side.base_bleu))
        yield f"{side.study}: corpus {side.corpus}, base PPL {ppl}, BLEU {bleu}"
        if side.apart:
            yield f"{side.study}: {'; '.join(side.apart)}"
        if side.looks:
            yield f"{side.study}: its seeds were added after looking, which p is not corrected for here"
    if comparison.shared:
        rows = [f"{row.name} {row.same_runs}" for row in comparison.rows if row.same_runs]
        said = "their differences share noise"
        yield f"{len(comparison.shared)} runs are shared ({', '.join(rows) or 'of base'}): {said}"
    yield from comparison.left_out


def to_text(comparison: Comparison) -> str:
    """For a terminal."""
    parts = []
    for k in range(1, len(comparison.sides)):
        for metric in METRICS:
            table = [heads(comparison, k), *(line(row, k, metric) for row in comparison.rows)]
            widths = [min(24, max(map(len, column))) for column in zip(*table, strict=True)]
            title = f"{comparison.sides[k].study} against {comparison.sides[0].study}: {UNITS[metric]}"
            body = [_aligned(cells, widths) for cells in table]
            parts.append("\n".join([title, body[0], "─" * max(map(len, body)), *body[1:]]))
    said = [textwrap.fill(note, 79, subsequent_indent="  ") for note in notes(comparison)]
    return "\n\n".join([*parts, "\n".join(said)]) + "\n"


def _aligned(cells: list[str], widths: list[int]) -> str:
    name, *rest = (cell[:width] for cell, width in zip(cells, widths, strict=True))
    return "  ".join([name.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))])


def to_markdown(comparison: Comparison) -> str:
    """Tables with notes."""
    parts = []
    for k in range(1, len(comparison.sides)):
        for metric in METRICS:
            rows = [line(row, k, metric) for row in comparison.rows]
            parts.append(f"{UNITS[metric]}\n\n{markdown_text(heads(comparison, k), rows, [])}")
    return "\n".join([*parts, *(f"- {note}" for note in notes(comparison))]) + "\n"


def to_csv(comparison: Comparison) -> str:
    """A line for each row, study and metric, at full precision; differences in log PPL or BLEU."""
    columns = ["row", "study", "metric", "n", "difference to base", "se", "df", "difference of differences"]
    rows = []
    for row in comparison.rows:
        for side, place in zip(comparison.sides, row.places, strict=True):
            for metric in METRICS if place else ():
                assert place is not None
                d, found = place.difference[metric], place.against.get(metric, Against())
                own = [None] * 3 if d is None else [d.estimate, d.se, d.df]
                rows.append([row.name, side.study, metric, place.n, *own, found.estimate])
                rows[-1] += [found.lower, found.upper, found.p, found.why]
    return csv_text([*columns, "lower", "upper", "p (BH)", "why not"], rows)


def to_json(comparison: Comparison) -> str:
    """Everything."""
    return json.dumps({"schema": 1} | plain(comparison), indent=1, ensure_ascii=False) + "\n"


def to_html(comparison: Comparison) -> str:
    """A page of its own."""
    studies = [side.study for side in comparison.sides]
    tables: list[dict[str, Any]] = [
        {
            "title": f"{studies[k]} against {studies[0]}: {UNITS[metric]}",
            "heads": heads(comparison, k),
            "rows": [line(row, k, metric) for row in comparison.rows],
        }
        for k in range(1, len(studies))
        for metric in METRICS
    ]
    return render(
        "compare.html",
        title=f"{', '.join(studies)} side by side",
        live="",
        head=[f"{len(comparison.rows)} rows in {len(studies)} studies"],
        tables=tables,
        pictures=[(metric, forest(comparison, metric)) for metric in METRICS],
        notes=list(notes(comparison)),
    )
