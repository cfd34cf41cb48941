"""`status`: which runs of a study are done, running, waiting, failed or gone; once, as JSON, or as a live view."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import RunFolder

if TYPE_CHECKING:
    from lightning_tfm.queue.progress import Overview, Running
    from lightning_tfm.queue.queue import CellState, Queue


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Which runs of a study are done, running, waiting, failed or gone.", experiment=False)
    parser.add_argument("study", help="name of the study under <out>/studies")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--watch", action="store_true", help="refresh until all is done")
    parser.add_argument("--storage", default="", help="where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    if options["json"] and options["watch"]:
        raise UserError("--json and --watch: give only one of the two")

    from lightning_tfm.queue.open import open_queue
    from lightning_tfm.queue.progress import View, Watch, follow

    root, name = Path(options["out"]), options["study"]
    queue = open_queue(root, name, options["storage"])
    watch = Watch(root, 1)
    if options["watch"]:
        follow(queue, watch, View(name, sys.stdout), every=0.1, states=lambda: states_of(queue, root))
        return 0
    states = states_of(queue, root)
    overview = watch.look(states)
    print(as_json(name, states, overview) if options["json"] else as_text(name, states, overview))
    return 0


def states_of(queue: "Queue", root: Path) -> "list[CellState]":
    """States of a study's cells; `gone` where a finished run no longer exists, neither here nor in the storage."""
    states = queue.states()
    gone = {run.training_hash for s in states if s.state == "done" for run in s.cell.runs}
    gone = {name for name in gone if not RunFolder(root, name).result.exists()}
    if gone:
        gone -= {name for name, _ in queue.shared_records()}
    why = f"its folder below {root / 'runs'} is gone"
    return [
        replace(s, state="gone", reason=why) if any(run.training_hash in gone for run in s.cell.runs) else s
        for s in states
    ]


def as_json(name: str, states: "list[CellState]", overview: "Overview") -> str:
    live = dict(zip((id(state) for state in states if state.state == "running"), overview.running, strict=True))
    cells = [_cell(state, live.get(id(state))) for state in states]
    whole = {"study": name, "counts": overview.counts, "seconds_left": overview.seconds_left, "cells": cells}
    return json.dumps(whole, indent=1)


def _cell(state: "CellState", running: "Running | None") -> dict[str, Any]:
    found: dict[str, Any] = {"row": state.cell.row, "seed": state.cell.seed, "state": state.state}
    if state.cell.more:
        found |= {"runs": {str(run.seed): run.training_hash[:16] for run in state.cell.runs}}
    found |= {"run": state.cell.training_hash[:16], "attempt": state.attempt, "reason": state.reason}
    found |= {"values": list(state.values), "owner": state.owner.to_dict() if state.owner else None}
    if running is not None:
        keys = ("step", "steps", "tokens_per_second", "phase", "seconds_left")
        found |= {"running_seed": running.seed} if state.cell.more else {}
        found |= {key: getattr(running, key) for key in keys}
    return found


def as_text(name: str, states: "list[CellState]", overview: "Overview") -> str:
    from lightning_tfm.queue.progress import clock, line

    owners = [s.owner for s in states if s.state == "running"]
    lines = [line(name, overview).split(" | ")[0]]
    for r, owner in zip(overview.running, owners, strict=True):
        step = "starting" if r.step is None else f"{r.phase} {r.step}/{r.steps}"
        speed = "" if r.tokens_per_second is None else f"{r.tokens_per_second:,.0f} tokens/s"
        left = f"{clock(r.seconds_left)} left" if r.seconds_left is not None else ""
        where = f"{owner.host}:{owner.pid}" if owner else ""
        lines.append("  ".join(filter(None, (f"running  {r.row} seed {r.seed}", step, speed, left, where))))
    lines += [f"failed   {row} seed {seed}  {reason}" for row, seed, reason in overview.failed]
    lines += [f"gone     {s.cell.row} seed {s.cell.seed}  {s.reason}" for s in states if s.state == "gone"]
    waiting = [f"{s.cell.row}/{s.cell.seed}" for s in states if s.state == "waiting"]
    if waiting:
        lines.append(f"waiting  {', '.join(waiting[:12])}{' …' if len(waiting) > 12 else ''}")
    return "\n".join(lines)
