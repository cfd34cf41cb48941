"""`study`: hide | show."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain

ABOUT = "Hide a row from a study's table: hide STUDY ROW; show STUDY ROW shows it again. It stays in every correction."


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, ABOUT, experiment=False)
    parser.add_action("hide", "show")
    parser.add_argument("study", help="name of the study under <out>/studies")
    parser.add_argument("row", help="a row of it")
    parser.add_argument("--storage", default="", help="where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    action, name, row = (options[key] for key in ("action", "study", "row"))

    from lightning_tfm.study.study_file import load

    root = Path(options["out"])
    load(root, name)  # report a mistyped name before importing the queue's libraries

    from lightning_tfm.queue.studies import hide, show

    if action == "hide":
        apart = hide(root, name, row, options["storage"])
        print(f"{name}: {row} is hidden as '{apart}': it trains no further, and stays in every correction and export")
    else:
        print(f"{name}: {show(root, name, row, options['storage'])} is in the table again")
    return 0
