"""`compare A B…`: studies side by side, each against the first, with the difference of differences and its test;
`meta-analysis A B C…`: rows over several corpora, as random effects; `scaling A B…`: rows at several scales, and at
the paper's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.cli.output import OF_ANALYSES, add_format, deliver
from lightning_tfm.cli.terminal import say_reading
from lightning_tfm.errors import UserError, nearest

if TYPE_CHECKING:
    from lightning_tfm.report.render.every_format import Document
    from lightning_tfm.report.study_report import Report

ABOUT = {
    "compare": "Studies with the same rows side by side: compare FIRST OTHER [OTHER…].",
    "meta-analysis": "Rows over corpora: meta-analysis STUDY STUDY STUDY…, studies with the same rows on other texts.",
    "scaling": "Rows at several scales: scaling STUDY STUDY…, studies with the same rows whose bases differ in size.",
}


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, ABOUT[verb], experiment=False)
    parser.add_argument("studies", nargs="+", help="names under <out>/studies, or folders of studies")
    if verb == "meta-analysis":
        about = "studies whose texts are of one kind, which is said; repeatable [studies of one corpus and folder]"
        parser.add_argument("--family", action="append", default=[], metavar="A,B", help=about)
    if verb == "scaling":
        about = "parameters of base, in millions, to extrapolate to [65, the paper's]"
        parser.add_argument("--target", type=float, default=65.0, help=about)
    add_format(parser, OF_ANALYSES)
    parser.add_argument("--to", help=f"file to write [standard output; html: {verb}.html beside the first study]")
    options = parse_plain(parser, argv)
    places = [_place(name, Path(options["out"])) for name in options["studies"]]
    _check(verb, options, places)

    from lightning_tfm.study.study_file import folder_of, load

    for root, name in places:
        say_reading(load(root, name))
    from lightning_tfm.report.study_report import make

    reports = [make(name, root) for root, name in places]
    result = _analysis(verb, reports, options)
    return deliver(result, options, folder_of(*places[0]) / f"{verb}.html")


def _place(name: str, root: Path) -> tuple[Path, str]:
    """(results folder, name) of a study given by name or by folder."""
    path = Path(name)
    if (path / "study.json").is_file():
        resolved = path.resolve()
        return resolved.parents[1], resolved.name
    return root.resolve(), name


def _check(verb: str, options: dict[str, Any], places: list[tuple[Path, str]]) -> None:
    """Raise UserError for impossible studies and options, before any record is read."""
    asked, names = f"{verb} {' '.join(options['studies'])}", [name for _, name in places]
    if verb == "scaling" and not 0 < options["target"] < 1e9:
        raise UserError(f"--target={options['target']:g}: millions of parameters, above 0")
    if verb == "scaling" and len(set(names)) < max(len(names), 2):
        raise UserError(f"{asked}: needs two different studies, or more, of different names")
    if verb == "compare" and len(places) < 2:
        raise UserError(f"{asked}: name a second study to compare it with")
    if len(set(names if verb == "meta-analysis" else places)) < len(places):
        raise UserError(f"{asked}: a study appears twice")
    for name in (name for family in options.get("family", ()) for name in family.split(",") if name not in names):
        raise UserError(f"--family={name}: {nearest(name, names)}")


def _analysis(verb: str, reports: "list[Report]", options: dict[str, Any]) -> "Document":
    if verb == "scaling":
        from lightning_tfm.report.across.scaling import scaling_study

        return scaling_study(reports, 1e6 * options["target"])
    if verb == "meta-analysis":
        from lightning_tfm.report.across.meta_analysis import meta_analysis

        return meta_analysis(reports, {name: family for family in options["family"] for name in family.split(",")})

    from lightning_tfm.report.across.comparison import compare

    return compare(reports)
