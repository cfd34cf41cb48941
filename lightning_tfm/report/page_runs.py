"""The page's runs: where every cell comes from, and what it translated otherwise than base."""

from html import escape

from lightning_tfm.report import provenance
from lightning_tfm.report.cells import Cell, Cells
from lightning_tfm.report.document import Plain, text


def runs(report: Plain, cells: Cells, texts: bool) -> str:
    base = next((r["row"] for r in report["rows"] if r["base"]), "")
    parts = []
    for i, r in enumerate(report["rows"]):
        mine = cells.of(r["row"])
        missing = "".join(f"<li>seed {text(s)}: {text(why)}</li>" for s, why in r["missing"].items())
        body = f"<ul>{missing}</ul>" if missing else ""
        body += "".join(_run(cells, cell) for cell in mine)
        found = provenance.examples(cells, r["row"], base) if texts else []
        body += _examples(found)
        parts.append(f'<details id="runs-{i}"><summary>{text(r["row"])}: {_state(r)}</summary>{body}</details>')
    return "".join(parts)


def _state(r: Plain) -> str:
    empty = len(r["missing"])
    return f"{r['n']} run{'s' * (r['n'] != 1)}" + (
        f", {empty} cell{'s' * (empty != 1)} empty or refused" if empty else ""
    )


def _run(cells: Cells, cell: Cell) -> str:
    items = "".join(f"<dt>{k}</dt><dd>{text(v)}</dd>" for k, v in provenance.facts(cells, cell).items())
    return f"<dl>{items}</dl><pre>{escape(provenance.command(cells, cell))}</pre>"


def _examples(found: list[dict[str, str]]) -> str:
    if not found:
        return ""
    items = "".join(
        "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in one.items()) + "</dl>" for one in found
    )
    return f"<h3>Where the translations differ most</h3>{items}"
