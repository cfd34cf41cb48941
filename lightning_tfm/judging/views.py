"""Verdicts as blocks (report/blocks.py), for every format, and as data."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.judging.scores import Aim
from lightning_tfm.judging.verdicts import ALONE, SEEDS_ONLY, Judged, Judgement
from lightning_tfm.plurals import plural
from lightning_tfm.report.blocks import Block, Cell, Column, Data, Figures, Notes, Section, Table, Widest
from lightning_tfm.report.stats.statistics import ALPHA
from lightning_tfm.report.word import UNDECIDED, UNTESTABLE

if TYPE_CHECKING:
    from markupsafe import Markup

    from lightning_tfm.report.render.analysis import Analysis

SCHEMA = 1
NUMBERS = {"difference": "estimate", "se": "se", "df": "df", "lower": "lower", "upper": "upper"}
NUMBERS |= {"p (BH)": "p", "p (Holm)": "holm", "seeds needed": "needed"}
DOTS = 100
"""rows whose seeds are drawn"""


def digits(rows: Sequence[Judged], aim: Aim) -> int:
    """Decimals of a difference, so that half of most intervals has two digits."""
    halves = [abs(aim.shown(2 * float(r.evidence.se))) for r in rows if r.evidence and r.evidence.se > 0]
    middle = sorted(halves)[len(halves) // 2] if halves else 0.01
    return min(max(1 - math.floor(math.log10(middle)), 0), 8)


def table(judgement: Judgement, aim: Aim, narrow: bool = False) -> Table:
    """All rows in one metric. `narrow`: without the standard deviation and p."""
    rows, unit = judgement.rows[aim.name], " %" * aim.log
    fine = digits(rows, aim)
    published = any(one.published is not None for one in rows)
    heads = [
        Column("row", True),
        Column("n"),
        Column("mean" if narrow else "mean ± sd", kind="score", lower_is_better=aim.lower),
        Column("Δ" + unit.replace(" ", ", "), kind="difference"),
        Column("95 %"),
        *[Column("p", kind="p")] * (not narrow),
        *[Column("published Δ")] * published,
        Column("verdict", True),
    ]
    title = f"{aim.name} ({'lower' if aim.lower else 'higher'} is better); Δ to {_to(judgement)}"
    return Table(title, heads, [list(_cells(one, aim, fine, published, narrow)) for one in rows])


def _cells(one: Judged, aim: Aim, fine: int, published: bool, narrow: bool) -> Iterator[str | Cell]:
    of_scores = max(fine, 3 - math.floor(math.log10(abs(one.mean)))) if aim.log and one.mean else fine
    mean = f"{one.mean:.{min(max(of_scores, 0), 8)}f}" if math.isfinite(one.mean) else "–"
    spread = "" if narrow or math.isnan(one.sd) else f"± {one.sd:.{fine}f}" + " %" * aim.log
    yield from (one.row, str(one.n), Cell(mean, spread, one.mean if math.isfinite(one.mean) else None))
    e = one.evidence
    if e is None:
        yield from [""] * (2 if narrow else 3)
    else:
        shown = aim.shown(float(e.estimate))
        ends = None if math.isnan(e.lower) else (aim.shown(e.lower), aim.shown(e.upper))
        yield Cell(f"{shown:+z.{fine}f}", value=shown, ends=ends)
        yield f"[{ends[0]:+z.{fine}f}, {ends[1]:+z.{fine}f}]" if ends else ""
        yield from [Cell(_p(e.p), value=None if math.isnan(e.p) else e.p)] * (not narrow)
    if published:
        yield "–" if one.published is None else f"{aim.shown(one.published):+z.{fine}f}"
    sure = e is not None and e.holm < ALPHA
    said = ", ".join(filter(None, [one.verdict, one.beside]))
    yield Cell(one.verdict, one.beside, word=one.verdict, said=said, sure=sure) if one.verdict else ""


def _p(p: float) -> str:
    return "" if math.isnan(p) else "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"


def headline(judgement: Judgement) -> list[str]:
    """What was found in the metric that decides, in sentences."""
    rows = [one for one in judgement.rows[judgement.aims[0].name] if one.verdict]
    by_word: dict[str, list[str]] = {}
    for one in rows:
        by_word.setdefault(one.verdict, []).append(one.row)
    said = [f"{word}: {', '.join(names[:8])}{' …' * (len(names) > 8)}" for word, names in by_word.items()]
    return [f"{judgement.aims[0].name} of {plural(len(rows), 'row')} against {_to(judgement)}: " + "; ".join(said)]


def notes(judgement: Judgement, items: bool = False) -> list[str]:
    """What the numbers mean, and what is missing."""
    first, logs = judgement.aims[0], [one.name for one in judgement.aims if one.log]
    to = _to(judgement)
    found = [f"base may be what stands apart: {judgement.alone}; {ALONE}"] * bool(judgement.alone)
    found += [
        "mean ± standard deviation (n-1)"
        + (f"; of {', '.join(logs)} the geometric mean, ± of logarithms in percent" if logs else "")
        + "; 95 % intervals are of each difference alone; verdicts go by p, corrected over the rows of a metric by "
        "Benjamini and Hochberg, bold: by Holm too; seeds are not paired"
    ]
    if len(judgement.aims) > 1 and judgement.target is None:
        found.append(f"{first.name} decides; the other metrics are corrected over their own rows alone")
    if judgement.target is None and not items:
        found.append(SEEDS_ONLY)
    if any(one.tau != one.tau for one in judgement.aims):
        lacks = ", ".join(one.name for one in judgement.aims if one.margin is None)
        found.append(f"{lacks}: without a margin (--metric NAME:higher:MARGIN) no row is called equal to {to}")
    rows = [one for every in judgement.rows.values() for one in every]
    if any(one.verdict == UNTESTABLE and one.missing for one in rows):
        found.append("with fewer than five seeds a row has an interval and no verdict")
    if any(one.verdict == UNDECIDED for one in rows):
        found.append("seeds: of the row and of base, to find the difference if it is as estimated")
    return [*found, *judgement.notes]


def _to(judgement: Judgement) -> str:
    return judgement.base if judgement.target is None else f"{judgement.target:g}"


def sections(judgement: Judgement, items: bool = False, pictures: bool = True) -> list[Section]:
    """The forest, the tables, the seeds, the method."""
    parts: list[Section] = []
    if pictures:
        said = f"Δ to {_to(judgement)}, with 95 % intervals."
        forests = [(picture(judgement, aim), said) for aim in _aims(judgement)]
        parts.append(Section("forest", "Differences", [Figures([one for one in forests if one[0]])]))
    tables: list[Block] = [table(judgement, aim) if pictures else _fitted(judgement, aim) for aim in _aims(judgement)]
    parts.append(Section("rows", "Rows", tables))
    if pictures and (dots := seeds_picture(judgement)):
        parts.append(Section("seeds", "Seeds", [Figures([(dots, "One dot a run; the bar is the mean.")])]))
    return [*parts, Section("method", "How to read this", [Notes(notes(judgement, items))])]


def _fitted(judgement: Judgement, aim: Aim) -> Widest:
    """As wide as a terminal allows."""
    wide, thin = ((table(judgement, aim, narrow), Notes([])) for narrow in (False, True))
    return Widest([wide, thin, thin])


def _aims(judgement: Judgement) -> list[Aim]:
    return [aim for aim in judgement.aims if aim.name in judgement.rows]


def picture(judgement: Judgement, aim: Aim) -> "Markup":
    """The forest of one metric, the best first."""
    from lightning_tfm.report import forest
    from lightning_tfm.report.panels import short_name
    from lightning_tfm.report.word import WORDS

    rows = [one for one in judgement.rows[aim.name] if one.evidence and math.isfinite(float(one.evidence.estimate))]
    rows.sort(key=lambda one: float(one.evidence.estimate), reverse=not aim.lower)  # type: ignore[union-attr]
    fine, lines = digits(rows, aim), []
    for one in rows:
        assert one.evidence is not None
        e, word = one.evidence, WORDS[one.verdict]
        low, high = (None if math.isnan(x) else aim.shown(x) for x in (e.lower, e.upper))
        shape = forest.BAR if word.mark == forest.DASH else word.mark
        estimate = aim.shown(float(e.estimate))
        number = f"{estimate:+z.{fine}f}" + " %" * aim.log
        mark = forest.Mark(one.row, estimate, low, high, word.style, shape, more=f"; {one.verdict}", number=number)
        lines.append((short_name(one.row), [mark]))
    axis = f"{aim.name}, difference to {_to(judgement)}" + ", %" * aim.log
    return forest.picture(lines, axis, f"Differences to {_to(judgement)} in {aim.name}, with 95 % intervals")


def seeds_picture(judgement: Judgement) -> "Markup":
    """Every run of the metric that decides as a dot, a line for each row; empty for many rows."""
    from markupsafe import Markup

    from lightning_tfm.report.panels import short_name
    from lightning_tfm.report.svg import bottom_axis, dot, figure, label, spanning, tag

    aim = judgement.aims[0]
    rows = judgement.rows[aim.name]
    values = [x for one in rows for x in one.seeds.values() if math.isfinite(x)]
    if len(rows) > DOTS or not values:
        return Markup()
    left, step, top, width = 18 + 7 * max(min(len(one.row), 30) for one in rows), 20, 12, 620
    bottom = top + step * len(rows)
    x = spanning(values, left, width - 14, log=aim.log)
    body = bottom_axis(x, bottom, top, aim.name)
    for i, one in enumerate(rows):
        y = top + step * (i + 0.5)
        body += label(left - 10, y + 4, short_name(one.row), "end")
        if math.isfinite(one.mean):
            body += tag("line", x1=x(one.mean), x2=x(one.mean), y1=y - 7, y2=y + 7, class_="interval")
        dots = (dot(x(v), y, f"{one.row}, seed {s}: {v:g}", 3.0) for s, v in one.seeds.items() if math.isfinite(v))
        body += tag("g", "".join(dots), class_="point g1")
    return figure(width, bottom + 42, f"{aim.name} of every run", body)


def data(judgement: Judgement) -> Iterator[dict[str, object]]:
    """A line for each row and metric, at full precision; differences as they are tested (log: of logarithms)."""
    for aim in _aims(judgement):
        for one in judgement.rows[aim.name]:
            e = one.evidence
            numbers = {head: getattr(e, name) for head, name in NUMBERS.items()} if e else {}
            said = {"verdict": str(one.verdict), "beside": one.beside, "why": one.why}
            start = {"row": one.row, "metric": one.metric, "n": one.n, "diverged": one.diverged}
            found = start | {"mean": one.mean, "sd": one.sd, **numbers, **said}
            yield {k: _finite(v) for k, v in found.items()}


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def formula_safe(lines: Data) -> Data:
    """Texts that a spreadsheet would take for a formula begin with an apostrophe."""
    starts = tuple("=+-@")
    return [{k: f"'{v}" if isinstance(v, str) and v.startswith(starts) else v for k, v in x.items()} for x in lines]


def found(judgement: Judgement) -> dict[str, object]:
    """For JSON."""
    return {
        "source": judgement.source,
        "base": judgement.base,
        "target": judgement.target,
        "metrics": [
            {"name": aim.name, "better": "lower" if aim.lower else "higher", "log": aim.log, "margin": aim.margin}
            for aim in judgement.aims
        ],
        "base stands apart": judgement.alone,
        "rows": list(data(judgement)),
        "notes": notes(judgement),
    }


def analysis(judgement: Judgement, items: bool = False, pictures: bool = True) -> "Analysis":
    """For every format."""
    from lightning_tfm.report.render.analysis import Analysis

    title = Path(judgement.source).name
    head, parts = "; ".join(headline(judgement)), sections(judgement, items, pictures)
    lines = formula_safe(list(data(judgement)))
    return Analysis(title, "", "judge", head, parts, lines, found(judgement), SCHEMA)
