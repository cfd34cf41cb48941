"""`draw`: the architecture of an experiment as a picture, its boxes with their true sizes."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import check_trainer, make_parser, parse, prints_config
from lightning_tfm.cli.output import write_to
from lightning_tfm.errors import UserError
from lightning_tfm.study.settings import check_experiment


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Draw an experiment as figure 1 of the paper; what --row changes is marked.")
    parser.add_argument(
        "--to", default="architecture.svg", help="an .svg or .pdf to write; - prints the SVG [%(default)s]"
    )
    settings = parse(parser, argv)
    check_trainer(settings, verb)
    path = Path(settings.verb["to"])
    if path.suffix not in (".svg", ".pdf") and str(path) != "-":
        raise UserError(f"--to={path}: a picture is written as .svg or .pdf, or to - as SVG")
    if prints_config(settings):
        return 0

    from lightning_tfm.report.analyses.architecture import architecture
    from lightning_tfm.report.charts.svg import standalone_svg, to_pdf

    base = check_experiment(settings.base, "experiment") if settings.row else None
    boxes = architecture(settings.exact, settings.name, base)
    picture = standalone_svg(boxes)
    if str(path) == "-":
        print(picture, end="")
    else:
        write_to(path, to_pdf(picture) if path.suffix == ".pdf" else picture)
    return 0
