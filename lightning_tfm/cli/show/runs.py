"""`runs`: list | query | retry | remove | gc."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_tfm.cli.arguments import check_action, make_parser, parse_plain
from lightning_tfm.cli.terminal import align, fit_width
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import OF_TEXT, PRINTED, Metric, chief
from lightning_tfm.plural_words import plural
from lightning_tfm.schema import infinite_as_text
from lightning_tfm.study.command import with_out

BELONGS = {
    "json": ("list", "query"),
    "yes": ("gc",),
    "force": ("remove",),
    "storage": ("retry",),
    "columns": ("query",),
}
"""option -> the actions that it belongs to"""
NEEDS = {
    "retry": "a study or a run, see: status, runs list",
    "remove": "a run, see: runs list",
    "query": "a condition: 'h = 8 and ppl < 2.2'",
}
"""actions that take a word, and which"""


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(
        verb, "List runs, find some, retry failed ones, remove one, free disk space.", experiment=False
    )
    parser.add_action("list", "query", "retry", "remove", "gc")
    parser.add_argument("run", nargs="?", help="start of a run's name; retry: or a study; query: 'h = 8 and ppl < 2.2'")
    parser.add_argument("--json", action="store_true", help="list or query as JSON")
    parser.add_argument("--columns", default="", help="query: more fields to show, separated by commas")
    parser.add_argument("--yes", action="store_true", help="gc: remove what it lists")
    parser.add_argument("--force", action="store_true", help="remove: also a run that a study uses")
    parser.add_argument("--storage", default="", help="retry: the database of studies that use one")
    options = parse_plain(parser, argv)
    action, run = options["action"], options["run"]
    check_action(verb, action, options, BELONGS)
    if (run is None) == (action in NEEDS):
        raise UserError(f"runs {action} " + (f"needs {NEEDS[action]}" if run is None else "takes no run"))
    print(_query(Path(options["out"]), options) if action == "query" else _act(action, Path(options["out"]), options))
    return 0


def _act(action: str, root: Path, options: dict[str, Any]) -> str:
    from lightning_tfm.queue import housekeeping
    from lightning_tfm.runs.folder import RunIsOwned

    try:
        match action:
            case "retry":
                if not (queued := housekeeping.retry(root, options["run"], options["storage"])):
                    return "no study holds such a failed cell: nothing to queue again"
                again = "to run what is queued, repeat the command that started the study"
                return f"{plural(queued, 'cell')} queued; {again}"
            case "remove":
                return f"removed {housekeeping.remove(root, options['run'], options['force'])}"
            case "gc":
                return _gc(housekeeping.gc(root, dry_run=not options["yes"]), root, options["yes"])
            case _:
                return _list(housekeeping.list_runs(root), root, options["json"])
    except RunIsOwned as error:
        raise UserError(str(error)) from error


def _query(root: Path, options: dict[str, Any]) -> str:
    """The runs that a condition finds, with the fields that it names."""
    from lightning_tfm.cli.show.dashboard import keep
    from lightning_tfm.dashboard.board import Board
    from lightning_tfm.dashboard.fields import fields, typed
    from lightning_tfm.watch.query import find_field, find_runs
    from lightning_tfm.watch.run_cache import cache_file

    board = Board(root, cache=cache_file(root))
    seen = board.look()
    keep(board)
    valid, runs = fields(seen), seen.scored
    matches, named = find_runs(options["run"], valid, runs)
    more = [find_field(name.strip(), valid) for name in options["columns"].split(",") if name.strip()]
    columns = list(dict.fromkeys([valid[name] for name in SHOWN] + named + more))
    lines = [[field.of(run) for field in columns] for run in matches]
    if options["json"]:
        plain = [dict(zip((field.name for field in columns), values, strict=True)) for values in lines]
        return json.dumps(infinite_as_text(plain), indent=1)
    if not matches:
        return f"none of {plural(len(runs), 'run')}{_if_missing(root)}"
    rows = [[field.name for field in columns]]
    for run, values in zip(matches, lines, strict=True):
        miniature = seen.miniature(run.name)
        rows.append([typed(field, value, miniature) for field, value in zip(columns, values, strict=True)])
    return fit_width(f"{align(rows)}\n{len(matches)} of {plural(len(runs), 'run')}", indent=18)


SHOWN = ("run", "state", *PRINTED, "study", "row", "seed")
"""fields that are shown of every run found"""


def _list(runs: list[dict[str, Any]], root: Path, as_json: bool) -> str:
    if as_json:
        plain = [{**run, OF_TEXT.name: None, **run["scores"]} for run in runs]
        for line in plain:
            del line["scores"]
        return json.dumps(infinite_as_text(plain), indent=1)
    if not runs:
        return f"no runs in {root / 'runs'}{_if_missing(root / 'runs')}"
    metrics = [*dict.fromkeys(chief(run["scores"]) for run in runs if run["scores"])]
    metrics = metrics or [OF_TEXT] * any(run["state"] != "finished" for run in runs)
    heads = ("run", "state", "date", "step", "dev PPL", *(metric.label for metric in metrics), "size", "study/row/seed")
    rows = [heads, *(_row(run, metrics) for run in runs)]
    return fit_width(align(rows, right=range(3, len(heads) - 1)), indent=18)


def _row(run: dict[str, Any], metrics: Sequence[Metric]) -> tuple[str, ...]:
    step = "" if run["step"] is None else f"{run['step']}/{run['steps']}"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run["time"]))
    ppl = "" if run["ppl"] is None else f"{run['ppl']:.3f}"
    own = chief(run["scores"])
    scores = [own.score(run["scores"][own.name]) if m is own and run["scores"] else "" for m in metrics]
    words = f"{', '.join(run['cells'])}  {run['reason']}"
    return run["run"], run["state"], when, step, ppl, *scores, _size(run["bytes"]), words


def _gc(garbage: list[tuple[Path, int, str]], root: Path, removed: bool) -> str:
    lines = [f"{_size(size):>8}  {path}  ({why})" for path, size, why in garbage]
    total = _size(sum(size for _, size, _ in garbage))
    freed = f"{total} would be freed by: {with_out('lightning-tfm runs gc --yes', root)}"
    end = f"{total} removed" if removed else freed if garbage else f"nothing to remove{_if_missing(root)}"
    return fit_width("\n".join([*lines, end]), indent=10)


def _if_missing(folder: Path) -> str:
    return "" if folder.exists() else f": {folder} does not exist"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
