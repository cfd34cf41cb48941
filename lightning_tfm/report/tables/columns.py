"""Which columns a table has beside scores: the paper's ten fields, what else a row changes, numbers of a row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lightning_tfm.config import Experiment, typed_and_trained
from lightning_tfm.registry import SCHEMES
from lightning_tfm.report.blocks import Cell
from lightning_tfm.report.summary import SummaryRow
from lightning_tfm.study.rows import Row

Where = tuple[str, str]
"""section and field of an experiment"""


@dataclass(frozen=True)
class PaperColumn:
    """One of the paper's, by its name in a table."""

    where: Where
    latex: str
    """its symbol"""
    lines: str = ""
    """its head in a terminal, where that is not its name in lines"""
    label: str = ""
    """short name in a list of changes, where that is not its name"""


COLUMNS = {
    "N": PaperColumn(("model", "N"), "$N$"),
    "d_model": PaperColumn(("model", "d_model"), r"$d_{\mathrm{model}}$", "d\nmo-\ndel"),
    "d_ff": PaperColumn(("model", "d_ff"), r"$d_{\mathrm{ff}}$"),
    "h": PaperColumn(("model", "h"), "$h$"),
    "d_k": PaperColumn(("model", "d_k"), "$d_k$"),
    "d_v": PaperColumn(("model", "d_v"), "$d_v$"),
    "P_drop": PaperColumn(("model", "P_drop"), r"$P_{\mathrm{drop}}$"),
    "eps_ls": PaperColumn(("training", "eps_ls"), r"$\epsilon_{\mathrm{ls}}$"),
    "positions": PaperColumn(("model", "positions"), "positions", "pos", "pos"),
    "train steps": PaperColumn(("training", "steps"), "steps", "train\nsteps", "steps"),
}
HEADS = {"warmup": "warm-\nup"}
SYMBOLS = {"beta1": r"$\beta_1$", "beta2": r"$\beta_2$", "adam_eps": r"$\epsilon$"}
"""of further fields, in a terminal and in LaTeX"""
SIZES = ("N", "d_model", "d_ff", "h", "d_k", "d_v")


def columns_of(rows: Iterable[Row]) -> dict[str, Where]:
    """Column -> where an experiment holds it: the paper's, then every other field that a row changes, as they come."""
    places = {name: column.where for name, column in COLUMNS.items()}
    for key in (key for row in rows for key in row.change):
        section, _, field = key.partition(".")
        if (section, field) not in places.values():
            places[key if field in places else field] = (section, field)
    return places


def values_of(exact: Experiment, columns: dict[str, Where]) -> dict[str, Any]:
    """By column."""
    return {name: getattr(getattr(exact, section), field) for name, (section, field) in columns.items()}


def of_the_paper(rows: Sequence[SummaryRow]) -> bool:
    """Whether the paper prints any of the rows, base aside: else no figures of the paper's are shown beside them."""
    return any(row.paper.printed for row in _beside_base(rows) or rows)


def columns_to_print(rows: Sequence[SummaryRow]) -> list[str]:
    """Columns to print: all of them beside rows of the paper's; else those of the paper's that no row changes are not.

    `constants` says what these are.
    """
    every, others = list(rows[0].values), _beside_base(rows)
    if of_the_paper(rows) or not others:
        return every
    return [name for name in every if name not in COLUMNS or any(name not in row.blank for row in others)]


def _beside_base(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    return [row for row in rows if not row.base]


def scale_text(divided: str, rows: Sequence[SummaryRow]) -> str:
    """How the miniature divides (Summary.scale), in words."""
    return f"miniature of the paper: {divided}" if of_the_paper(rows) else f"miniature: {divided}"


def size_notes(divided: str, rows: Sequence[SummaryRow], brief: bool = False) -> list[str]:
    """How sizes are to be read (`divided`: Summary.scale): of a miniature how it divides and, unless `brief`, which
    sizes are printed; else only where the paper's rows are over a base of another size, so that their names give sizes
    that were not used."""
    if any(row.typed for row in rows):
        printed = "sizes as they are typed, before that division; in brackets those trained"
    else:
        printed = "sizes are those trained" + ", row names the paper's" * of_the_paper(rows)
    if divided:
        return ["; ".join([scale_text(divided, rows), *[printed] * (not brief)])]
    model, base = Experiment().model, next((row.values for row in rows if row.base), {})
    resized = any(base[name] != getattr(model, name) for name in SIZES if name in base)
    return [printed] * (of_the_paper(rows) and resized)


def constants(rows: Sequence[SummaryRow]) -> dict[str, str]:
    """What every row has in the columns that are not shown, as in YAML."""
    shown = columns_to_print(rows)
    return {name: cell_text(rows[0], name) for name in rows[0].values if name not in shown}


def constants_note(rows: Sequence[SummaryRow]) -> list[str]:
    """The same in a line; none where all columns are shown."""
    values = ", ".join(f"{short_label(name)}={value}" for name, value in constants(rows).items())
    return [f"the same in every row: {values}"] * bool(values)


def own_value(row: SummaryRow, name: str) -> str:
    """Of one column, blank where it equals base."""
    return "" if name in row.blank else cell_text(row, name, thousands="K")


def cell_text(row: SummaryRow, name: str, thousands: str = "000") -> str:
    """Of one column, as it is typed, with what was trained in brackets where a miniature divides it."""

    def short(value: Any) -> str:
        many = name == "train steps" and value >= 10_000 and value % 1000 == 0
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return f"{value // 1000}{thousands}" if many else text

    trained = row.values[name]
    return typed_and_trained(short(row.typed.get(name, trained)), short(trained))


def row_title(row: SummaryRow, between: str = " ") -> str:
    """Its name, with "(is A)" where it is the row A."""
    return row.name + (f"{between}(is {row.same_as})" if row.same_as else "")


def name_cell(name: str, labels: Mapping[str, str]) -> str | Cell:
    """What people call the row, on a page with its name beside it."""
    label = labels.get(name, name)
    return Cell(label, name, said=label) if label != name else name


def row_labels(rows: Sequence[SummaryRow]) -> dict[str, str]:
    return {row.name: row.called for row in rows}


def narrow_value(row: SummaryRow, name: str) -> str:
    """`own_value`, for a narrow column: as it is typed alone; "sin", "lea", "rot" for the schemes that ship."""
    text = own_value(replace(row, values=row.values | row.typed, typed={}), name)
    return text[:3] if name == "positions" and text in SCHEMES else text


def changes(row: SummaryRow, names: Sequence[str]) -> str:
    """The row's own values of these columns in one line, of base all; "is A" where it is the row A."""
    if row.same_as:
        return f"is {row.same_as}"
    return ", ".join(f"{short_label(name)}={own_value(row, name)}" for name in names if name not in row.blank)


def short_label(name: str) -> str:
    """Short name in a list."""
    return (COLUMNS[name].label if name in COLUMNS else "") or name


def terminal_head(name: str) -> str:
    """Of a column in a terminal, in lines."""
    return (COLUMNS[name].lines if name in COLUMNS else HEADS.get(name, "")) or name.replace("_", "\n")


def symbol(name: str) -> str | None:
    """In LaTeX; None for a field that has none."""
    return COLUMNS[name].latex if name in COLUMNS else SYMBOLS.get(name)


def change_text(row: SummaryRow) -> str:
    """What the row changes, as it is typed, with the sizes trained; of base all sizes; "is A" where it is the row A."""
    if row.same_as:
        return f"is {row.same_as}: the same runs, no comparison"
    values = ", ".join(f"{name} {cell_text(row, name)}" for name in row.values if name not in row.blank)
    return f"all sizes: {values}" if row.base else values


@dataclass(frozen=True)
class Fact:
    """A number that SummaryRow holds, as a column of every view: terminal, Markdown, LaTeX, the page and its chooser,
    CSV, JSON, W&B's table, and a picture of perplexity against it. With an interval it is three for a program."""

    name: str
    """of the row's attribute; with blanks its key in CSV and JSON"""
    head: str
    about: str
    written: Callable[[Any], str]
    brief: bool = False
    """where there is little room, too: in a terminal, in LaTeX, in a table without tests, on the page at first"""
    axis: str = ""
    """its label on an axis; empty: perplexity is not drawn against it"""
    folded: str = ""
    """its head in a terminal, in lines"""
    interval: bool = False
    """an Interval, which people see only where a row has one"""

    @property
    def key(self) -> str:
        return self.name.replace("_", " ")

    def of(self, row: SummaryRow) -> float | None:
        return self.data(row)[self.key]

    def data(self, row: SummaryRow) -> dict[str, float | None]:
        """What a program reads: the number, and the ends of its interval."""
        number = getattr(row, self.name)
        if not self.interval:
            return {self.key: number}
        ends = {f"{self.key} {end}": getattr(number, end, None) for end in ("lower", "upper")}
        return {self.key: getattr(number, "estimate", None)} | ends

    def cell(self, row: SummaryRow) -> str:
        """As it is printed; empty where nobody knows it."""
        number = getattr(row, self.name)
        return "" if number is None else self.written(number)


def millions(count: float) -> str:
    """374K, 1.4M, 65.1M."""
    return f"{count / 1e6:.1f}M" if count >= 1_000_000 else f"{count / 1e3:.0f}K"


FACTS = [
    Fact("parameters", "params", "parameters", millions, brief=True, axis="parameters", folded="par-\nams"),
    Fact("flops", "FLOPs", "floating-point operations of one training", "{:.2e}".format, axis="training FLOPs"),
    Fact("seconds", "seconds", "seconds of one training", "{:,.0f}".format),
    Fact("worth", "compute", "compute multiplier in steps", str, brief=True, interval=True),
    Fact("worth_flops", "compute (FLOPs)", "compute multiplier in FLOPs", str, interval=True),
]


def extra_facts(rows: Sequence[SummaryRow]) -> list[Fact]:
    """Those for people."""
    return [fact for fact in FACTS if not fact.interval or any(map(fact.cell, rows))]


def brief_facts(rows: Sequence[SummaryRow]) -> list[Fact]:
    """Those for views with little room."""
    return [fact for fact in extra_facts(rows) if fact.brief]
