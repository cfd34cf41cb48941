"""What lines beyond the training length cost, in words and as a table: for the terminal, Markdown and the page."""

from lightning_tfm.report.beyond_figure import pictures
from lightning_tfm.report.blocks import Block, Column, Figures, Notes, Section, Table, Text
from lightning_tfm.report.heat_map import NOTHING
from lightning_tfm.report.summary import BeyondRow, BeyondSummary, Interval


def section(found: BeyondSummary | None) -> Section:
    """Empty where no line is longer than the training length."""
    title = "Beyond the training length"
    if found is None:
        return Section("beyond", title)
    said = Text([words] if (words := verdict(found)) else [])
    table = [Table("", _columns(found), [cells(row) for row in found.rows])] * bool(found.rows)
    return Section("beyond", title, [said, *_drawn(found), *table, Notes(about(found))])


def _drawn(found: BeyondSummary) -> list[Block]:
    made = pictures(found)
    about = "Mean over seeds; the band spans the seeds. Classes of half a training length, drawn at their middles."
    return [Figures(made, rows=[row.row for row in found.rows]), Notes([about])] if made else []


def _columns(found: BeyondSummary) -> list[Column]:
    """Of `cells`."""
    rise = "rise" if found.control is None else f"rise over {found.control}'s"
    return [
        Column("row", True, "row"),
        Column("n"),
        Column("nll within", short="within"),
        Column("nll beyond", short="beyond"),
        Column(f"{rise} [95 %]", short="rise [95 %]"),
        Column("word", True, "word"),
        Column("reach", short="reach"),
        Column("beyond, less base's [95 %]"),
        Column("p (BH)"),
        Column("against base", True),
        Column("BLEU within"),
        Column("BLEU beyond"),
        Column("length ratio", short="ratio"),
        Column("early %"),
    ]


def cells(row: BeyondRow) -> list[str]:
    """A row's line of the table."""
    return [
        row.row,
        str(row.n),
        f"{row.within:.3f}",
        f"{row.beyond:.3f}",
        interval(row.excess),
        row.word,
        f"{row.reach:g} ×",
        interval(row.against),
        "" if row.p is None else f"{row.p:.2g}",
        row.compared,
        f"{row.bleu_within:.1f}",
        f"{row.bleu_beyond:.1f}",
        f"{row.ratio:.2f}",
        f"{100 * row.early:.0f}",
    ]


def interval(found: Interval | None) -> str:
    """+0.12 [+0.10, +0.14]; a dash for none."""
    if found is None or found.estimate is None:
        return NOTHING
    ends = "" if found.lower is None or found.upper is None else f" [{found.lower:+.2f}, {found.upper:+.2f}]"
    return f"{found.estimate:+.2f}{ends}"


def verdict(found: BeyondSummary) -> str:
    """“Sentence” word (why); empty where the study does not ask for it."""
    return f"“{found.sentence}” {found.verdict} ({found.why})" if found.sentence else ""


def about(found: BeyondSummary) -> list[str]:
    """What the numbers are."""
    rise = "rise: nll per piece beyond less that within"
    if found.control is not None:
        rise += f", less the same of {found.control}, which trained on lines of all these lengths"
    told = [
        f"{found.lines} lines of '{found.split}', lengths in multiples of the training length of {found.limit} pieces, "
        "end token included; within: the longer side has half to all of it",
        rise,
        f"carries, falls off: the 95 % interval of the rise is below, above {found.tolerance:g} nats per piece; "
        "reach: how far its mean stays below, class by class",
        "length ratio and early (less than half of the reference's pieces): of the translations beyond",
    ]
    return told + found.missing
