"""The words of a table and of a report: notes, verdicts counted, claims, effects."""

import textwrap
from collections.abc import Sequence

from lightning_tfm.metrics import BYTE, METRICS, OF_TEXT, WORD
from lightning_tfm.plural_words import plural
from lightning_tfm.report.analyses.catalog import findings, notes_of_analyses
from lightning_tfm.report.blocks import Block, Text
from lightning_tfm.report.render import text as terminal
from lightning_tfm.report.summary import Summary, SummaryRow, nll_metrics, printed_metrics
from lightning_tfm.report.tables import columns
from lightning_tfm.report.wording.claims import ClaimSummary
from lightning_tfm.report.wording.headline import NO_BASE, base_apart, why_untested
from lightning_tfm.report.wording.outlier_seeds import FAR, outlier_clauses
from lightning_tfm.report.wording.verdict import BIAS, SCOPE, factors_printed, verdict_counts
from lightning_tfm.report.wording.verdict_words import WORDS, Verdict

SEEDS = "mean ± standard deviation (n-1); of PPL the geometric mean, ± of its logarithms in percent"


MEANT = (
    "NLL per word and per character is in nats, over the raw references: words are what white space separates, "
    "characters Unicode code points; the ends of sentences are in the sum and count as neither"
)
OF_BYTES = MEANT.replace("character ", "byte ").replace("characters Unicode code points", "bytes as in UTF-8")
MEANINGS = (MEANT, OF_BYTES)


def signature_notes(report: Summary) -> list[str]:
    """What the scores of translations are, their signatures."""
    every = {OF_TEXT.name: report.signature} if report.signature else {}
    every |= report.signatures or {}
    return [f"{METRICS[name].label} is {signature}" for name, signature in every.items()]


def sections_in_text(report: Summary) -> list[Block]:
    """Of the analyses whose sections text and Markdown have, too."""
    parts = [
        part for analysis, result in findings(report) if analysis.in_text for part in analysis.sections(result, report)
    ]
    return [block for part in parts for block in (Text([part.title]), *part.blocks)]


def sections_for_terminal(report: Summary, width: int) -> str:
    """The same below what stands there already; empty without any."""
    blocks = sections_in_text(report)
    return f"\n{terminal.to_text(blocks, width)}" if blocks else ""


def untested_notes(report: Summary, by_nll: bool = True) -> list[str]:
    """What the numbers are, and why cells are empty. Without the notes of columns that are not shown."""
    return [
        "dev PPL is per token, end token included" + "".join(f"; {x}" for x in signature_notes(report)),
        *(note for note in nll_notes(report) if by_nll or note not in MEANINGS),
        *columns.size_notes(report.scale, report.rows),
        *columns.constants_note(report.rows),
        *[f"{len(report.seeds)} seeds: {SEEDS}"] * (len(report.seeds) > 1),
        *row_notes(report),
        *empty_cell_notes(report.rows),
    ]


def row_notes(report: Summary) -> list[str]:
    """Scores and rows left aside, rows that are other rows, and what others print of them."""
    return [*common_notes(report), *twin_notes(report.rows), *elsewhere_notes(report.rows)]


def of_vocabularies(report: Summary) -> str:
    """What rows have whose perplexities are not compared."""
    return f"another vocabulary than {report.to}" if report.against else "different vocabularies"


def nll_notes(report: Summary) -> list[str]:
    """What they are, and which rows are compared by them; empty where no row has any."""
    notes = [OF_BYTES if BYTE in nll_metrics(report.rows) else MEANT] * bool(nll_metrics(report.rows))
    if report.foreign:
        whose = f"{', '.join(report.foreign)} {'has' if len(report.foreign) == 1 else 'have'}"
        notes.append(
            f"{whose} {of_vocabularies(report)}: perplexities per token are NOT comparable between them, so "
            "they are compared by "
            + " and ".join(["NLL per reference word", *(m.label for m in printed_metrics(report.rows) if m.counted)])
        )
    return notes


def reference_note(report: Summary) -> list[str]:
    """That differences are not to base, where they are not; empty where they are."""
    if report.reference is None:
        return []
    paper = ", the paper's too" if columns.of_the_paper(report.rows) else ""
    return [
        f"differences, p and verdicts are to the row {report.reference}, NOT to base{paper}; changes are to base",
        "p and verdicts hold for a reference that was named before the results were seen, not for the best row of them",
    ]


def empty_cell_notes(rows: Sequence[SummaryRow]) -> list[str]:
    """Why cells are empty: a line for each reason, with the row and seed of every cell."""
    cells: dict[str, list[str]] = {}
    for row in rows:
        for seed, why in row.missing.items():
            cells.setdefault(why, []).append(f"{row.name}/{seed}")
    return [f"{why}: {', '.join(names)}" for why, names in cells.items()]


def twin_notes(rows: Sequence[SummaryRow]) -> list[str]:
    """A sentence on the rows that are other rows, none where there are none."""
    twins = [f"{row.name} is {row.same_as}" for row in rows if row.same_as]
    own = "its own" if len(twins) == 1 else "their own"
    return [f"{', '.join(twins)}: the same runs, so no comparison of {own}"] * bool(twins)


def scale_notes(report: Summary) -> list[str]:
    """How sizes are to be read, of a miniature how it divides alone, and what all rows have alike."""
    sizes = columns.size_notes(report.scale, report.rows, brief=True)
    return [*(f"a {note}" if report.scale else note for note in sizes), *columns.constants_note(report.rows)]


def common_notes(report: Summary) -> list[str]:
    """Of every format: a missing base, scores that are left out, which rows are hidden, and what of them counts."""
    hidden = ", ".join(row.name for row in report.hidden or [])
    rows = [f"{plural(len(report.hidden or []), 'row')} hidden ({hidden}): in every correction"]
    return [NO_BASE] * (report.against is None) + outdated_notes(report) + rows * bool(hidden)


def outdated_notes(report: Summary) -> list[str]:
    """Which scores are left out as their metric is counted in another way now, a sentence for each metric."""
    again = f"lightning-tfm validate {report.study} --add "
    return [
        f"{METRICS[name].label}: the score of {plural(n, 'run')} is by another version of it and left out"
        + (f"; its class was edited since, {again}{name} counts it again" if ":" in name else "")
        for name, n in report.outdated.items()
    ]


def elsewhere_notes(rows: Sequence[SummaryRow]) -> list[str]:
    """What others print of the rows' changes: a line for each source, its rows first."""
    by_source: dict[str, list[str]] = {}
    for row in rows:
        if row.elsewhere:
            by_source.setdefault(row.elsewhere, []).append(row.called)
    return [f"{', '.join(names)}, elsewhere: {source}" for source, names in by_source.items()]


# --- the words of a report ---


def to_words(report: Summary, width: int) -> str:
    """For the terminal, below the table, which says itself that no row is base: the verdicts in each metric, and the
    claims."""
    differences = [d for row in report.rows for metric in report.metrics if (d := row.metric(metric).difference)]
    lines = [*verdict_count_lines(report), *map(claim_line, report.claims)]
    if differences and all(d.verdict == Verdict.UNTESTABLE for d in differences):
        lines = [why_untested(report)] * (report.against is not None)
    return "".join(f"{textwrap.fill(line, width)}\n" for line in lines) + sections_for_terminal(report, width)


def verdict_count_lines(report: Summary) -> list[str]:
    """How often each verdict occurs, by metric."""
    lines = []
    for metric in report.metrics:
        counts = verdict_counts(report.rows, metric)
        parts = [f"{n} {WORDS[word].shown}" for word, n in counts.items()]
        rows = plural(sum(counts.values()), "row")
        lines.append(f"{METRICS[metric].label}, {rows}: {'; '.join(parts) or 'none'} ({SCOPE})")
    return lines


def interim_note(report: Summary) -> str:
    """How often the results of seeds that were added were looked at."""
    done = f"{len(report.looks or [])} of at most {report.most_looks} interim analyses so far"
    return f"seeds were added to undecided rows, {done}"


def claim_line(claim: ClaimSummary) -> str:
    """“Text” word (p)."""
    return f"“{claim.text}” {claim.verdict}" + ("" if claim.p is None else f" (p {claim.p:.2g})")


def brief_notes(report: Summary) -> list[str]:
    """Below the tables with tests in a terminal."""
    of_nll = [note for note in nll_notes(report) if WORD.name in report.metrics or note not in MEANINGS]
    notes = [*base_apart(report), *reference_note(report), *of_nll]
    tested = any(row.primary and row.primary.verdict != Verdict.UNTESTABLE for row in report.rows)
    verdicts = "; verdicts use p (BH), over the rows of a metric" * tested
    notes.append(f"{SEEDS}; marginal {report.level} % intervals{verdicts}")
    notes += columns.size_notes(report.scale, report.rows, brief=True)
    notes += [
        *common_notes(report),
        *twin_notes(report.rows),
        *outlier_clauses(report.rows),
        *empty_cell_notes(report.rows),
    ]
    return notes + [line for analysis, result in findings(report) for line in analysis.brief(result, report)]


def tested_notes(report: Summary) -> list[str]:
    """Below the table with tests."""
    what = (
        f"{SEEDS}; intervals are marginal {report.level} % ones; verdicts use p (BH), corrected over the rows of the "
        "metric by Benjamini and Hochberg, bold: by Holm too"
    )
    unknown = [f"{OF_TEXT.label} is not known yet"] * (OF_TEXT.name in report.metrics)
    notes = [
        *base_apart(report),
        *reference_note(report),
        *nll_notes(report),
        "; ".join([what, *(signature_notes(report) or unknown)]),
        *verdict_count_lines(report),
    ]
    notes += [BIAS] * factors_printed(report.rows)
    if report.looks is not None:
        notes.append(f"{interim_note(report)}; p is corrected for that too, intervals are at {report.level} %")
    notes += scale_notes(report)
    notes += row_notes(report)
    notes += notes_of_analyses(report)
    notes += map(claim_line, report.claims)
    about = f" (more than {FAR:g} median absolute deviations above the median; they stay in every number)"
    notes += [f"{phrase}{about}" for phrase in outlier_clauses(report.rows)]
    return notes + [f"{row.name}, seed {seed}: {why}" for row in report.rows for seed, why in row.missing.items()]
