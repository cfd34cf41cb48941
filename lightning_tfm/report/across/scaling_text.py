"""Rows at several scales (report/across/scaling.py) as blocks and as data, in every format."""

from collections.abc import Iterator

from lightning_tfm.metrics import PPL
from lightning_tfm.plural_words import plural
from lightning_tfm.report.across.comparison_text import signed
from lightning_tfm.report.across.scaling import COUNT, PRIOR, Calibrated, Ladder, LadderRow
from lightning_tfm.report.blocks import Block, Notes, Section, Table, columns
from lightning_tfm.report.pages.document import p_value
from lightning_tfm.report.render.analysis import Analysis
from lightning_tfm.report.tables.columns import titled
from lightning_tfm.report.tables.extra_columns import millions


def sections(found: Ladder) -> list[Section]:
    """What every format for people shows."""
    tables: list[Block] = [_rows(found)]
    if found.calibrated:
        tables.append(_calibrations(found))
    notes = Section("method", "How to read this", [Notes(list(_notes(found)))])
    return [Section("rows", "Rows at several scales", tables), notes]


def _rows(found: Ladder) -> Table:
    paper = any(row.paper is not None for row in found.rows)
    scales = [f"{study} ({millions(count)})" for study, count in found.studies.items()]
    ahead = f"at {millions(found.target)}, 90 %"
    heads = columns("row", *scales, "over scales", "p (BH)", ahead, *["paper"] * paper, words=["over scales"])
    lines = [[titled(row.row, found.labels), *_line(row, paper)] for row in found.rows]
    return Table(f"dev {PPL.label} to base, %", heads, lines)


def _line(row: LadderRow, paper: bool) -> list[str]:
    rungs = [_interval(rung.difference, rung.lower, rung.upper) for rung in row.rungs]
    p = p_value(row.p)
    printed = "" if row.paper is None else signed(PPL.name, row.paper)
    return [*rungs, row.word, p, _interval(row.prediction, row.lower, row.upper), *[printed] * paper]


def _interval(mean: float | None, low: float | None, high: float | None) -> str:
    return f"{signed(PPL.name, mean)} [{signed(PPL.name, low)}, {signed(PPL.name, high)}]"


def _calibrations(found: Ladder) -> Table:
    n = len(found.calibrated[0].errors)
    heads = columns("foreseen by", "factor", "error", f"90 % cover, of {n}", "interval score", f"p to {COUNT}")
    return Table("the paper's differences, a row left out at a time", heads, [_way(one) for one in found.calibrated])


def _way(one: Calibrated) -> list[str]:
    return [one.by, f"{one.factor:.2f}", f"{one.rms:.1f}", str(one.covered), f"{one.score:.1f}", p_value(one.p)]


def _notes(found: Ladder) -> Iterator[str]:
    small, *_, large = found.studies
    yield (
        f"over scales: from {small} to {large}, by the p of a change, corrected over the rows by Benjamini and "
        "Hochberg, which takes five seeds at both; holds: the 95 % interval of the change lies within half of the "
        f"difference at {small}"
    )
    for kind, one in found.exponents.items():
        mean, sd = PRIOR[kind]
        what = "rows that change the parameter count" if kind == "size" else "the other rows"
        yield (
            f"{what}: differences go with N^-κ, κ {one.kappa:.2f} ± {one.se:.2f} (a priori {mean:g} ± "
            f"{sd:g}), a row's own departure {100 * one.tau:.1f} % for a factor e in N"
        )
    yield (
        f"at {millions(found.target)} parameters of base: extrapolated, no value of the paper enters; the rule was "
        "written down before a second scale was trained (NOTES.md)"
    )
    if found.calibrated:
        yield (
            "foreseen by: one factor through the origin, fitted on the paper's other rows; error: root mean square, "
            "in 100 log PPL; interval score: mean of width and 20 times what a 90 % interval misses by; p: squared "
            "errors, paired over rows (Wilcoxon)"
        )
    if found.apart:
        yield f"not of scale alone, as the studies differ in more: {' | '.join(found.apart)}"
    yield from found.left_out


def data(found: Ladder) -> Iterator[dict[str, object]]:
    """A line for each row, at full precision, in log PPL."""
    for row in found.rows:
        line: dict[str, object] = {"row": row.row, "class": row.kind}
        for rung in row.rungs:
            ends = {"lower": rung.lower, "upper": rung.upper}
            line |= {rung.study: rung.difference} | {f"{rung.study} {end}": x for end, x in ends.items()}
        yield line | {
            "word": row.word,
            "p": row.p,
            "prediction": row.prediction,
            "prediction lower": row.lower,
            "prediction upper": row.upper,
            "paper": row.paper,
        }


def analysis(found: Ladder) -> Analysis:
    """For every format."""
    title, studies = found.asked.heading([*found.studies], "as a ladder"), len(found.studies)
    words = title, found.asked.question, "ladder", f"{plural(len(found.rows), 'row')} at {studies} scales"
    return Analysis(*words, sections(found), list(data(found)), found, schema=1)
