"""`status`: which runs of a study are finished, running, interrupted, waiting or failed; without a study, which studies
there are. Once, as JSON, or as a live view."""

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.cli.output import say_hidden
from lightning_tfm.cli.terminal import aligned, fit_width
from lightning_tfm.errors import UserError
from lightning_tfm.schema import infinite_as_text
from lightning_tfm.study.study_file import load
from lightning_tfm.study.user_classes import earlier_words

if TYPE_CHECKING:
    from lightning_tfm.queue.studies import StudyInfo
    from lightning_tfm.study.study import Study
    from lightning_tfm.watch.study_state import CellState, Running, StudyState


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Which runs of a study are finished, running, waiting or failed; without a study: which studies."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("study", nargs="?", help="name of the study under <out>/studies [a list of all]")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--watch", action="store_true", help="refresh until everything is finished")
    parser.add_argument("--storage", default="", help="where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    if options["json"] and options["watch"]:
        raise UserError("--json and --watch: give only one of the two")
    root, name = Path(options["out"]), options["study"]
    if name is None:
        for option in ("watch", "storage"):
            if options[option]:
                raise UserError(f"--{option} needs a study: lightning-tfm status STUDY --{option}")
        return _list(root, options["json"])

    from lightning_tfm.queue.storages.open import has_queue, open_queue, study_of
    from lightning_tfm.queue.studies import state_without_queue
    from lightning_tfm.queue.view import View, follow
    from lightning_tfm.watch.run_state import Runs
    from lightning_tfm.watch.study_state import Watch

    if not has_queue(root, name, options["storage"]) and (
        found := state_without_queue(study := load(root, name), root, Runs(root))
    ):
        _show(name, found, options["json"], study)
        say_hidden(study, root)
        return 0
    queue = open_queue(root, name, options["storage"])
    known = queue.noted("definition") is not None or (root / "studies" / name / "study.json").is_file()
    watch = Watch(root, study=study_of(queue, root) if known else None)
    if options["watch"]:
        follow(queue, watch, View(name, sys.stdout), every=0.1)
        return 0
    _show(name, watch.look(queue.states()), options["json"], watch.study)
    if watch.study is not None:
        say_hidden(watch.study, root)
    return 0


def _show(name: str, found: "StudyState", json_asked: bool, study: "Study | None") -> None:
    if study is not None and (words := earlier_words(study.classes)):
        print(f"{name}: {words}", file=sys.stderr)
    labels = {row.name: row.label for row in getattr(study, "rows", []) if row.label}
    print(as_json(name, found) if json_asked else fit_width(as_text(name, labelled(found, labels)), indent=9))


def labelled(found: "StudyState", labels: Mapping[str, str]) -> "StudyState":
    """Rows by their labels with their codes beside them; where they wait, they are many, and codes are enough."""

    def called(row: str) -> str:
        return f"{labels[row]} ({row})" if row in labels else row

    running = [replace(r, row=called(r.row)) for r in found.running]
    best = found.best and replace(found.best, row=called(found.best.row))
    cells = [
        s if s.state == "waiting" else replace(s, cell=replace(s.cell, row=called(s.cell.row))) for s in found.cells
    ]
    return replace(found, running=running, best=best, cells=cells)


def _list(root: Path, json_asked: bool) -> int:
    from lightning_tfm.queue.studies import list_studies

    found = list_studies(root)
    if json_asked:
        print(json.dumps(infinite_as_text([asdict(info) for info in found]), indent=1))
    elif found:
        rows = [("study", "kind", "runs", "state", "last written", ""), *map(_row, found)]
        print(fit_width(aligned(rows, right=[2]), indent=4))
    else:
        print(f"no studies in {root / 'studies'}; start one with: lightning-tfm sweep sweeps/table3.yaml")
    return 0


USUAL = ("finished", "running", "waiting")
"""states that a line does not count by name"""


def _row(info: "StudyInfo") -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.time))
    others = ", ".join(f"{number} {word}" for word, number in info.counts.items() if word not in USUAL)
    more = info.trouble.splitlines()[0] if info.trouble else others
    name = info.name if info.name.isprintable() else repr(info.name)
    return name, info.kind, f"{info.counts.get('finished', 0)} of {info.whole}", info.state, when, more


def as_json(name: str, found: "StudyState") -> str:
    live = dict(zip((id(s) for s in found.cells if s.state == "running"), found.running, strict=True))
    whole: dict[str, Any] = {
        "study": name,
        "counts": found.counts,
        "diverged": found.diverged,
        "to be proposed": found.coming,
    }
    whole |= {"seconds_left": found.left.seconds if found.left else None}
    whole |= {"at_least": bool(found.left and found.left.at_least), "share": round(found.share, 4)}
    whole |= {"best": asdict(found.best) if found.best else None}
    whole |= {"cells": [_cell(s, live.get(id(s))) for s in found.cells]}
    return json.dumps(infinite_as_text(whole), indent=1)


def _cell(state: "CellState", running: "Running | None") -> dict[str, Any]:
    from lightning_tfm.watch.study_state import state_word

    found: dict[str, Any] = {"row": state.cell.row, "seed": state.cell.seed, "state": state_word(state.state)}
    if state.cell.more:
        found |= {"runs": {str(run.seed): run.training_hash[:16] for run in state.cell.runs}}
    found |= {"run": state.cell.training_hash[:16], "attempt": state.attempt, "reason": state.reason}
    found |= {"values": list(state.values), "owner": state.owner.to_dict() if state.owner else None}
    if state.cell.change:
        found["parameters"] = state.cell.change
    if running is not None:
        keys = ("step", "steps", "tokens_per_second", "phase", "loss", "ppl", "best_ppl")
        found |= {"running_seed": running.seed} if state.cell.more else {}
        found |= {key: getattr(running.run, key) for key in keys}
        found["seconds_left"] = running.run.left.seconds if running.run.left else None
        found |= {"damaged_lines": running.run.damaged} if running.run.damaged else {}
    return found


def short(row: str) -> str:
    """A row of combined fields by its values: norm=pre, warmup=150 -> pre·150."""
    return re.sub(r"(^|, )\w+=", "·", row).lstrip("·")


def as_text(name: str, found: "StudyState") -> str:
    from lightning_tfm.queue.view import head, run_line

    lines = [head(name, found)]
    for r in found.running:
        where = f"  {r.owner.host}:{r.owner.pid}" if r.owner else ""
        lines.append(f"running  {run_line(r, f'{r.row} seed {r.seed}')}{where}")
    lines += [
        f"{word:7}  {s.cell.row} seed {s.cell.seed}  {s.reason}"
        for word in ("failed", "damaged", "interrupted", "waiting")
        for s in found.cells
        if s.state == word and (s.reason or word != "waiting")
    ]
    waiting = [f"{short(s.cell.row)}/{s.cell.seed}" for s in found.cells if s.state == "waiting" and not s.reason]
    if waiting:
        lines.append(f"waiting  {', '.join(waiting[:12])}{' …' if len(waiting) > 12 else ''}")
    return "\n".join(lines)
