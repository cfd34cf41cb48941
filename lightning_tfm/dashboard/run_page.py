"""One run's page."""

from dataclasses import asdict, replace
from typing import Any

from lightning_tfm.config import Experiment, from_record, to_dict, typed_and_trained
from lightning_tfm.dashboard.board import Board, Seen
from lightning_tfm.dashboard.chart import Chart, Curve
from lightning_tfm.dashboard.markup import clock
from lightning_tfm.dashboard.page import NoSuchPage, Page
from lightning_tfm.dashboard.texts import of_the_end, over_time
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, in_words
from lightning_tfm.runs.record import RunRecord, read_record
from lightning_tfm.study.command import fit_command
from lightning_tfm.study.study import Ablation
from lightning_tfm.watch.file_cache import read_attempts
from lightning_tfm.watch.run_state import DEV, Points, RunState, name_of
from lightning_tfm.watch.run_state import Curve as Course

PARTS = ["head", "translations", "time", "origin", "attempts"]
SERIES = {"lr": "Learning rate", "grad_norm": "Gradient norm"}
OTHERS = {"loss", "nll", "lr", "grad_norm", DEV, "dev_nll", "target_tokens", "seconds"}


def page(board: Board, seen: Seen, name: str) -> Page:
    """Raises NoSuchPage."""
    if name not in seen.runs:
        raise NoSuchPage(f"there is no run '{name}'")
    folder, view = board.root / "runs" / name, seen.runs[name]
    found = read_record(folder / "result.json")
    record = found if isinstance(found, RunRecord) else None
    experiment = experiment_of(view.experiment)
    over = over_time(folder) if board.texts else []
    data: dict[str, Any] = {
        "view": view,
        "called": seen.called(name),
        "homes": [(home, seen.outlines[home.study].called) for home in seen.homes.get(name, ())],
        "base": _base(seen, name),
        "folder": str(folder),
        "over_time": bool(over),
        "sentences": over or (of_the_end(board.root, folder, record) if record and board.texts else []),
        "phases": _phases(record) if record else [],
        "facts": _facts(record) if record else [],
        "command": fit_command(experiment.unscaled(seen.miniature(name))) if experiment else "",
        "config": fields_of(seen, view),
        "attempts": read_attempts(folder),
    }
    charts = run_charts(board.course(name), view.steps, record.flops if record else None)
    return Page("run.html", seen.called(name), f"/run/{name}/news", PARTS, data, charts, view.state == "running")


def run_charts(course: Course, steps: int | None, flops: float | None = None) -> dict[str, Chart]:
    """All that is logged in the course of training."""
    last, across = float(steps) if steps else None, axes(course, flops)
    found = {}
    if course.points("loss"):
        curves = [
            Curve(name, course.points(key), colour, across=across)
            for name, key, colour in (("loss", "loss", 1), ("NLL", "nll", 3))
        ]
        note = "per target token, in nats; NLL is the loss without label smoothing"
        found["chart-loss"] = Chart("Training loss", curves, note, last=last)
    if course.points(DEV):
        dev = [Curve("dev PPL", course.points(DEV), 4, across=across)]
        found["chart-dev"] = Chart("Dev perplexity", dev, "per token", log=True, last=last)
    more = {key: key for key in course.keys if key not in OTHERS}
    for key, title in (SERIES | more).items():
        if course.points(key):
            found[f"chart-{key}"] = Chart(title, [Curve(title, course.points(key), 2, across=across)], last=last)
    if rates := _rates(course):
        curve = [Curve("tokens/s", rates, 6, across=across)]
        found["chart-rate"] = Chart("Target tokens per second", curve, scales=False, last=last)
    return found


def axes(course: Course, flops: float | None = None) -> dict[str, Points]:
    """What a curve may be drawn over in place of its steps; `flops` of the whole training are in proportion to its
    target tokens."""
    found = {key: course.points(key) for key in ("seconds", "target_tokens") if course.points(key)}
    tokens = found.get("target_tokens", [])
    if flops and tokens and tokens[-1][1]:
        found["flops"] = [(step, flops * count / tokens[-1][1]) for step, count in tokens]
    return found


def _rates(course: Course) -> Points:
    tokens, found, before = dict(course.every("target_tokens")), [], (0.0, 0.0)
    for step, s in course.every("seconds"):
        if (n := tokens.get(step)) is not None and s > before[1]:
            found.append((step, (n - before[0]) / (s - before[1])))
            before = (n, s)
    return found


def experiment_of(plain: dict[str, Any]) -> Experiment | None:
    """What a run trains, at its true sizes; None where its file is missing or of another version."""
    try:
        return from_record(plain) if plain else None
    except (UserError, TypeError, ValueError):
        return None


def _base(seen: Seen, name: str) -> str:
    """The run of base at the same seed, to compare with; empty where there is none or it is this one."""
    for home in seen.homes.get(name, ()):
        outline = seen.outlines[home.study]
        if isinstance(outline.study, Ablation):
            for run in outline.runs:
                same = run.row == outline.study.base_row and run.seed == home.seed
                if same and name_of(run) != name and name_of(run) in seen.runs:
                    return name_of(run)
    return ""


def _phases(record: RunRecord) -> list[dict[str, Any]]:
    """The parts of the run's time: name, seconds, share in percent, where they are on a bar of 1000."""
    s, parts = record.seconds, record.train_seconds
    named: dict[str, float | None] = {"training": s.train}
    if parts is not None:
        rest = s.train - parts.forward - parts.backward - parts.optimizer
        named = {"forward": parts.forward, "backward": parts.backward, "optimizer": parts.optimizer}
        named["rest of training"] = max(0.0, rest)
    named |= {"data": s.data, "validation": s.validate, "checkpoints": s.checkpoint, "scoring": s.decode}
    known = [(name, seconds) for name, seconds in named.items() if seconds]
    total = sum(seconds for _, seconds in known)
    found, start = [], 0.0
    for colour, (name, seconds) in enumerate(known):
        width = 1000 * seconds / total
        place = {"start": round(start), "width": max(1, round(width)), "colour": colour % 8}
        found.append({"name": name, "seconds": seconds, "share": round(width / 10)} | place)
        start += width
    return found


def _facts(record: RunRecord) -> list[tuple[str, str]]:
    git, machine, data = record.git, record.hardware, record.data
    found = [
        (f"{name}, {score.weights} weights", in_words(score) + f" ({score.signature})" * bool(score.signature))
        for name, score in record.scores.items()
    ]
    added = [(name, key, one) for name, score in record.scores.items() for key, one in score.measures.items()]
    called = {key: METRICS[key].label if key in METRICS else key for _, key, _ in added}
    found += [(f"{name}, {called[key]}", f"{one.value:.2f} ({one.signature})") for name, key, one in added]
    found.append(("parameters", f"{record.parameters.total:,}"))
    found.append(("trained on", f"{record.target_tokens or 0:,} target tokens, {record.flops:.3g} FLOPs"))
    found.append(("time", ", ".join(f"{k} {clock(v)}" for k, v in asdict(record.seconds).items() if v)))
    where = [
        machine.host,
        machine.cpu,
        *machine.gpus,
        f"{machine.processes} × {machine.threads} threads",
        machine.system,
    ]
    found.append(("machine", ", ".join(part for part in where if part)))
    if machine.command:
        found.append(("started by", " ".join(machine.command)))
    found.append(("commit", "not from a checkout" if git is None else git.commit + " (changed)" * git.changed))
    found.append(("versions", ", ".join(f"{k} {v}" for k, v in record.versions.items())))
    prints = f"training data {data.train[:16]}, dev set {data.dev[:16]}, tokenizer {data.tokenizer[:16]}"
    found.append(("data", f"{data.corpus}, {record.V} tokens; {prints}"))
    if record.inexact:
        found.append(("inexact", "; ".join(record.inexact)))
    return found


def fields_of(seen: Seen, view: RunState) -> dict[str, dict[str, str]]:
    """All fields of a run's experiment as they are typed, with the sizes trained; empty where it is unknown."""
    trained = experiment_of(view.experiment)
    if trained is None:
        return {}
    typed = trained.unscaled(seen.miniature(view.name))
    exact = to_dict(replace(trained, miniature=typed.miniature))
    return {
        section: {key: typed_and_trained(value, exact[section][key]) for key, value in fields.items()}
        for section, fields in to_dict(typed).items()
    }
