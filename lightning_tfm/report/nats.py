"""nll per reference word and character: what no segmentation moves, printed beside the perplexity per piece."""

from collections.abc import Sequence

from lightning_tfm.metrics import OF_TEXT
from lightning_tfm.report.row import SummaryRow
from lightning_tfm.report.summary import Summary, Table

MEANT = (
    "nll per word and per character is in nats, of the raw references: words are what white space separates, "
    "characters Unicode code points; the ends of sentences are in the sum and count as neither"
)


def known(rows: Sequence[SummaryRow]) -> bool:
    """Whether any row has them: records of before they were kept print blank."""
    return any(row.word is not None for row in rows)


def notes(report: Table | Summary) -> list[str]:
    """What they are, and which rows are compared by them; empty where no row has any."""
    found = [MEANT] if known(report.rows) else []
    if report.foreign:
        to = report.to if isinstance(report, Summary) else "base"
        whose = f"{', '.join(report.foreign)} {'has' if len(report.foreign) == 1 else 'have'}"
        found.append(
            f"{whose} other pieces than {to}: perplexities per piece are NOT comparable between them, so they are "
            f"compared by nll per reference word and {OF_TEXT.label}"
        )
    return found
