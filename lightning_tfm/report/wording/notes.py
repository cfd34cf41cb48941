"""The words of a table and of a report: notes, verdicts counted, claims, effects."""

import textwrap
from collections.abc import Sequence

from lightning_tfm.metrics import METRICS, OF_TEXT, PPL, WORD, Metric
from lightning_tfm.plural_words import plural
from lightning_tfm.report.analyses.catalog import findings
from lightning_tfm.report.blocks import Block, Text
from lightning_tfm.report.render import text as terminal
from lightning_tfm.report.row import SummaryRow
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables import columns
from lightning_tfm.report.wording import nll_per_word, reference
from lightning_tfm.report.wording.claims import ClaimSummary
from lightning_tfm.report.wording.headline import base_apart, untested
from lightning_tfm.report.wording.outlier_seeds import FAR, phrases
from lightning_tfm.report.wording.verdict import BIAS, FEWER, SCOPE, factors_printed, verdict_counts
from lightning_tfm.report.wording.verdict_words import WORDS, Verdict

SEEDS = "mean ± standard deviation (n-1); of PPL the geometric mean, ± of its logarithms in percent"


def beside_ppl(report: Summary) -> list[Metric]:
    """What is printed after perplexity and the nll per word."""
    return [METRICS[name] for name in report.metrics if name not in (PPL.name, WORD.name)]


def signatures(report: Summary) -> list[str]:
    """What the scores of translations are, their signatures."""
    found = {OF_TEXT.name: report.signature} if report.signature else {}
    return [f"{METRICS[name].label} is {said}" for name, said in (found | (report.signatures or {})).items()]


def sections_in_text(report: Summary) -> list[Block]:
    """Of the analyses whose sections text and Markdown have, too."""
    parts = [part for one, found in findings(report) if one.in_text for part in one.sections(found, report)]
    return [block for part in parts for block in (Text([part.title]), *part.blocks)]


def untested_notes(report: Summary, by_nll: bool = True) -> list[str]:
    """What the numbers are, and why cells are empty. Without the notes of columns that are not shown."""
    found = ["dev PPL is per token, end token included" + "".join(f"; {x}" for x in signatures(report))]
    found += [note for note in nll_per_word.notes(report) if by_nll or note not in nll_per_word.MEANINGS]
    found += columns.size_notes(report.scale, report.rows) + columns.constants_note(report.rows)
    if len(report.seeds) > 1:
        found.append(f"{len(report.seeds)} seeds: {SEEDS}")
    return found + common_notes(report) + twins(report.rows) + elsewhere(report.rows) + left_out(report.rows)


def left_out(rows: Sequence[SummaryRow]) -> list[str]:
    """Why cells are empty: a line for each reason, with the row and seed of every cell."""
    cells: dict[str, list[str]] = {}
    for row in rows:
        for seed, why in row.missing.items():
            cells.setdefault(why, []).append(f"{row.name}/{seed}")
    return [f"{why}: {', '.join(names)}" for why, names in cells.items()]


def twins(rows: Sequence[SummaryRow]) -> list[str]:
    """A sentence on the rows that are other rows, none where there are none."""
    said = [f"{row.name} is {row.same_as}" for row in rows if row.same_as]
    return [f"{', '.join(said)}: the same runs, so no comparison of {'its' if len(said) == 1 else 'their'} own"] * bool(
        said
    )


def scale_notes(report: Summary) -> list[str]:
    """How sizes are to be read, of a miniature how it divides alone, and what all rows have alike."""
    sizes = columns.size_notes(report.scale, report.rows, brief=True)
    return [*(f"a {note}" if report.scale else note for note in sizes), *columns.constants_note(report.rows)]


def common_notes(report: Summary) -> list[str]:
    """Of every format: scores that are left out, and which rows are hidden, and what of them counts."""
    hidden = ", ".join(row.name for row in report.hidden or [])
    rows = [f"{plural(len(report.hidden or []), 'row')} hidden ({hidden}): in every correction"]
    return outdated_notes(report) + rows * bool(hidden)


def outdated_notes(report: Summary) -> list[str]:
    """Which scores are left out as their metric is counted in another way now, a sentence for each metric."""
    again = f"lightning-tfm validate {report.study} --add "
    return [
        f"{METRICS[name].label}: the score of {plural(n, 'run')} is by another version of it and left out"
        + (f"; its class was edited since, {again}{name} counts it again" if ":" in name else "")
        for name, n in report.outdated.items()
    ]


def elsewhere(rows: Sequence[SummaryRow]) -> list[str]:
    """What others print of the rows' changes: a line for each source, its rows first."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.elsewhere:
            found.setdefault(row.elsewhere, []).append(row.called)
    return [f"{', '.join(names)}, elsewhere: {said}" for said, names in found.items()]


# --- the words of a report ---


def to_words(report: Summary, width: int) -> str:
    """For the terminal, below the table: the verdicts in each metric, and the claims."""
    lines = _untested(report) or [*word_counts(report), *map(claim_line, report.claims)]
    told = "".join(f"{textwrap.fill(line, width)}\n" for line in lines)
    rest = sections_in_text(report)
    return told + (f"\n{terminal.to_text(rest, width)}" if rest else "")


def _untested(report: Summary) -> list[str]:
    """Why no row has a verdict, and what gives it one; empty where any has."""
    found = [found for row in report.rows for metric in report.metrics if (found := row.metric(metric).difference)]
    if not found or any(one.verdict != Verdict.UNTESTABLE for one in found):
        return []
    if any(FEWER not in one.why for one in found):
        return [untested(report)]
    first = min(report.seeds)
    more = f"--seeds {first}-{first + statistics.LEAST - 1} gives every row a verdict; finished runs are not repeated."
    return [untested(report), more]


def word_counts(report: Summary) -> list[str]:
    """How often each verdict occurs, by metric."""
    lines = []
    for metric in report.metrics:
        found = verdict_counts(report.rows, metric)
        parts = [f"{n} {WORDS[word].shown}" for word, n in found.items()]
        rows = plural(sum(found.values()), "row")
        lines.append(f"{METRICS[metric].label}, {rows}: {'; '.join(parts) or 'none'} ({SCOPE})")
    return lines


def interim_note(report: Summary) -> str:
    """How often the results were looked at; empty where seeds were fixed beforehand."""
    if report.looks is None:
        return ""
    done = f"{len(report.looks)} of at most {report.most_looks} interim analyses so far"
    return f"seeds were added to undecided rows, {done}"


def claim_line(claim: ClaimSummary) -> str:
    """“Text” word (p)."""
    return f"“{claim.text}” {claim.verdict}" + ("" if claim.p is None else f" (p {claim.p:.2g})")


def brief_notes(report: Summary) -> list[str]:
    """Below the tables with tests in a terminal."""
    notes = [*base_apart(report), *reference.reference_note(report), *nll_per_word.notes(report)]
    notes.append(f"{SEEDS}; marginal {report.level} % intervals; verdicts use p (BH), over the rows of a metric")
    notes += columns.size_notes(report.scale, report.rows, brief=True)
    notes += [*common_notes(report), *twins(report.rows), *phrases(report.rows), *left_out(report.rows)]
    return notes + [line for one, found in findings(report) for line in one.brief(found, report)]


def tested_notes(report: Summary) -> list[str]:
    """Below the table with tests."""
    notes = [
        *base_apart(report),
        *reference.reference_note(report),
        *nll_per_word.notes(report),
        f"{SEEDS}; intervals are marginal {report.level} % ones; verdicts use p (BH), "
        "corrected over the rows of the metric by Benjamini and Hochberg, bold: by Holm too; "
        + ("; ".join(signatures(report)) or f"{OF_TEXT.label} is not known yet" * (OF_TEXT.name in report.metrics)),
        *word_counts(report),
    ]
    notes += [BIAS] * factors_printed(report.rows)
    if report.looks is not None:
        notes.append(f"{interim_note(report)}; p is corrected for that too, intervals are at {report.level} %")
    notes += scale_notes(report)
    notes += common_notes(report) + twins(report.rows) + elsewhere(report.rows)
    notes += [line for one, found in findings(report) for line in one.notes(found, report)]
    notes += map(claim_line, report.claims)
    about = f" (more than {FAR:g} median absolute deviations above the median; they stay in every number)"
    notes += [f"{phrase}{about}" for phrase in phrases(report.rows)]
    return notes + [f"{row.name}, seed {seed}: {why}" for row in report.rows for seed, why in row.missing.items()]
