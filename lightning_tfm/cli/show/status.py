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

from lightning_tfm.cli.arguments import check_together, make_parser, parse_plain
from lightning_tfm.cli.output import say_hidden
from lightning_tfm.cli.terminal import align, fit_width
from lightning_tfm.schema import infinite_as_text
from lightning_tfm.study.study_file import load
from lightning_tfm.study.user_classes import earlier_words

if TYPE_CHECKING:
    from lightning_tfm.study.study import Study
    from lightning_tfm.watch.study_state import CellState, StudyState


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Which runs of a study are finished, running, waiting or failed; without a study: which studies."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("study", nargs="?", help="name of the study under <out>/studies [a list of all]")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--watch", action="store_true", help="refresh until everything is finished")
    parser.add_argument("--storage", default="", help="where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    check_together(parser, options, {"watch": "study", "storage": "study"}, {"json": ("watch",)})
    root, name = Path(options["out"]), options["study"]
    if name is None:
        return _list(root, options["json"])

    from lightning_tfm.queue.studies import has_queue, open_queue, state_without_queue, study_of
    from lightning_tfm.queue.view import View, follow
    from lightning_tfm.watch.run_state import Runs
    from lightning_tfm.watch.study_state import Watch

    if not has_queue(root, name, options["storage"]) and (
        state := state_without_queue(study := load(root, name), root, Runs(root))
    ):
        _show(name, state, options["json"], study)
        say_hidden(study, root)
        return 0
    queue = open_queue(root, name, options["storage"])
    defined = queue.note_of("definition") is not None or (root / "studies" / name / "study.json").is_file()
    watch = Watch(root, study=study_of(queue, root) if defined else None)
    if options["watch"]:
        follow(queue, watch, View(name, sys.stdout), every=0.1)
        return 0
    _show(name, watch.look(queue.states()), options["json"], watch.study)
    if watch.study is not None:
        say_hidden(watch.study, root)
    return 0


def _show(name: str, state: "StudyState", json_asked: bool, study: "Study | None") -> None:
    if study is not None and (words := earlier_words(study.classes)):
        print(f"{name}: {words}", file=sys.stderr)
    labels = {row.name: row.label for row in getattr(study, "rows", []) if row.label}
    print(as_json(name, state) if json_asked else fit_width(as_text(name, with_labels(state, labels)), indent=9))


def with_labels(state: "StudyState", labels: Mapping[str, str]) -> "StudyState":
    """Rows by their labels with their codes beside them; where they wait, they are many, and codes are enough."""

    def called(row: str) -> str:
        return f"{labels[row]} ({row})" if row in labels else row

    best = state.best and replace(state.best, row=called(state.best.row))
    cells = [
        s if s.state == "waiting" else replace(s, cell=replace(s.cell, row=called(s.cell.row))) for s in state.cells
    ]
    return replace(state, best=best, cells=cells)


def _list(root: Path, json_asked: bool) -> int:
    from lightning_tfm.queue.studies import list_studies

    studies = list_studies(root)
    if json_asked:
        print(json.dumps(infinite_as_text(studies), indent=1))
    elif studies:
        rows = [("study", "kind", "runs", "state", "last written", ""), *map(_row, studies)]
        print(fit_width(align(rows, right=[2]), indent=4))
    else:
        print(f"no studies in {root / 'studies'}; start one with: lightning-tfm sweep sweeps/table3.yaml")
    return 0


USUAL = ("finished", "running", "waiting")
"""states that a line does not count by name"""


def _row(study: dict[str, Any]) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(study["time"]))
    others = ", ".join(f"{number} {word}" for word, number in study["counts"].items() if word not in USUAL)
    more = study["trouble"].splitlines()[0] if study["trouble"] else others
    name = study["name"] if study["name"].isprintable() else repr(study["name"])
    finished = f"{study['counts'].get('finished', 0)} of {study['whole']}"
    return name, study["kind"], finished, study["state"], when, more


def as_json(name: str, state: "StudyState") -> str:
    whole: dict[str, Any] = {
        "study": name,
        "counts": state.counts,
        "diverged": state.diverged,
        "to be proposed": state.coming,
    }
    whole |= {"seconds_left": state.left.seconds if state.left else None}
    whole |= {"at_least": bool(state.left and state.left.at_least), "share": round(state.share, 4)}
    whole |= {"best": asdict(state.best) if state.best else None}
    whole |= {"cells": [*map(_cell, state.cells)]}
    return json.dumps(infinite_as_text(whole), indent=1)


def _cell(state: "CellState") -> dict[str, Any]:
    line: dict[str, Any] = {"row": state.cell.row, "seed": state.cell.seed, "state": state.state}
    if state.cell.more:
        line |= {"runs": {str(run.seed): run.training_hash[:16] for run in state.cell.runs}}
    line |= {"run": state.cell.training_hash[:16], "attempt": state.attempt, "reason": state.reason}
    line |= {"values": list(state.values), "owner": asdict(state.owner) if state.owner else None}
    if state.cell.change:
        line["parameters"] = state.cell.change
    if (run := state.run) is not None:
        keys = ("step", "steps", "tokens_per_second", "phase", "loss", "ppl", "best_ppl")
        if state.cell.more:
            line["running_seed"] = next(own.seed for own in state.cell.runs if own.training_hash[:16] == run.name)
        line |= {key: getattr(run, key) for key in keys}
        line["seconds_left"] = run.left.seconds if run.left else None
        line |= {"damaged_lines": run.damaged} if run.damaged else {}
    return line


def short(row: str) -> str:
    """A row of combined fields by its values: norm=pre, warmup=150 -> pre·150."""
    return re.sub(r"(^|, )\w+=", "·", row).lstrip("·")


def as_text(name: str, state: "StudyState") -> str:
    from lightning_tfm.queue.view import head, run_line

    lines = [head(name, state)]
    for s, run in state.running:
        where = f"  {s.owner.host}:{s.owner.pid}" if s.owner else ""
        lines.append(f"running  {run_line(s, run, f'{s.cell.row} seed {s.cell.seed}')}{where}")
    lines += [
        f"{word:7}  {s.cell.row} seed {s.cell.seed}  {s.reason}"
        for word in ("failed", "damaged", "interrupted", "waiting")
        for s in state.cells
        if s.state == word and (s.reason or word != "waiting")
    ]
    waiting = [f"{short(s.cell.row)}/{s.cell.seed}" for s in state.cells if s.state == "waiting" and not s.reason]
    if waiting:
        lines.append(f"waiting  {', '.join(waiting[:12])}{' …' if len(waiting) > 12 else ''}")
    return "\n".join(lines)
