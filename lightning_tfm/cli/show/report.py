"""`report`: a study as one self-contained HTML file, or its table with tests as Markdown, CSV, JSON or LaTeX."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import check_together, make_parser, parse_plain
from lightning_tfm.cli.output import OF_REPORTS, add_format, add_layout, check_layout, layout, write_pictures, write_to
from lightning_tfm.cli.show.table import only_study
from lightning_tfm.cli.terminal import say_reading
from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.report.charts.svg import standalone_svg, to_pdf, to_png
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.outcome import say
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import check_exists, folder_of, load, load_as

PORT = 8000
KINDS = {"svg": None, "pdf": to_pdf, "png": to_png}
"""format of a figure -> what makes it of an SVG"""
NEEDS = {"port": "serve", "as": "figures"}
APART = {"serve": ("to", "format", "figures"), "figures": ("to", "format")}

if TYPE_CHECKING:
    from lightning_tfm.report.search_report import SearchReport
    from lightning_tfm.report.study_report import Report


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Render a study from the records of its runs, with tests.", experiment=False)
    parser.add_argument("study", nargs="?", help="name of the study under <out>/studies")
    add_format(parser, OF_REPORTS)
    add_layout(parser, tests=True)
    parser.add_argument("--reference", metavar="ROW", help="row that differences, p and verdicts refer to [base]")
    parser.add_argument("--to", help="file to write; - for standard output [in its folder]")
    parser.add_argument("--no-text", action="store_true", help="leave out every line of the corpus")
    parser.add_argument(
        "--collect",
        action="store_true",
        help="first compute what needs the trained weights: attention maps, calibration, …",
    )
    parser.add_argument("--figures", metavar="DIR", help="write the main figure there, in two widths, and nothing else")
    parser.add_argument("--as", choices=tuple(KINDS), help=f"of --figures [{next(iter(KINDS))}]")
    parser.add_argument("--serve", action="store_true", help="show the report on 127.0.0.1, refreshed as runs finish")
    parser.add_argument("--port", type=int, help=f"port of --serve; 0: any free one [{PORT}]")
    options = parse_plain(parser, argv)
    check_layout(options)
    check_together(parser, options, NEEDS, APART)
    root = Path(options["out"])
    name = options["study"] or only_study(root)
    if options["collect"]:
        if isinstance(load(root, name), Search):
            raise UserError(
                f"--collect: '{name}' is a search; what needs the trained weights is computed only for tables"
            )
        collect_study(name, root, say)
    if options["reference"] is not None and isinstance(load(root, name), Search):
        raise UserError(f"--reference={options['reference']}: '{name}' is a search; its trials are compared with base")
    if options["figures"] is not None:
        return _figures(name, root, options)
    return _serve(name, root, options) if options["serve"] else _write(name, root, options)


def _figures(name: str, root: Path, options: dict[str, Any]) -> int:
    from lightning_tfm.report.charts.forest_picture import narrow, wide
    from lightning_tfm.report.charts.study_forest import forest_of
    from lightning_tfm.report.study_report import make

    folder, kind = Path(options["figures"]), options["as"] or next(iter(KINDS))
    if isinstance(load(root, name), Search):
        raise UserError(f"--figures={folder}: '{name}' is a search; its pictures are in its report")
    forest = forest_of(make(name, root, options["reference"]).summary)
    if not forest.lines:
        raise UserError(
            f"--figures={folder}: no row of '{name}' is compared with {forest.to} yet, so there is no figure"
        )
    convert, widths = KINDS[kind] or str, {"forest": wide, "forest-narrow": narrow}
    pictures = {stem: standalone_svg(draw(forest, titled=True)) for stem, draw in widths.items()}
    write_pictures(folder, {f"{stem}.{kind}": convert(picture) for stem, picture in pictures.items()})
    return 0


def _make(name: str, root: Path, reference: str | None) -> "Report | SearchReport":
    study = load(root, name)
    say_reading(study)
    if not isinstance(study, Search):
        from lightning_tfm.report.study_report import make

        return make(name, root, reference)
    from lightning_tfm.queue.search_results import trials_or_kept
    from lightning_tfm.report.search_report import of_trials

    return of_trials(study, *trials_or_kept(study, root, partial(print, file=sys.stderr)), root=root)


def _write(name: str, root: Path, options: dict[str, Any]) -> int:
    from lightning_tfm.report.pages.provenance import beside, nowhere
    from lightning_tfm.report.study_report import page_name

    kind, to = options["format"], options["to"]
    page = _make(name, root, options["reference"])
    path = Path(to) if to else folder_of(root, name) / page_name(getattr(page.summary, "reference", None))
    printed = to == "-" or (to is None and kind != "html")
    link = nowhere if printed else beside(path, root)
    content = page.render(kind, not options["no_text"], link=link, layout=layout(options))
    if printed:
        print(content, end="")
    else:
        write_to(path, content)
    return 0


def _serve(name: str, root: Path, options: dict[str, Any]) -> int:
    from urllib.parse import quote

    from lightning_tfm.cli.show.dashboard import show

    check_exists(root, name)
    query = f"?reference={quote(options['reference'], safe='')}" if options["reference"] else ""
    port = PORT if options["port"] is None else options["port"]
    return show(root, port, f"/study/{quote(name, safe='')}/report{query}", not options["no_text"])


# --- --collect: what a report shows and only models can provide, computed where it is missing ---

ALWAYS = ("calibration", "attention")
"""of every finished run"""
LONGEST = 2048
"""positions of the longest text that layer types are timed on; `lightning-tfm layers --study` takes others"""


def collect_study(name: str, root: Path, say: Callable[[str], None]) -> None:
    """Collect what is missing, reporting it line by line."""
    from lightning_tfm.inference.rescore import score_long
    from lightning_tfm.inference.weight_records import collect_run
    from lightning_tfm.report.analyses import layer_table

    study = load_as(Ablation, root, name)
    seen: set[str] = set()
    for row, seed, folder in _finished_runs(study, root):
        wanted = [what for what in _missing_rows(study) if what != "positions" or row not in seen]
        seen.add(row)
        missing = [what for what in wanted if not (folder.path / "report" / f"{what}.json").is_file()]
        if missing:
            say(f"{row}, seed {seed}: {', '.join(missing)}")
            try:
                collect_run(folder, study.base.data.dev, missing)
            except UserError as error:  # weights or data are gone: the report does without
                say(f"{row}, seed {seed}: {error}")
        if study.base.data.long:
            try:
                if score_long(folder, study.base):
                    say(f"{row}, seed {seed}: scored by length")
            except UserError as error:
                say(f"{row}, seed {seed}: {error}")
    path = folder_of(root, name) / layer_table.FILE
    if "model.layer" in _changed_rows(study) and not path.is_file():
        say("Table 1 of the paper, measured at its sizes: some minutes")
        _measure(study, path)


def _finished_runs(study: Ablation, root: Path) -> list[tuple[str, int, RunFolder]]:
    cells = [(row, seed) for row in study.rows for seed in sorted(study.seeds)]
    every = [(row.name, seed, RunFolder(root, study.cell(row, seed).training_hash)) for row, seed in cells]
    return [(row, seed, folder) for row, seed, folder in every if folder.finished()]


def _changed_rows(study: Ablation) -> set[str]:
    return {key for row in study.rows for key in row.change}


def _missing_rows(study: Ablation) -> list[str]:
    """Names of the records that this study's report shows; positions of each row's first run."""
    changed = _changed_rows(study)
    positions = ["positions"] if changed & {"model.positions", "model.clip"} else []
    softmax = ["softmax"] if "model.scores" in changed else []
    return [*ALWAYS, *positions, *softmax]


def _measure(study: Ablation, path: Path) -> None:
    """The types of the rows, at the sizes of the paper's base."""
    from lightning_tfm.atomic_io import write_atomic
    from lightning_tfm.cli.show.layers import measure_layers
    from lightning_tfm.report.analyses import layer_table

    types = dict.fromkeys(["attention", *(study.written(row).model.layer for row in study.rows)])
    paper = Model(neighbourhood=32)
    table = measure_layers(
        [replace(paper, layer=name) for name in types], paper.d_model, {"longest": LONGEST, "threads": 0}
    )
    write_atomic(path, layer_table.to_json(table).encode())
