"""nll per reference word and character: what no segmentation moves, printed beside the perplexity per piece."""

from collections.abc import Sequence

from lightning_tfm.metrics import BYTE, CHARACTER, WORD, Metric
from lightning_tfm.report.row import SummaryRow, paper_metrics
from lightning_tfm.report.summary import Summary

MEANT = (
    "NLL per word and per character is in nats, over the raw references: words are what white space separates, "
    "characters Unicode code points; the ends of sentences are in the sum and count as neither"
)


OF_BYTES = MEANT.replace("character ", "byte ").replace("characters Unicode code points", "bytes as in UTF-8")
MEANINGS = (MEANT, OF_BYTES)


def metrics_recorded(rows: Sequence[SummaryRow]) -> list[Metric]:
    """Those that any row has: records of before they were kept print blank; of a text without a source by bytes."""
    if any(BYTE.name in row.more for row in rows):
        return [WORD, BYTE]
    return [WORD, CHARACTER] * any(row.word is not None for row in rows)


def notes(report: Summary) -> list[str]:
    """What they are, and which rows are compared by them; empty where no row has any."""
    found = [OF_BYTES if BYTE in metrics_recorded(report.rows) else MEANT] * bool(metrics_recorded(report.rows))
    if report.foreign:
        whose = f"{', '.join(report.foreign)} {'has' if len(report.foreign) == 1 else 'have'}"
        found.append(
            f"{whose} another vocabulary than {report.to}: perplexities per token are NOT comparable between them, so "
            "they are compared by "
            + " and ".join(["NLL per reference word", *(m.label for m in paper_metrics(report.rows) if m.counted)])
        )
    return found
