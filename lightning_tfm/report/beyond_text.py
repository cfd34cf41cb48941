"""What lines beyond the training length cost, in words and as a table: for the terminal, Markdown and the page."""

from lightning_tfm.report.heat_map import NOTHING
from lightning_tfm.report.panels import short_name
from lightning_tfm.report.summary import BeyondRow, BeyondSummary, Interval

NAME = 16
"""columns of a row's name in the terminal"""


def heads(found: BeyondSummary) -> list[str]:
    """Of the columns of `cells`."""
    rise = "rise" if found.control is None else f"rise over {found.control}'s"
    return [
        "row",
        "n",
        "nll within",
        "nll beyond",
        f"{rise} [95 %]",
        "word",
        "reach",
        "beyond, less base's [95 %]",
        "p (BH)",
        "against base",
        "BLEU within",
        "BLEU beyond",
        "length ratio",
        "early %",
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
        f"carries, falls off: the 95 % interval of the rise lies below, above {found.tolerance:g} nats per piece; "
        "reach: how far its mean stays below, class by class",
        "length ratio and early (less than half of the reference's pieces): of the translations beyond",
    ]
    return told + found.missing


def lines(found: BeyondSummary) -> list[str]:
    """The table for a terminal of 80 columns: what decides, and how translations end."""
    if not found.rows:
        return ["beyond the training length:"]
    head = ["", "within", "beyond", "rise, 95 %", "word", "reach", "BLEU", "ratio", "early"]
    table = [head, *(_short(row) for row in found.rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    left = (0, 4)
    shown = [
        " ".join(x.ljust(w) if i in left else x.rjust(w) for i, (x, w) in enumerate(zip(line, widths, strict=True)))
        for line in table
    ]
    title = f"beyond the training length of {found.limit} pieces, nll per piece"
    title += f"; rise less that of {found.control}" if found.control else ""
    return [f"{title}:", *(line.rstrip() for line in shown)]


def _short(row: BeyondRow) -> list[str]:
    return [
        short_name(row.row, NAME),
        f"{row.within:.2f}",
        f"{row.beyond:.2f}",
        _half(row.excess),
        row.word,
        f"{row.reach:g}×",
        f"{row.bleu_within:.0f}→{row.bleu_beyond:.0f}",
        f"{row.ratio:.2f}",
        f"{100 * row.early:.0f}%",
    ]


def _half(found: Interval | None) -> str:
    """+0.12 ± 0.02: the interval is as wide on both sides."""
    if found is None or found.estimate is None:
        return NOTHING
    return f"{found.estimate:+.2f}" + ("" if found.upper is None else f" ± {found.upper - found.estimate:.2f}")
