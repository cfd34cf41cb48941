"""What lines beyond the training length cost, in words and as a table: for the terminal, Markdown and the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lightning_tfm.metrics import OF_TEXT
from lightning_tfm.plural_words import signed
from lightning_tfm.report.analyses.length_extrapolation import BeyondRow, BeyondSummary
from lightning_tfm.report.analyses.length_extrapolation_figure import pictures
from lightning_tfm.report.blocks import NOTHING, Block, Column, Figures, Fold, Notes, Section, Table, Text, Widest
from lightning_tfm.report.pages.document import p_value
from lightning_tfm.report.row import Interval, SummaryRow
from lightning_tfm.report.tables import columns


def section(found: BeyondSummary | None, rows: Sequence[SummaryRow] = ()) -> Section:
    """Empty if no line is longer than the training length. `rows`: of the report, for pictures."""
    title = "Beyond the training length"
    if found is None:
        return Section("beyond", title)
    said = Text([words] if (words := verdict(found)) else [])
    table = [_table(found, columns.labels(rows))] * bool(found.rows)
    return Section("beyond", title, [said, *_drawn(found, rows), *table, Notes(about(found))])


def _drawn(found: BeyondSummary, rows: Sequence[SummaryRow]) -> list[Block]:
    made = pictures(found, rows) if rows else []
    about = "Mean over seeds; the band spans the seeds. Classes of half a training length, drawn at their middles."
    first, rest = (Figures(some, rows=[row.row for row in found.rows]) for some in (made[:2], made[2:]))
    of_translations = [Fold(f"{OF_TEXT.label} and the length of translations", [rest])] * bool(made[2:])
    return [first, Notes([about]), *of_translations] * bool(made)


def _table(found: BeyondSummary, labels: Mapping[str, str]) -> Widest:
    """Without the columns for which there is no room."""
    over = RISE if found.control is None else replace(RISE, head=f"rise over {found.control}'s [95 %]")
    shown = SHOWN if translated(found) else SHOWN[: -len(OF_TRANSLATIONS)]
    heads = [over if column is RISE else column for column, _ in shown]
    cells = [[columns.titled(r.row, labels), *(cell(r) for _, cell in shown[1:])] for r in found.rows]
    wide = Table("", heads, cells)
    kept = [i for i, column in enumerate(wide.columns) if column.lines]
    short = replace(wide, columns=[wide.columns[i] for i in kept], rows=[[row[i] for i in kept] for row in wide.rows])
    return Widest(
        [(replace(wide, columns=[replace(c, lines="") for c in wide.columns]), Notes([])), (short, Notes([]))]
    )


def interval(found: Interval | None) -> str:
    """+0.12 [+0.10, +0.14]; a dash for none."""
    if found is None or found.estimate is None:
        return NOTHING
    ends = (
        "" if found.lower is None or found.upper is None else f" [{signed(found.lower, 2)}, {signed(found.upper, 2)}]"
    )
    return f"{signed(found.estimate, 2)}{ends}"


RISE = Column("rise [95 %]", lines="rise [95 %]")
OF_TRANSLATIONS: list[tuple[Column, Callable[[BeyondRow], str]]] = [
    (Column(f"{OF_TEXT.label} within"), lambda r: f"{r.bleu_within:.1f}"),
    (Column(f"{OF_TEXT.label} beyond"), lambda r: f"{r.bleu_beyond:.1f}"),
    (Column("length ratio", lines="ratio"), lambda r: f"{r.ratio:.2f}"),
    (Column("early %"), lambda r: f"{100 * (r.early or 0):.0f}"),
]
SHOWN: list[tuple[Column, Callable[[BeyondRow], str]]] = [
    (Column("row", True, lines="row"), lambda r: r.row),
    (Column("n"), lambda r: str(r.n)),
    (Column("NLL within", lines="within"), lambda r: f"{r.within:.3f}"),
    (Column("NLL beyond", lines="beyond"), lambda r: f"{r.beyond:.3f}"),
    (RISE, lambda r: interval(r.excess)),
    (Column("verdict", True, lines="verdict"), lambda r: r.word),
    (Column("reach", lines="reach"), lambda r: f"{r.reach:g} ×"),
    (Column("beyond, less base's [95 %]"), lambda r: interval(r.against)),
    (Column("p (BH)"), lambda r: p_value(r.p)),
    (Column("against base", True), lambda r: r.compared),
    *OF_TRANSLATIONS,
]
"""columns with their cells; those that stay where there is little room have a head for there"""


def verdict(found: BeyondSummary) -> str:
    """“Sentence” word (why); empty where the study does not ask for it."""
    return f"“{found.sentence}” {found.verdict} ({found.why})" if found.sentence else ""


def about(found: BeyondSummary) -> list[str]:
    """What the numbers are."""
    rise = "rise: NLL per token beyond less that within"
    if found.control is not None:
        rise += f", less the same of {found.control}, which trained on lines of all these lengths"
    told = [
        f"{found.lines} lines of '{found.split}', lengths in multiples of the training length of {found.limit} tokens, "
        "end token included; within: the longer side has half to all of it",
        rise,
        f"extrapolates, degrades: the 95 % interval of the rise is below, above {found.tolerance:g} nats per token; "
        "reach: how far its mean stays below, class by class",
    ]
    ratio = "length ratio and early (less than half of the reference's tokens): of the translations beyond"
    return [*told, *[ratio] * translated(found), *found.missing]


def translated(found: BeyondSummary) -> bool:
    return all(row.bleu_beyond is not None for row in found.rows)
