"""`dashboard`: studies, searches and runs of a results folder in the browser, while they run; nothing is written."""

import secrets
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.errors import UserError

if TYPE_CHECKING:
    from lightning_tfm.dashboard.board import Board


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Studies, searches and runs in the browser, on 127.0.0.1.", experiment=False)
    parser.add_argument("--port", type=int, default=8000, help="0: any free one")
    parser.add_argument("--no-text", action="store_true", help="leave out every line of the corpus")
    parser.add_argument("--token", action="store_true", help="answer only those who have the printed address")
    options = parse_plain(parser, argv)
    root = Path(options["out"])
    if not root.is_dir():
        raise UserError(
            f"--out={root}: no such folder; give the one with your runs and studies, or begin one: lightning-tfm demo"
        )
    token = secrets.token_urlsafe(16) if options["token"] else ""
    return show(root, options["port"], "/", not options["no_text"], token)


def show(root: Path, port: int, path: str, texts: bool = True, token: str = "") -> int:
    """Serve the results folder until Ctrl-C, and name the address of the page `path`. Raises UserError."""
    from lightning_tfm.dashboard.app import Dashboard, serve
    from lightning_tfm.dashboard.board import Board
    from lightning_tfm.watch.run_cache import cache_file

    board = Board(root, cache=cache_file(root), texts=texts)
    dashboard = Dashboard(board)

    def read() -> None:  # thousands of runs before one has clicked
        dashboard.index()
        keep(board)

    threading.Thread(target=read, daemon=True).start()
    try:
        path += f"?token={token}" * bool(token)
        serve(dashboard.app(token), port, lambda address: print(f"{address}{path}  (Ctrl-C stops)", flush=True))
    finally:
        keep(board)
    return 0


def keep(board: "Board") -> None:
    """Let the next start know the finished runs; where that cannot be written, it reads them again."""
    try:
        board.keep()
    except OSError as error:
        print(f"the next start will read all runs again: {error}", file=sys.stderr)
