"""Perplexity against size and cost of the rows, and of every run."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from lightning_tfm.metrics import PPL
from lightning_tfm.report.blocks import Figures, Section
from lightning_tfm.report.charts.chart import SMALL, Axis, Chart, Point, Rule, Series, both, draw
from lightning_tfm.report.charts.panels import row_classes, short_names
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Summary, SummaryRow
from lightning_tfm.report.tables.columns import FACTS, Fact


def find(cells: Cells, report: Summary) -> list[Fact]:
    """What perplexity is drawn against."""
    return [fact for fact in FACTS if fact.axis]


def sections(facts: list[Fact], report: Summary) -> list[Section]:
    """Without rows whose perplexities are not comparable; empty where none differ in it."""
    rows = [row for row in report.rows if row.name not in (report.foreign or [])]
    classes = forest_of(report).classes or row_classes(report.rows)
    about = "Dashed: rows that no row with fewer {} beats."
    drawn = [(quality(rows, fact, classes), about.format(fact.axis.removeprefix("training "))) for fact in facts]
    blocks = [Figures(pictures)] if (pictures := [figure for figure in drawn if figure[0]]) else []
    return [Section("quality", "Quality against size", blocks, after="curves")]


def quality(rows: Sequence[SummaryRow], fact: Fact, classes: Mapping[str, str]) -> Markup:
    """Perplexity against parameters or FLOPs; the line joins the rows that no smaller row beats."""
    scored = [(r, size, r.ppl.mean) for r in rows if r.ppl.mean and (size := fact.of(r))]
    if not scored or max(size for _, size, _ in scored) < 1.01 * min(size for _, size, _ in scored):  # all of one size
        return Markup()
    best, front = math.inf, []
    for size, ppl in sorted((size, ppl) for _, size, ppl in scored):
        if ppl < best:
            best = ppl
            front.append((size, ppl))
    names = short_names([r for r, *_ in scored])
    series = [
        Series(
            r.name,
            [Point(size, ppl)],
            classes.get(r.name, "g0"),
            names[r.name],
            tip=f"{r.called}\n{fact.cell(r)} {fact.axis}, perplexity {PPL.score(ppl, r.ppl.sd)}",
            line=False,
            r=5.0,
        )
        for r, size, ppl in scored
    ]
    x, y = Axis(fact.axis, log=True), Axis("dev perplexity", log=True)
    return both(Chart(f"Perplexity against {fact.axis}", x, y, series, (640, 420), front=front), (380, 440))


def strip(report: Summary, classes: Mapping[str, str]) -> Markup:
    """Every run as a dot: how far its perplexity is from the mean of what rows are compared with; empty at one seed.
    Without rows whose perplexities are not comparable."""
    to, rows = report.against, [r for r in report.rows if r.ppl.by_seed and r.name not in (report.foreign or [])]
    if to is None or not to.ppl.mean or max((len(r.ppl.by_seed) for r in rows), default=0) < 2:
        return Markup()
    level, names = math.log(to.ppl.mean), short_names(rows)
    series = []
    for i, r in enumerate(rows):
        dots = [
            Point(PPL.in_units(math.log(ppl) - level), i, f"{r.called}, seed {seed}\nperplexity {PPL.score(ppl)}")
            for seed, ppl in r.ppl.by_seed.items()
            if ppl > 0
        ]
        series.append(Series(r.name, dots, classes.get(r.name, "g0"), line=False, r=3.5))
    x = Axis(f"dev perplexity of each run against {report.to}’s mean", percent=report.at_zero)
    y = Axis(ends=(len(rows) - 0.4, -0.6), words={float(i): names[r.name] for i, r in enumerate(rows)})
    return draw(Chart("Every run", x, y, series, (640, 80 + 18 * len(rows)), [Rule(x=0.0)]), SMALL)


ANALYSIS = Analysis(key="quality", find=find, sections=sections, json=False)
