"""`ladder A B…`: the same rows at several scales, and what the paper's size would show."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.cli.compare import place
from lightning_tfm.cli.formats import OF_ANALYSES, add_format
from lightning_tfm.cli.output import deliver
from lightning_tfm.errors import UserError


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Rows at several scales: ladder STUDY STUDY…, studies with the same rows whose bases differ in size."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("studies", nargs="+", help="names under <out>/studies, or folders of studies")
    parser.add_argument(
        "--target",
        type=float,
        default=65.0,
        help="parameters of base, in millions, to extrapolate to [65, the paper's]",
    )
    add_format(parser, OF_ANALYSES)
    parser.add_argument("--to", help="file to write [standard output; html: ladder.html beside the first study]")
    options = parse_plain(parser, argv)
    if not 0 < options["target"] < 1e9:
        raise UserError(f"--target={options['target']:g}: millions of parameters, above 0")
    places = [place(name, Path(options["out"])) for name in options["studies"]]
    if len(set(places)) < max(len(places), 2):
        raise UserError(f"ladder {' '.join(options['studies'])}: needs two different studies, or more")

    from lightning_tfm.report import ladder_text
    from lightning_tfm.report.build import make
    from lightning_tfm.report.ladder import ladder
    from lightning_tfm.study.study import folder_of

    found = ladder([make(name, root) for root, name in places], 1e6 * options["target"])
    return deliver(ladder_text.analysis(found), options, folder_of(*places[0]) / "ladder.html")
