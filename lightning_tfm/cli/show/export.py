"""`export`: what a run or a study left, for other programs: weights (safetensors, CTranslate2) of a run; curves and
scores (TensorBoard, CSV) of a run, a study or a search."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep

from lightning_tfm.cli.arguments import Parser, check_together, make_parser, parse_plain
from lightning_tfm.cli.show.evaluate import find
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural

WEIGHTS = ("safetensors", "ctranslate2")
RECORDS = ("csv", "tensorboard")
ABOUT = (
    "For other programs: a run's weights (--to safetensors, ctranslate2), or the curves and scores of a run, a study "
    "or a search (--to tensorboard, csv; export --to csv --help has their options), as one folder."
)


def main(verb: str, argv: Sequence[str]) -> int:
    return _records(verb, argv) if _format_of(argv) in RECORDS else _weights(verb, argv)


def _format_of(argv: Sequence[str]) -> str:
    """The format, looked up before there is a parser: weights take an experiment's options, records do not."""
    kind = ""
    for token, following in zip(argv, [*argv, ""][1:], strict=True):
        kind = following if token == "--to" else token[5:] if token.startswith("--to=") else kind
    return kind


def _add_formats(parser: Parser) -> None:
    parser.add_argument("--to", choices=[*WEIGHTS, *RECORDS], default="safetensors", help="format of the folder")
    parser.add_argument(
        "--folder", help="folder to write [a subfolder of the run's or study's, named after the format]"
    )


def _weights(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, ABOUT, of_run=True)
    _add_formats(parser)
    folder, experiment, settings = find(parser, argv, of_study=f"--to {' or '.join(RECORDS)}")

    from lightning_tfm.inference.export import to_ctranslate2, to_safetensors
    from lightning_tfm.inference.load import Trained

    target = Path(settings.verb["folder"] or folder.path / settings.verb["to"])
    write = {"safetensors": to_safetensors, "ctranslate2": to_ctranslate2}[settings.verb["to"]]
    print(write(Trained.open(folder, experiment), target))
    return 0


def _records(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, ABOUT, experiment=False)
    parser.add_argument("what", help="name of a study or search, or a run: its directory, or the start of its name")
    _add_formats(parser)
    parser.add_argument("--live", action="store_true", help="keep the folder up to date until everything is finished")
    parser.add_argument("--storage", default="", help="with --live: where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    root, what = Path(options["out"]), options["what"]
    check_together(parser, options, {"storage": "live"}, {})

    from lightning_tfm.report.curve_export import FORMATS, exported_runs
    from lightning_tfm.study.search import Search
    from lightning_tfm.study.study_file import folder_of, load

    studied = (root / "studies" / what / "study.json").is_file()
    searched = studied and isinstance(load(root, what), Search)
    if searched:
        refresh(what, root)
    runs = exported_runs(what, root)
    place = folder_of(root, what) if studied else runs[0].folder.path
    target = FORMATS[options["to"]](Path(options["folder"] or place / options["to"]))
    try:
        how = target.write(runs)
        if options["live"]:
            over = _over(what if studied else None, root, options["storage"], runs[0].folder.result)
            print(f"live, until everything is finished: {how}", flush=True)
            last = False
            while not last:
                sleep(EVERY)
                last = over()  # asked first: what ended meanwhile is written once more
                if searched:
                    refresh(what, root)
                runs = exported_runs(what, root)
                target.write(runs)
    finally:
        target.close()
    print(f"{plural(len(runs), 'run')}: {how}")
    return 0


EVERY = 5.0
"""seconds from one look at the records to the next"""


def refresh(name: str, root: Path) -> None:
    """Bring a search's trials.json up to date with its storage; a copy without one is shown as it is."""
    from lightning_tfm.queue.search_results import report
    from lightning_tfm.study.search import Search
    from lightning_tfm.study.study_file import folder_of, load_as

    try:
        report(load_as(Search, root, name), root)
    except UserError as error:
        if not (folder_of(root, name) / "trials.json").is_file():
            raise
        print(f"{name}: shown from trials.json: {error}", file=sys.stderr)


def _over(study: str | None, root: Path, storage: str, result: Path) -> Callable[[], bool]:
    """Whether all of a study, or else the run with this `result`, has ended."""
    if study is None:
        return result.is_file
    from lightning_tfm.queue.studies import open_queue

    return open_queue(root, study, storage).done
