"""`pool A B C…`: the same rows over several corpora, as random effects: what an unseen corpus would show."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.cli.compare import place
from lightning_tfm.cli.formats import OF_ANALYSES, add_format
from lightning_tfm.cli.output import deliver
from lightning_tfm.errors import UserError, nearest


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Rows over corpora: pool STUDY STUDY STUDY…, studies with the same rows on different texts."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("studies", nargs="+", help="names under <out>/studies, or folders of studies")
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="A,B",
        help="studies whose texts are of one kind, held out together; repeatable [those of one corpus and folder]",
    )
    add_format(parser, OF_ANALYSES)
    parser.add_argument("--to", help="file to write [standard output; html: pool.html beside the first study]")
    options = parse_plain(parser, argv)
    places = [place(name, Path(options["out"])) for name in options["studies"]]
    names = [name for _, name in places]
    if len(set(names)) < len(names):
        raise UserError(f"pool {' '.join(options['studies'])}: a study appears twice")
    together = [said.split(",") for said in options["family"]]
    for name in (name for family in together for name in family if name not in names):
        raise UserError(f"--family={name}: {nearest(name, names)}")

    from lightning_tfm.report import pool_text
    from lightning_tfm.report.build import make
    from lightning_tfm.report.comparison import compare
    from lightning_tfm.report.pool import pool
    from lightning_tfm.study.study import folder_of

    reports = [make(name, root) for root, name in places]
    texts = {name: report.cells.study.base.data for name, report in zip(names, reports, strict=True)}
    families = {name: f"{text.corpus} {text.folder}" for name, text in texts.items()}
    families |= {name: ",".join(family) for family in together for name in family}
    pooled = pool(compare(reports), families)
    return deliver(pool_text.analysis(pooled), options, folder_of(*places[0]) / "pool.html")
