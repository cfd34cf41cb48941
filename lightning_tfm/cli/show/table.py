"""`table`: a study's table from its records; --params: the paper's parameter counts; --table2: its Table 2."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_tfm.cli.arguments import check_together, make_parser, parse_plain, words
from lightning_tfm.cli.output import OF_TABLES, add_format, add_layout, check_layout, layout, say_hidden
from lightning_tfm.cli.terminal import forest_text, say_reading
from lightning_tfm.errors import UserError
from lightning_tfm.study.rows import all_rows
from lightning_tfm.study.settings import load_experiment

FIRST_CODE = "experiments/first_code.yaml"
NEEDS = {"rows": "params", "vocab": "params"}
APART = {"params": ("table2", "study", "reference"), "table2": ("study", "reference"), "plain": ("tests", "reference")}


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Print the table of a study, from the records of its runs.", experiment=False)
    parser.add_argument("study", nargs="?", help="name of the study under <out>/studies")
    add_format(parser, OF_TABLES)
    add_layout(parser, tests=True)
    parser.add_argument("--plain", action="store_true", help="only means, without differences, intervals and verdicts")
    parser.add_argument("--reference", metavar="ROW", help="with tests, differences to this row instead of base")
    parser.add_argument("--width", type=int, default=0, help="width of the text in columns; 0: the terminal's")
    parser.add_argument(
        "--params", action="store_true", help="the paper's parameter counts beside computed ones; no training"
    )
    parser.add_argument(
        "--table2", action="store_true", help="the paper's Table 2, and our runs scored on newstest2014; no training"
    )
    parser.add_argument("--vocab", type=int, help=f"tokens for --params [as {FIRST_CODE}]")
    parser.add_argument("--rows", action="extend", type=words, default=[], help="file with your own rows (--params)")
    options = parse_plain(parser, argv)
    check_layout(options)
    check_together(parser, options, NEEDS, APART)
    if options["width"] < 0:
        raise UserError(f"--width={options['width']}: must not be negative; 0 takes the terminal's")
    print(_params(options) if options["params"] else _table2(options) if options["table2"] else _study(options), end="")
    return 0


def _table2(options: dict[str, Any]) -> str:
    from lightning_tfm.report.render.text import to_text
    from lightning_tfm.report.tables import of_the_paper

    if options["format"] not in ("text", "json"):
        raise UserError(f"--format={options['format']}: --table2 prints only text and json")
    lines, as_json = of_the_paper.table2_lines(Path(options["out"])), options["format"] == "json"
    return of_the_paper.table2_json(lines) if as_json else to_text(of_the_paper.table2_blocks(lines))


def _study(options: dict[str, Any]) -> str:
    from lightning_tfm.study.study import Ablation
    from lightning_tfm.study.study_file import load_as

    root = Path(options["out"])
    name = options["study"] or only_study(root)
    width = options["width"] or shutil.get_terminal_size((80, 24)).columns
    study = load_as(Ablation, root, name)
    say_reading(study)
    if options["reference"] is not None:
        return _tested_table(name, root, options, width)

    from lightning_tfm.report.build_summary import summarise_untested
    from lightning_tfm.report.charts.study_forest import forest_of
    from lightning_tfm.report.records import read_cells
    from lightning_tfm.report.study_report import render_table
    from lightning_tfm.report.tables.paper_table import paper_latex

    say_hidden(study, root)
    table, kind = summarise_untested(read_cells(study, root)), options["format"]
    several = any(row.n > 1 for row in table.rows)  # with single runs there is nothing to test
    if kind not in ("csv", "json") and several and not options["plain"]:
        return _tested_table(name, root, options, width)
    if options["tests"]:
        raise UserError(f"--tests={options['tests']}: no row has two seeds, so nothing is tested")
    if kind == "latex":
        return paper_latex(table, layout(options))
    above = forest_text(forest_of(table), width) if kind == "text" and not options["plain"] else ""
    return above + render_table(table, kind, width)


def _tested_table(name: str, root: Path, options: dict[str, Any], width: int) -> str:
    from lightning_tfm.report.charts.study_forest import forest_of
    from lightning_tfm.report.study_report import make, render_table
    from lightning_tfm.report.wording.notes import sections_for_terminal

    made, kind = make(name, root, options["reference"]), options["format"]
    if kind == "latex":
        return made.render(kind, layout=layout(options))
    shown = render_table(made.summary, kind, width)
    if kind != "text":
        return shown
    return forest_text(forest_of(made.summary), width) + shown + sections_for_terminal(made.summary, width)


def only_study(root: Path) -> str:
    names = sorted(path.parent.name for path in (root / "studies").glob("*/study.json"))
    if len(names) != 1:
        there = f"there are: {', '.join(names)}" if names else "there is none; make one with lightning-tfm sweep"
        raise UserError(f"which study of {root / 'studies'}? {there}")
    return names[0]


def _params(options: dict[str, Any]) -> str:
    from lightning_tfm.report.render.text import to_text
    from lightning_tfm.report.tables import of_the_paper

    if options["format"] not in ("text", "json"):
        raise UserError(f"--format={options['format']}: --params prints only text and json")
    base = load_experiment(FIRST_CODE)
    V = base.data.vocab_size if options["vocab"] is None else options["vocab"]
    if V < 1:
        raise UserError(f"--vocab={V}: must be above 0")
    counts = of_the_paper.parameter_counts(base, V, all_rows(options["rows"]).values())
    as_json = options["format"] == "json"
    return of_the_paper.counts_json(counts, V) if as_json else to_text(of_the_paper.count_blocks(counts, V))
