"""`study`: drop | rename."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.errors import UserError

ABOUT = "Take a row out of a study's tables: drop STUDY ROW; rename it: rename STUDY ROW NEW. Its runs stay."


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, ABOUT, experiment=False)
    parser.add_action("drop", "rename")
    parser.add_argument("study", help="name of the study under <out>/studies")
    parser.add_argument("row", help="a row of it")
    parser.add_argument("new", nargs="?", help="rename: its new name")
    parser.add_argument("--storage", default="", help="where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    action, name, row, new = (options[key] for key in ("action", "study", "row", "new"))
    if (new is None) == (action == "rename"):
        raise UserError(f"study {action}: " + ("needs a new name" if new is None else "takes one row, no second name"))

    from lightning_tfm.study.study import load

    root = Path(options["out"])
    load(root, name)  # report a mistyped name before importing the queue's libraries

    from lightning_tfm.queue.command import rows_in_file
    from lightning_tfm.queue.rows import move

    move(root, name, row, new, options["storage"])
    found = rows_in_file(root, name)
    back = f"; {found[0]} still has {row}, and a sweep would bring it back" if found and row in found[1] else ""
    print(f"{name}: {row} " + (f"is now {new}" if new else "has left the tables, its runs stay") + back)
    return 0
