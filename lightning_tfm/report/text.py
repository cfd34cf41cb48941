"""The table and the words of a report for a terminal, and what all formats print alike."""

import textwrap
from collections.abc import Sequence

from lightning_tfm.metrics import METRICS, OF_TEXT, PPL, PRINTED, WORD, Metric
from lightning_tfm.report import agreement_text, beyond_text, columns, nats, statistics, tuning
from lightning_tfm.report.facts import brief
from lightning_tfm.report.far_above import said
from lightning_tfm.report.findings import findings
from lightning_tfm.report.render import text as terminal
from lightning_tfm.report.summary import ClaimSummary, Difference, Effect, Scores, Summary, SummaryRow, Table
from lightning_tfm.report.verdict import FEWER, SCOPE, UNTESTABLE, counted

NAME = 24
"""columns of a row's name, where room is scarce"""


def score(found: Scores, digits: int) -> str:
    """Mean, with ± the standard deviation from two seeds on; a dash for none."""
    if found.mean is None:
        return found.instead
    return f"{found.mean:.{digits}f}" + ("" if found.sd is None else f" ± {found.sd:.{digits}f}")


def compared(found: Difference, digits: int) -> str:
    """A difference to base with its interval; in percent for perplexity."""
    of = found.shown
    interval = "" if of.lower is None else f" [{of.lower:+.{digits}f}, {of.upper:+.{digits}f}]"
    return f"{of.estimate:+.{digits}f}{interval}"


def scores(row: SummaryRow, others: Sequence[Metric], units: int = 0) -> list[str]:
    """In every metric; after perplexity nll per word and per character, blank where unknown: none, one or both."""
    between = ["" if found is None else score(found, 3) for found in (row.word, row.character)]
    return [score(row.ppl, 2), *between[:units], *(score(row.metric(m.name), m.digits) for m in others)]


def beside_ppl(table: Table | Summary) -> list[Metric]:
    """What is printed after perplexity and the nll per word."""
    return [METRICS[name] for name in table.metrics if name not in (PPL.name, WORD.name)]


def _paper_heads() -> list[str]:
    first, *rest = (METRICS[name].label for name in PRINTED)
    return [f"paper\n{first}", *rest, "M"]


def paper(row: SummaryRow, unit: str) -> list[str]:
    """What the paper prints: scores, millions of parameters."""
    printed = [(row.paper.of(name), METRICS[name].digits) for name in PRINTED]
    found = ["" if score is None else f"{score:.{digits}f}" for score, digits in printed]
    return [*found, "" if row.paper.params is None else f"{row.paper.params}{unit}"]


def to_text(table: Table, width: int = 80) -> str:
    """Plain text of at most `width` columns: every column of the paper where they fit, else each row's changes."""
    both = 2 if nats.known(table.rows) else 0
    fewer = min(both, 1 if table.foreign else 0)  # where pieces are alike, PPL says the same
    for made, columns_of_nll in (
        (lambda: _full(table, both), both),
        (lambda: _full(table, fewer), fewer),
        (lambda: _with_folded_names(*_full(table, fewer)), fewer),
        (lambda: _short(table, width, fewer), fewer),
    ):
        lines, units = _text(table, *made()), columns_of_nll
        if max(map(len, lines)) <= width:
            break
    last = agreement_text.line(table.agreement, table.last_eighth)
    said = [note for note in notes(table) if units or note != nats.MEANT]
    lines += folded([*said, *([last] if last else [])], width)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ") + "\n"


def signatures(report: Table | Summary) -> list[str]:
    """What the scores of translations are, their signatures."""
    found = {OF_TEXT.name: report.signature} if report.signature else {}
    return [f"{METRICS[name].label} is {said}" for name, said in (found | (report.signatures or {})).items()]


def notes(table: Table) -> list[str]:
    """What the numbers are, and why cells are empty."""
    found = ["dev PPL is per piece, end token included" + "".join(f"; {x}" for x in signatures(table))]
    found += nats.notes(table)
    if table.scale:
        found.append(f"{columns.scale(table.scale, table.rows)}; {columns.sizes(table.rows)}")
    elif columns.resized(table.rows):
        found.append(columns.sizes(table.rows))
    if rest := columns.unchanged(table.rows):
        found.append(f"the same in every row: {rest}")
    if len(table.seeds) > 1:
        found.append(f"{len(table.seeds)} seeds: mean ± standard deviation (n-1)")
    found += twins(table.rows) + elsewhere(table.rows) + tuning.notes(table.tuning)
    cells: dict[str, list[str]] = {}
    for row in table.rows:
        for seed, why in row.missing.items():
            cells.setdefault(why, []).append(f"{row.name}/{seed}")
    return found + [f"{why}: {', '.join(names)}" for why, names in cells.items()]


def twins(rows: Sequence[SummaryRow]) -> list[str]:
    """A sentence on the rows that are other rows, none where there are none."""
    said = [f"{row.name} is {row.same_as}" for row in rows if row.same_as]
    return [f"{', '.join(said)}: the same runs, so no comparison of {'its' if len(said) == 1 else 'their'} own"] * bool(
        said
    )


def elsewhere(rows: Sequence[SummaryRow]) -> list[str]:
    """What others print of the rows' changes: a line for each source, its rows first."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.elsewhere:
            found.setdefault(row.elsewhere, []).append(row.name)
    return [f"{', '.join(names)}, elsewhere: {said}" for said, names in found.items()]


def _full(table: Table, units: int) -> tuple[list[str], list[list[str]]]:
    names = columns.shown(table.rows)
    heads = ["\nrow", *map(columns.head, names), *_last_heads(table, units)]
    rows = []
    for row in table.rows:
        own = [columns.brief(row, name) for name in names]
        rows.append([columns.named(row, "\n "), *own, *_last(table, row, units)])
    return heads, rows


def _with_folded_names(heads: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Long names of rows in several lines."""
    return heads, [
        ["\n".join(p for line in name.split("\n") for p in _fold(line, NAME)), *rest] for name, *rest in rows
    ]


def _last_heads(table: Table, units: int) -> list[str]:
    several, printed = len(table.seeds) > 1, columns.of_the_paper(table.rows)
    between = ["nll/\nword", "nll/\nchar"][:units]
    others = [f"dev\n{metric.label}" for metric in beside_ppl(table)]
    facts = [fact.folded or fact.head for fact in brief()]
    return [*facts, *["n"] * several, "dev\nPPL", *between, *others, *_paper_heads() * printed]


def _last(table: Table, row: SummaryRow, units: int) -> list[str]:
    several, printed = len(table.seeds) > 1, columns.of_the_paper(table.rows)
    return [
        *(fact.cell(row) for fact in brief()),
        *[str(row.n)] * several,
        *scores(row, beside_ppl(table), units),
        *paper(row, "") * printed,
    ]


def _short(table: Table, width: int, units: int) -> tuple[list[str], list[list[str]]]:
    heads = ["\nrow", "\nchange", *_last_heads(table, units)]
    names = columns.shown(table.rows)
    rows = [[row.name, columns.changes(row, names), *_last(table, row, units)] for row in table.rows]
    heads, rows = _with_folded_names(heads, rows)
    taken = sum(
        max(len(p) for cell in (head, *column) for p in cell.split("\n")) + 1 for head, *column in _others(heads, rows)
    )
    room = max(12, width - taken)
    for cells in rows:
        cells[1] = "\n".join(_fold(cells[1], room))
    return heads, rows


def _others(heads: list[str], rows: list[list[str]]) -> list[list[str]]:
    return [[head, *(row[i] for row in rows)] for i, head in enumerate(heads) if i != 1]


def _text(table: Table, heads: list[str], rows: list[list[str]]) -> list[str]:
    """Aligned lines; a rule between groups; columns of words to the left, of numbers to the right."""
    widths = [
        max(len(part) for cell in (head, *(row[i] for row in rows)) for part in cell.split("\n"))
        for i, head in enumerate(heads)
    ]
    words = {i for i, head in enumerate(heads) if head.strip() in ("row", "change")}
    rule = "─" * (sum(widths) + len(widths) - 1)
    lines, group = [*_cells(heads, widths, words, bottom=True)], ""
    for row, cells in zip(table.rows, rows, strict=True):
        if row.group != group:
            lines.append(rule)
        group = row.group
        lines += _cells(cells, widths, words, bottom=False)
    return [*lines, rule]


def _cells(cells: Sequence[str], widths: list[int], words: set[int], bottom: bool) -> list[str]:
    height = max(cell.count("\n") + 1 for cell in cells)
    stacks = []
    for i, cell in enumerate(cells):
        parts = cell.split("\n")
        padding = [""] * (height - len(parts))
        parts = padding + parts if bottom else parts + padding
        stacks.append([p.ljust(widths[i]) if i in words else p.rjust(widths[i]) for p in parts])
    return [" ".join(parts).rstrip() for parts in zip(*stacks, strict=True)]


def folded(texts: list[str], width: int) -> list[str]:
    """The texts in lines of at most `width` columns where the words allow it."""
    return [part for text in texts for part in _fold(text, width)]


def _fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` where the words allow it."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


# --- the words of a report ---


def to_words(report: Summary, width: int) -> str:
    """For the terminal: the words in each metric, the claims, and seeds far above their row."""
    lines = _untested(report) or [*word_counts(report), *map(claim_line, report.claims)]
    lines += [f"{row.name}: {said(row)}" for row in report.rows if row.far_above]
    lines += map(effect_line, report.factors.effects if report.factors else [])
    told = "".join(f"{textwrap.fill(line, width)}\n" for line in lines)
    beyond = beyond_text.section(report.beyond)
    return told + (f"\n{beyond.title}\n\n{terminal.to_text(beyond.blocks, width)}" if beyond.blocks else "")


def _untested(report: Summary) -> list[str]:
    """Why no row has a verdict, and what gives it one; empty where any has."""
    found = [found for row in report.rows for metric in report.metrics if (found := row.metric(metric).difference)]
    if not found or any(one.verdict != UNTESTABLE for one in found):
        return []
    if any(FEWER not in one.why for one in found):
        return [findings(report)[0]]
    first = min(report.seeds)
    more = f"--seeds {first}-{first + statistics.LEAST - 1} gives every row a verdict; finished runs are not repeated."
    return [findings(report)[0], more]


def word_counts(report: Summary) -> list[str]:
    """How often each verdict occurs, by metric."""
    lines = []
    for metric in report.metrics:
        found = counted(report.rows, metric)
        parts = [f"{n} {word}" for word, n in found.items()]
        lines.append(f"{METRICS[metric].label}, {sum(found.values())} rows: {'; '.join(parts) or 'none'} ({SCOPE})")
    return lines


def looked(report: Summary) -> str:
    """How often the results were looked at; empty where seeds were fixed beforehand."""
    if report.looks is None:
        return ""
    return f"seeds were added where a verdict was open, {len(report.looks)} of at most {report.most_looks} looks so far"


def effect_line(effect: Effect) -> str:
    """metric, what is compared, by how much, p."""
    found, interval, p = effect_numbers(effect)
    said = f", p {p}" if effect.p is not None else f", {p}" if p else ""
    told = f"{METRICS[effect.metric].label}, {' × '.join(effect.words)}: {found} {interval}{said}"
    return told + (f"; {unlike(effect)}" if effect.depends_on else "")


def unlike(effect: Effect) -> str:
    """What to think of a main effect beside interactions."""
    return f"differs with {' and '.join(effect.depends_on)}, read the combinations"


def effect_numbers(effect: Effect) -> tuple[str, str, str]:
    """(estimate, [lower, upper], p or that there are too few seeds for one), of perplexity in percent; the last two
    empty where there is no interval."""

    metric = METRICS[effect.metric]

    def shown(value: float) -> str:
        return f"{metric.shown(value):+.{metric.fine}f}{' %' * metric.log}"

    if effect.lower is None or effect.upper is None:
        return shown(effect.estimate), "", ""
    p = UNTESTABLE if effect.p is None else f"{effect.p:.2g}"
    return shown(effect.estimate), f"[{shown(effect.lower)}, {shown(effect.upper)}]", p


def claim_line(claim: ClaimSummary) -> str:
    """“Text” word (p)."""
    return f"“{claim.text}” {claim.verdict}" + ("" if claim.p is None else f" (p {claim.p:.2g})")
