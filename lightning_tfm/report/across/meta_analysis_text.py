"""Rows over corpora (report/across/meta_analysis.py) as blocks and as data, in every format."""

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median

from lightning_tfm.metrics import METRICS
from lightning_tfm.plural_words import plural
from lightning_tfm.report.across.comparison_text import signed
from lightning_tfm.report.across.meta_analysis import SCOPE, Foresight, Pool, PooledEffect
from lightning_tfm.report.blocks import Block, Notes, Section, Table, columns
from lightning_tfm.report.pages.document import p_value
from lightning_tfm.report.render.analysis import Analysis
from lightning_tfm.report.tables.columns import titled


def sections(pool: Pool) -> list[Section]:
    """What every format for people shows."""
    tables: list[Block] = [_table(pool, metric) for metric in _metrics(pool)]
    return [
        Section("rows", "Rows over corpora", tables),
        Section("method", "How to read this", [Notes(list(_notes(pool)))]),
    ]


def _metrics(pool: Pool) -> list[str]:
    return [name for name in METRICS if any(name in row.by_metric for row in pool.rows)]


def _table(pool: Pool, metric: str) -> Table:
    unit = f"dev {METRICS[metric].label} to base{', %' * METRICS[metric].log}"
    heads = columns(
        "row", "studies", "difference", "95 %", "unseen corpus, 95 %", "p (BH)", "I²", "verdict", words=["verdict"]
    )
    rows = [row for row in pool.rows if metric in row.by_metric]
    lines = [[titled(row.row, pool.labels), *_line(row.by_metric[metric])] for row in rows]
    return Table(f"{unit}, {len(pool.studies)} studies; verdicts are {SCOPE}", heads, lines)


def _line(found: PooledEffect) -> list[str]:
    mean, *ends = (
        signed(found.metric, x)
        for x in (found.estimate, found.lower, found.upper, found.unseen_lower, found.unseen_upper)
    )
    intervals = [f"[{low}, {high}]" for low, high in (ends[:2], ends[2:])]
    return [str(found.studies), mean, *intervals, p_value(found.p), f"{100 * found.I2:.0f} %", found.word]


def _notes(pool: Pool) -> Iterator[str]:
    """What the numbers mean, how well they foresee, and what is missing."""
    yield (
        f"verdicts are {SCOPE}; they take {', '.join(pool.studies)} for a sample of corpora: difference and "
        "its interval are of the mean over corpora (Paule-Mandel, Hartung-Knapp), p is corrected over the rows by "
        "Benjamini and Hochberg; unseen corpus: where the difference on another one would lie; I²: share of the spread "
        "between studies that seeds do not explain"
    )
    shared = [of for of in pool.families.values() if len(of) > 1]
    yield from (
        f"{', '.join(of)} are of one family of texts, so that they say less than as many corpora" for of in shared
    )
    if pool.shared:
        yield f"studies that share runs ({len(pool.shared)}) are no different corpora"
    for metric in _metrics(pool):
        found = [row.by_metric[metric] for row in pool.rows if metric in row.by_metric]
        half = median((one.unseen_upper - one.unseen_lower) / 2 for one in found)
        yield f"median half-width of the intervals for an unseen corpus: {_width(metric, half)}"
    yield from (foresight_line(one) for one in pool.foresight)
    yield from pool.left_out


def foresight_line(found: Foresight) -> str:
    """How many held-out differences were where the other studies put them."""
    share = found.covered / found.cases
    return (
        f"{METRICS[found.metric].label}, held out a family of texts at a time ({len(found.families)} of them): "
        f"{found.covered} of {found.cases} differences ({100 * share:.0f} %) lie in the 95 % interval that the other "
        f"studies give, with their own error; its half-width has the median {_width(found.metric, found.half_width)}"
    )


def _width(metric: str, half: float) -> str:
    label = METRICS[metric].tested_as
    return f"{half:.2f} of {label}" if METRICS[metric].log else f"{half:.1f} {label}"


def data(pool: Pool) -> Iterator[dict[str, object]]:
    """A line for each row and metric, at full precision; differences as the metric is tested."""
    for row in pool.rows:
        for found in row.by_metric.values():
            yield {"row": row.row} | {key.replace("_", " "): value for key, value in asdict(found).items()}


def analysis(pool: Pool) -> Analysis:
    """For every format."""
    title, head = pool.asked.heading(pool.studies, "pooled"), plural(len(pool.rows), "row")
    head += f" over {len(pool.studies)} studies"
    return Analysis(title, pool.asked.question, "pool", head, sections(pool), list(data(pool)), pool, schema=1)
