"""A comparison of studies as blocks and as data, in every format."""

from collections.abc import Iterator

from lightning_tfm.metrics import METRICS
from lightning_tfm.plural_words import plural
from lightning_tfm.plural_words import signed as with_sign
from lightning_tfm.report.across.comparison import Against, ComparedRow, Comparison
from lightning_tfm.report.across.comparison_figure import forest
from lightning_tfm.report.blocks import Figures, Notes, Section, Table, columns
from lightning_tfm.report.charts.heat_map import NOTHING
from lightning_tfm.report.pages.document import p_value
from lightning_tfm.report.render.analysis import Analysis
from lightning_tfm.report.row import Difference
from lightning_tfm.report.tables.columns import titled


def signed(metric: str, value: float | None) -> str:
    """A difference with its sign; a dash for None."""
    return NOTHING if value is None else with_sign(METRICS[metric].shown(value), METRICS[metric].difference_digits)


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


def sections(comparison: Comparison) -> list[Section]:
    """What a page and a terminal show."""
    said = "Each row's difference to base in dev {}, with its 95 % interval, one line for each study."
    pictures = [(forest(comparison, metric), said.format(METRICS[metric].label)) for metric in comparison.metrics]
    tables = [_table(comparison, k, metric) for k in range(1, len(comparison.sides)) for metric in comparison.metrics]
    notes = Notes(list(_notes(comparison)))
    return [
        Section("rows", "Rows", [Figures([one for one in pictures if one[0]])]),
        Section("tables", "Differences of differences", tables),
        Section("method", "How to read this", [notes]),
    ]


def _table(comparison: Comparison, k: int, metric: str) -> Table:
    one, other, asked = comparison.sides[0].study, comparison.sides[k].study, comparison.asked
    heads = columns("row", "n", one, other, "difference", "95 %", "p (BH)")
    return Table(
        f"{asked.of(other)} against {asked.of(one)}: dev {METRICS[metric].label} to base{', %' * METRICS[metric].log}",
        heads,
        [[titled(row.name, comparison.labels), *_line(row, k, metric)] for row in comparison.rows],
    )


def _line(row: ComparedRow, k: int, metric: str) -> list[str]:
    """Seeds, both differences, the difference of them, its interval, p."""
    one, other, found = to_base(row, 0, metric), to_base(row, k, metric), against(row, k, metric)
    n = "/".join(str(place.n) if place else NOTHING for place in (row.places[0], row.places[k]))
    sides = [signed(metric, d.estimate if d else None) for d in (one, other)]
    return [n, *sides, signed(metric, found.estimate), interval(metric, found), _p(found)]


def _p(found: Against) -> str:
    return p_value(found.p) or (found.why if found.lower is not None else NOTHING)


def _notes(comparison: Comparison) -> Iterator[str]:
    """What the numbers mean, and what is not the same in the studies."""
    first = comparison.sides[0]
    yield (
        f"difference: the row's difference to base minus that in {first.study}; intervals are marginal, p is "
        "corrected over the rows by Benjamini and Hochberg; where nothing differs, at most 5.4 % of metrics hold a "
        "false one in simulated studies of five seeds (benchmarks/results/effects.txt)"
    )
    for side in comparison.sides:
        found = {METRICS[name].label: side.base[name] for name in comparison.metrics}
        said = ", ".join(f"{label} {NOTHING if x is None else f'{x:.2f}'}" for label, x in found.items())
        yield f"{side.study}: corpus {side.corpus}, base {said}"
        if side.apart:
            yield f"{side.study}: {'; '.join(side.apart)}"
        if side.looks:
            yield f"{side.study}: its seeds were added after looking, which p is not corrected for here"
    if comparison.shared:
        rows = [f"{row.name} {row.same_runs}" for row in comparison.rows if row.same_runs]
        said = "their differences share noise"
        yield f"{plural(len(comparison.shared), 'run')} shared ({', '.join(rows) or 'of base'}): {said}"
    yield from comparison.left_out


def data(comparison: Comparison) -> Iterator[dict[str, object]]:
    """A line for each row, study and metric, at full precision; differences as the metric is tested."""
    for row in comparison.rows:
        for side, place in zip(comparison.sides, row.places, strict=True):
            for metric in comparison.metrics if place else ():
                assert place is not None
                d, found = place.difference[metric], place.against.get(metric, Against())
                yield {
                    **{"row": row.name, "study": side.study, "metric": metric, "n": place.n},
                    **{"difference to base": d and d.estimate, "se": d and d.se, "df": d and d.df},
                    **{"difference of differences": found.estimate, "lower": found.lower, "upper": found.upper},
                    **{"p (BH)": found.p, "why not": found.why},
                }


def analysis(comparison: Comparison) -> Analysis:
    """For every format."""
    studies = [side.study for side in comparison.sides]
    asked, head = comparison.asked, f"{plural(len(comparison.rows), 'row')} in {len(studies)} studies"
    words = asked.heading(studies, "side by side"), asked.question, "comparison", head
    return Analysis(*words, sections(comparison), list(data(comparison)), comparison, schema=2)
