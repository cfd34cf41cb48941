"""The table as text for a terminal, and as Markdown: blank where a row equals base, as in the paper."""

from collections.abc import Sequence
from typing import Any

from lightning_tfm.report import agreement_text
from lightning_tfm.report.table import COLUMNS, Line, Table, spread

NOTHING = "–"
HEADS = {
    "d_model": "d\nmo-\ndel",
    "d_ff": "d\nff",
    "d_k": "d\nk",
    "d_v": "d\nv",
    "P_drop": "P\ndrop",
    "eps_ls": "eps\nls",
}
HEADS |= {"positions": "pos", "train steps": "train\nsteps"}

LABELS = {"positions": "pos", "train steps": "steps"}
"""short names in a list of changes"""


def millions(count: int | None) -> str:
    """374K, 1.4M, 65.1M; empty for None."""
    if count is None:
        return ""
    return f"{count / 1e6:.1f}M" if count >= 1_000_000 else f"{count / 1e3:.0f}K"


def score(values: list[float], digits: int) -> str:
    """Mean, with ± the standard deviation from two values on; a dash for none."""
    middle, deviation = spread(values)
    if middle is None:
        return NOTHING
    return f"{middle:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def to_text(table: Table, width: int = 80) -> str:
    """Plain text of at most `width` columns: every column of the paper where they fit, else each row's changes."""
    full = _text(table, *_full(table))
    lines = full if max(map(len, full)) <= width else _text(table, *_short(table, width))
    last = agreement_text.line(table.agreement, table.last_eighth)
    lines += _folded([*notes(table), *([last] if last else [])], width)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ") + "\n"


def to_markdown(table: Table) -> str:
    """A Markdown table with every column."""
    head = ["group", "row", *COLUMNS, "params", "n", "dev PPL", "dev BLEU", "paper PPL", "paper BLEU", "paper params"]
    names = [name if name in ("group", "row", "positions") else f"{name}" for name in head]
    rows = [names, ["---"] * 2 + ["---:"] * (len(names) - 2)]
    for line in table.lines:
        own = [line.row.group, f"`{line.row.name}`", *(_value(line, name) for name in COLUMNS)]
        rows.append([*own, millions(line.parameters), str(len(line.scores)), *_scores(line), *_paper(line, "M")])
    body = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    said = [*notes(table), *agreement_text.notes(table.agreement, table.last_eighth)]
    return body + "\n\n" + "\n".join(f"- {note}" for note in said) + "\n"


def notes(table: Table) -> list[str]:
    """What the numbers are, and why cells are empty."""
    found = ["dev PPL is per piece, end token included" + (f"; BLEU is {table.signature}" if table.signature else "")]
    if table.scale:
        found.append(f"miniature of the paper: {table.scale}; sizes are those trained, row names the paper's")
    if len(table.seeds) > 1:
        found.append(f"{len(table.seeds)} seeds: mean ± standard deviation (n-1)")
    cells: dict[str, list[str]] = {}
    for line in table.lines:
        for seed, why in line.missing.items():
            cells.setdefault(why, []).append(f"{line.row.name}/{seed}")
    return found + [f"{why}: {', '.join(names)}" for why, names in cells.items()]


def _full(table: Table) -> tuple[list[str], list[list[str]]]:
    several = len(table.seeds) > 1
    heads = ["\nrow", *(HEADS[c] if c in HEADS else c for c in COLUMNS), "par-\nams", *["n"] * several]
    heads += ["dev\nPPL", "dev\nBLEU", "paper\nPPL", "BLEU", "M"]
    rows = []
    for line in table.lines:
        own = [_value(line, name) for name in COLUMNS]
        own[-2] = own[-2][:3]  # "sin", "lea", "non": the row's name says more
        count = [str(len(line.scores))] * several
        rows.append([line.row.name, *own, millions(line.parameters), *count, *_scores(line), *_paper(line, "")])
    return heads, rows


def _short(table: Table, width: int) -> tuple[list[str], list[list[str]]]:
    several = len(table.seeds) > 1
    heads = ["\nrow", "\nchange", "par-\nams", *["n"] * several, "dev\nPPL", "dev\nBLEU", "paper\nPPL", "BLEU", "M"]
    rows = []
    for line in table.lines:
        count = [str(len(line.scores))] * several
        rest = [millions(line.parameters), *count, *_scores(line), *_paper(line, "")]
        changes = ", ".join(
            f"{LABELS[name] if name in LABELS else name}={_value(line, name)}"
            for name in COLUMNS
            if name not in line.blank
        )
        rows.append([line.row.name, changes, *rest])
    taken = sum(
        max(len(p) for cell in (head, *column) for p in cell.split("\n")) + 1 for head, *column in _others(heads, rows)
    )
    room = max(12, width - taken)
    for row in rows:
        row[1] = "\n".join(_fold(row[1], room))
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
    lines, group = [*_cells(heads, widths, words, bottom=True)], None
    for line, row in zip(table.lines, rows, strict=True):
        if line.row.group != group:
            lines.append(rule)
        group = line.row.group
        lines += _cells(row, widths, words, bottom=False)
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


def _value(line: Line, name: str) -> str:
    if name in line.blank:
        return ""
    value: Any = line.values[name]
    if name == "train steps" and value >= 10_000 and value % 1000 == 0:
        return f"{value // 1000}K"
    return str(value)


def _scores(line: Line) -> list[str]:
    return [score([s.ppl for s in line.scores], 2), score([s.bleu for s in line.scores], 1)]


def _paper(line: Line, unit: str) -> list[str]:
    paper = line.row.paper
    ppl = "" if paper.ppl is None else f"{paper.ppl:.2f}"
    bleu = "" if paper.bleu is None else f"{paper.bleu:.1f}"
    return [ppl, bleu, "" if paper.params is None else f"{paper.params}{unit}"]


def _folded(texts: list[str], width: int) -> list[str]:
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
