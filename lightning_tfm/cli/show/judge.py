"""`judge scores.csv`: verdicts on anybody's scores, one line per run; `--gate ROW`: one of them for a program."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import check_together, make_parser, parse_plain
from lightning_tfm.cli.output import OF_ANALYSES, add_format, deliver, write_pictures
from lightning_tfm.cli.terminal import colours, width
from lightning_tfm.errors import UserError

if TYPE_CHECKING:
    from lightning_tfm.judging.scores import Aim, Scores
    from lightning_tfm.judging.verdicts import Judgement

ABOUT = "Verdicts on scores of your own runs: judge scores.csv --metric acc:higher; a line has row, seed and metrics."
NEEDS = {"looks": "gate", "family": "gate", "candidates": "family"}
APART = {"gate": ("items", "published", "figures", "to"), "target": ("items", "published", "looks", "family")}


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, ABOUT, experiment=False)
    add = parser.add_argument
    add("scores", help="CSV or JSON lines: row, seed and metrics, or row, seed, metric, value; or lightning_logs/")
    add("--metric", action="append", default=[], metavar="NAME:higher|lower[:log][:MARGIN]", help="the first decides")
    add("--base", metavar="ROW", help="what the rows are compared with [base or baseline]")
    add("--target", type=float, help="a number to compare each row's mean with, instead of base")
    add("--row", default="row", metavar="COLUMN", help="column of the rows' names [row]")
    add("--seed", default="seed", metavar="COLUMN", help="column of the seeds [seed]")
    add(
        "--items", metavar="FILE", help="noise of the test set, too: row, seed, item, value (or numerator, denominator)"
    )
    add("--published", metavar="FILE", help="other people's numbers, a line per row: shown and judged beside")
    add("--last", action="append", default=[], metavar="NAME", help="from logs: count a metric's last value [all]")
    add("--best", action="append", default=[], metavar="NAME", help="from logs: count a metric's best value")
    add("--gate", metavar="ROW", help="one line of JSON; exit code 0 better, 3 undecided, 4 not better")
    add("--looks", metavar="N,N,…", help="seeds at which --gate looks, declared beforehand: 5,8,12")
    add("--family", metavar="FILE", help="many candidates, one after the other, share one error budget, kept in FILE")
    add("--candidates", type=int, help="number of candidates of a new --family [200]")
    add_format(parser, OF_ANALYSES)
    add("--to", help="file to write [standard output; html: judge.html beside the scores]")
    add("--figures", metavar="DIR", help="write the pictures as SVG files, too")
    options = parse_plain(parser, argv)

    from lightning_tfm.judging.scores import aim, read_items, read_scores

    aims, path = [aim(text) for text in options["metric"]], Path(options["scores"])
    check_together(parser, options, NEEDS, APART)
    _check(options, [a.name for a in aims], path)
    columns = options["row"], options["seed"]
    if path.is_dir():
        from lightning_tfm.judging.scores import read_logs

        scores = read_logs(path, aims, *columns, options["best"])
    else:
        scores = read_scores(path, aims, *columns)
    if options["gate"] is not None:
        return _gate(scores, aims, options, path)

    # with scipy, which a mistake in the scores does without
    from lightning_tfm.judging.presentation import analysis, terminal
    from lightning_tfm.judging.verdicts import judgement_of, with_published

    items = options["items"] and read_items(Path(options["items"]), aims[0], scores, *columns)
    judgement = judgement_of(scores, aims, options["base"], options["target"], items)
    if options["published"] is not None:
        judgement = with_published(judgement, Path(options["published"]), options["row"])
    if options["figures"]:
        _figures(judgement, Path(options["figures"]))
    text = options["format"] == "text"
    views = terminal(judgement, width() or 79, colours()) if text else analysis(judgement)
    return deliver(views, options, path.absolute().with_name("judge.html"))


def _check(options: dict[str, Any], names: list[str], path: Path) -> None:
    """Raise UserError for options that would say nothing, before anything is read."""
    if options["gate"] is not None and options["format"] not in ("text", "json"):
        raise UserError(f"--gate: not together with --format {options['format']}")
    of_logs = [*options["last"], *options["best"]]
    if of_logs and not path.is_dir():
        raise UserError(f"--last and --best: of a folder of logs; {path} is none")
    if both := sorted({*options["last"]} & {*options["best"]}):
        raise UserError(f"--last {both[0]} and --best {both[0]}: one of them counts")
    if unknown := [name for name in of_logs if name not in names]:
        raise UserError(
            f"--metric: say which values of {unknown[0]} are better: {unknown[0]}:higher or {unknown[0]}:lower"
        )
    if len(set(names)) < len(names):
        raise UserError(f"--metric {next(name for name in names if names.count(name) > 1)}: is there twice")
    if options["candidates"] is not None and not 1 <= options["candidates"] <= 100_000:
        raise UserError(f"--candidates={options['candidates']}: from 1 to 100,000")


def _gate(scores: "Scores", aims: "list[Aim]", options: dict[str, Any], path: Path) -> int:
    from lightning_tfm.judging.gate import Gate, answer_of_file, parse_looks
    from lightning_tfm.judging.verdicts import base_of, judgement_of

    if options["target"] is not None:
        answer = answer_of_file(judgement_of(scores, aims[:1], options["base"], options["target"]), options["gate"])
    else:
        looks = [] if options["looks"] is None else parse_looks(options["looks"])
        family = Path(options["family"]) if options["family"] else None
        base = base_of(scores, options["base"])
        answer = Gate(scores, aims, base, options["gate"], looks, family, options["candidates"]).answer(path)
    print(answer)
    return answer.code


def _figures(judgement: "Judgement", folder: Path) -> None:
    from lightning_tfm.judging.presentation import picture, seeds_picture

    pictures = {f"forest-{aim.name}": picture(judgement, [aim]) for aim in judgement.aims}
    pictures |= {"seeds": seeds_picture(judgement)}
    safe = {"".join(c if c.isalnum() or c in "-_." else "_" for c in name): image for name, image in pictures.items()}
    write_pictures(folder, {f"{name}.svg": image._repr_svg_() for name, image in safe.items() if image.svg})
