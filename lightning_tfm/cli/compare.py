"""`compare A B [C…]`: studies side by side, each against the first, with the difference of differences and its test."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.cli.formats import OF_ANALYSES, add_format
from lightning_tfm.cli.output import deliver
from lightning_tfm.errors import UserError


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Studies with the same rows side by side: compare FIRST OTHER [OTHER…]."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("studies", nargs="+", help="names under <out>/studies, or folders of studies")
    add_format(parser, OF_ANALYSES)
    parser.add_argument("--to", help="file to write [standard output; html: compare.html beside the first study]")
    options = parse_plain(parser, argv)
    places = [place(name, Path(options["out"])) for name in options["studies"]]
    if len(places) < 2:
        raise UserError(f"compare {options['studies'][0]}: name a second study to compare it with")
    if len(set(places)) < len(places):
        raise UserError(f"compare {' '.join(options['studies'])}: a study appears twice")

    from lightning_tfm.report import comparison_text
    from lightning_tfm.report.build import make
    from lightning_tfm.report.comparison import compare
    from lightning_tfm.study.study import folder_of

    made = compare([make(name, root) for root, name in places])
    return deliver(comparison_text.analysis(made), options, folder_of(*places[0]) / "compare.html")


def place(name: str, root: Path) -> tuple[Path, str]:
    """(results folder, name) of a study that is named, or whose folder is given."""
    path = Path(name)
    if (path / "study.json").is_file():
        resolved = path.resolve()
        return resolved.parents[1], resolved.name
    return root.resolve(), name
