"""`dashboard`: studies, searches and runs of a results folder in the browser, while they run; nothing is written."""

import threading
from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.errors import UserError


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Studies, searches and runs in the browser, on 127.0.0.1.", experiment=False)
    parser.add_argument("--storage", default="", help="a PostgreSQL storage whose studies are shown, too")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one")
    parser.add_argument("--no-text", action="store_true", help="leave out every line of the corpus")
    options = parse_plain(parser, argv)
    root = Path(options["out"])
    if not root.is_dir() and not options["storage"]:
        raise UserError(f"--out={root}: there is no such folder; give the one with your runs and studies")
    return show(root, options["port"], "/", not options["no_text"], options["storage"])


def show(root: Path, port: int, path: str, texts: bool = True, storage: str = "") -> int:
    """Serve the results folder until Ctrl-C, and name the address of the page `path`. Raises UserError."""
    from lightning_tfm.dashboard.app import Dashboard
    from lightning_tfm.dashboard.board import Board
    from lightning_tfm.dashboard.serve import serve

    elsewhere = None
    if storage:
        from lightning_tfm.dashboard.storage import Database

        elsewhere = Database(storage)
    dashboard = Dashboard(Board(root, elsewhere), texts)
    threading.Thread(target=dashboard.index, daemon=True).start()  # a thousand runs are read before one has clicked
    serve(dashboard.app(), port, lambda address: print(f"{address}{path}  (Ctrl-C stops)", flush=True))
    return 0
