"""Mirrors our records to W&B: one process beside a study reads the run folders and logs what it finds.

Training never touches W&B: no rank opens a run there, and no trouble with W&B reaches a run. Which steps have arrived
is said online by the run's summary, offline by a note beside W&B's files, written when a run's file is closed: a disk
that is full for them is full for it. A step whose file was not closed is sent again. What is missing there is sent
later, also by `replay`: the records on disk are the truth.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, OF_TEXT, PRINTED, numbers
from lightning_tfm.runs.folder import RunFolder, read_json
from lightning_tfm.runs.process.forking import children, fork, print_into, unblock_signals
from lightning_tfm.runs.record import CURVES, RunRecord, read_record, to_plain
from lightning_tfm.schema import infinite_as_text
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.command import with_out
from lightning_tfm.watch.run_state import Curve

STEP = "optimizer_step"
TAG = 64
"""letters that W&B allows in a tag; the run's name and its config have all of a row's name"""
SENT = "wandb.json"
"""file of a run's folder: the modes and W&B run ids under which all of it has arrived, and as which row of a study"""
DIFFERENCE = ("estimate", "percent estimate", "verdict")
SUMMARISED = (*(f"{METRICS[name].key} difference {what}" for name in PRINTED for what in DIFFERENCE), "flops")
"""columns of the verdicts that the summary also has, as ROW/COLUMN"""
Mode = Literal["offline", "online"]
Verdicts = tuple[list[str], list[list[str | int | float | None]], Mapping[str, str]]
"""heads and rows (report/tables/main_table.py), and name -> HTML of what is shown beside the table"""
LOOK = 1.0
"""seconds between two checks of the records"""
PATIENCE = 60.0
"""seconds that the mirror gets for what is left when the study has ended"""
DIED = "ended early"


@dataclass
class Mirror:
    """Logs runs to W&B; offline files are in `folder`/wandb."""

    folder: Path
    mode: Mode
    group: str
    _open: dict[str, Any] = field(default_factory=dict)
    _sent: dict[str, set[int]] = field(default_factory=dict)
    """W&B run id -> steps that were logged"""
    _closed: set[str] = field(default_factory=set)
    _curves: dict[str, Curve] = field(default_factory=dict)

    def look(self, root: Path, cells: list[Cell]) -> None:
        """Send what is new of each run; end those that are finished. Raises OSError, and what W&B raises."""
        for cell in cells:
            if cell.training_hash not in self._closed:
                self._follow(RunFolder(root, cell.training_hash), cell)

    def close(self) -> None:
        """End the runs that are still open; they may be resumed later."""
        for run in self._open.values():
            self._finish(run)
        self._open.clear()

    def verdicts(self, verdicts: Verdicts) -> None:
        """Log a study's verdicts as a separate run (job type 'table'): table, pages, each row's in the summary."""
        import wandb

        heads, rows, pages = verdicts
        run = self._init(f"table-{self.group}", f"{self.group} verdicts", {"study": self.group}, "table", [])
        columns: list[str | int] = [*heads]
        run.log({"verdicts": wandb.Table(columns=columns, data=rows, allow_mixed_types=True)})
        for row in rows:
            fields = dict(zip(heads, row, strict=True))
            for key in SUMMARISED:
                if fields.get(key) is not None:
                    run.summary[f"{fields['row']}/{key}"] = fields[key]
        run.log({name: wandb.Html(content, inject=False) for name, content in pages.items()})
        run.finish()

    def _follow(self, folder: RunFolder, cell: Cell) -> None:
        record = read_record(folder.result)
        result = record if isinstance(record, RunRecord) else None
        curve = self._curves.setdefault(folder.training_hash, Curve(folder.metrics)).look()
        curve = Curve.of(folder.path, result) if result else curve
        records = [r for r in curve.lines if r["step"] > 0]
        if not records and result is None:
            return
        sent_before = read_json(folder.path / SENT) or []
        if f"{self.mode} {self._id(folder)}" in sent_before:
            rows = [
                key.removeprefix(self._as(folder, "")) for key in sent_before if key.startswith(self._as(folder, ""))
            ]
            if rows and rows[-1] != cell.row:
                self._rename(folder, cell)
            self._closed.add(folder.training_hash)
            return
        run = self._run(folder, cell, records)
        sent = self._sent[run.id]
        fresh = [r for r in records if r["step"] not in sent]
        if fresh and result is None:  # the newest step may still get its second record
            fresh = [r for r in fresh if r["step"] < records[-1]["step"]]
        for step in sorted({r["step"] for r in fresh}):
            values = {CURVES[k]: v for r in fresh if r["step"] == step for k, v in r.items() if k in CURVES}
            run.log({STEP: step, **values})
            sent.add(step)
        if result is not None:
            if curve.words:
                print(f"{cell.row} seed {cell.seed}: {curve.words}", file=sys.stderr)
            self._end(folder, cell, run, result)

    def _run(self, folder: RunFolder, cell: Cell, records: list[dict[str, Any]]) -> Any:
        if folder.training_hash not in self._open:
            run = self._init_run(folder, cell)
            run.define_metric(STEP)
            for name in [*CURVES.values(), f"dev/{OF_TEXT.name}"]:
                run.define_metric(name, step_metric=STEP)
            self._open[folder.training_hash] = run
            last = run.summary.get(STEP) if self.mode == "online" else read_json(self._closed_note(run))
            self._sent[run.id] = {r["step"] for r in records if last is not None and r["step"] <= last}
        return self._open[folder.training_hash]

    def _init_run(self, folder: RunFolder, cell: Cell) -> Any:
        config = read_json(folder.experiment) or {}
        config |= {"row": cell.row, "seed": cell.seed, "identity": folder.training_hash, "study": self.group}
        return self._init(self._id(folder), f"{cell.row} seed {cell.seed}", config, "train", [cell.row[:TAG]])

    def _rename(self, folder: RunFolder, cell: Cell) -> None:
        """Tell W&B the present name of a row whose run it has."""
        run = self._init_run(folder, cell)
        run.config.update({"row": cell.row}, allow_val_change=True)
        run.summary["row"] = cell.row
        run.finish()
        self._note_sent(folder, self._as(folder, cell.row))

    def _as(self, folder: RunFolder, row: str) -> str:
        return f"{self.mode} {self._id(folder)} as {self.group}/{row}"

    def _note_sent(self, folder: RunFolder, *keys: str) -> None:
        write_atomic(folder.path / SENT, to_json([*(read_json(folder.path / SENT) or []), *keys]))

    def _init(self, id: str, name: str, config: dict[str, Any], job: str, tags: list[str]) -> Any:
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lightning_tfm"),
            id=id,
            name=name,
            group=self.group,
            job_type=job,
            tags=tags,
            config=config,
            dir=str(self.folder.resolve()),  # a service that is already running may be in another directory
            mode=self.mode,
            resume="allow",
            reinit="create_new",
            settings=quiet,
        )

    def _id(self, folder: RunFolder) -> str:
        """Our identity, but under a W&B agent the id that it has chosen."""
        if "WANDB_SWEEP_ID" in os.environ and "WANDB_RUN_ID" in os.environ:
            return os.environ["WANDB_RUN_ID"]
        return folder.training_hash[:16]

    def _finish(self, run: Any) -> None:
        """End a run, and note what is in its file."""
        run.finish()
        if self.mode == "offline" and self._sent[run.id]:
            write_atomic(self._closed_note(run), to_json(max(self._sent[run.id])))

    def _closed_note(self, run: Any) -> Path:
        """Beside W&B's offline files: the last step that is in those of a run."""
        return self.folder / "wandb" / f"closed-{run.id}.json"

    def _end(self, folder: RunFolder, cell: Cell, run: Any, result: RunRecord) -> None:
        import wandb

        plain = to_plain(result)
        about = {"row": cell.row, "seed": cell.seed, "study": self.group, "identity": folder.training_hash}
        about |= {key: plain[key] for key in ("flops", "target_tokens", "tokens_per_second")}
        for key, value in about.items():
            run.summary[key] = value
        every = ((name, numbers(score)) for name, score in result.scores.items())
        scores = {f"{name}/{key}": infinite_as_text(value) for name, values in every for key, value in values.items()}
        run.log({STEP: result.steps, **scores})
        for key in ("parameters", "seconds", "attempts"):
            run.summary[key] = plain[key]
        for name, score in result.scores.items():
            text = folder.scores(score.evaluation_hash) / f"{score.split}.hyp.txt"
            if text.is_file():
                lines = text.read_bytes().decode().split("\n")[:-1]  # some translations hold other line ends
                table = wandb.Table(columns=["line", "translation"], data=[[i, x] for i, x in enumerate(lines)])
                run.log({f"{name}/translations": table})
        self._finish(run)
        self._note_sent(folder, f"{self.mode} {run.id}", self._as(folder, cell.row))
        del self._open[folder.training_hash]
        self._closed.add(folder.training_hash)


def replay(
    folder: Path, mode: Mode, group: str, root: Path, cells: list[Cell], verdicts: Verdicts | None = None
) -> None:
    """Send what W&B does not have yet of finished and unfinished runs, and a table's verdicts. Raises UserError."""
    import wandb

    mirror = Mirror(folder, mode, group)
    try:
        mirror.look(root, cells)
        mirror.close()
        if verdicts is not None:
            mirror.verdicts(verdicts)
    except (wandb.Error, OSError) as error:
        raise UserError(f"W&B: {error}; what has arrived is kept, the same command sends the rest") from error


def send_verdicts(folder: Path, mode: Mode, group: str, verdicts: Verdicts, say: Callable[[str], None]) -> None:
    """Send a study's verdicts at its end, from a separate process: trouble is reported, and harms nothing."""
    mirror = Mirror(folder, mode, group)
    trouble = _end_of(fork(lambda: _in_process(mirror, lambda: mirror.verdicts(verdicts))))
    if trouble:
        again = with_out(f"lightning-tfm wandb replay {group}", folder.parents[1])
        say(f"W&B: the table of verdicts {trouble}{_where(trouble, folder)}; to send it: {again}")


def _in_process(mirror: Mirror, send: Callable[[], None]) -> int:
    """Body of a process that sends, in its own group, with its output in mirror.log; returns the exit code."""
    unblock_signals()
    os.setpgid(0, 0)
    print_into(mirror.folder / "mirror.log")
    try:
        send()
        return 0
    finally:
        for pid in children():  # W&B's service
            os.kill(pid, signal.SIGKILL)


@contextmanager
def mirror_to_wandb(
    mode: Mode | Literal["off"],
    root: Path,
    group: str,
    folder: Path,
    cells: Callable[[], list[Cell]],
    say: Callable[[str], None],
    target: str = "",
) -> Iterator[None]:
    """Mirror the runs of a study while the block runs, from a separate process. `mode` off: do nothing.

    A mirror that died is started again once, when the block ends, and sends what is missing; until then W&B
    shows nothing new. If that also fails, `say` gets the `wandb replay` that sends the rest later: that of `target`,
    or of the study if it is empty.
    """
    if mode == "off":
        yield
        return

    def start() -> int:
        return fork(lambda: _be_mirror(Mirror(folder, mode, group), root, cells))

    pid = start()
    try:
        yield
    finally:
        trouble = _end_of(pid, mirror=True)
        if trouble == DIED:
            trouble = _end_of(start(), mirror=True)
        if trouble:
            again = f"lightning-tfm wandb replay {target or group}"
            later = f"to send what is missing there: {again if target else with_out(again, root)}"
            say(f"W&B: the mirror {trouble}{_where(trouble, folder)}; no run was harmed; {later}")


def _where(trouble: str, folder: Path) -> str:
    """Where a process that died has said why."""
    log = folder / "mirror.log"
    return f", see {log}" if trouble == DIED and log.is_file() else ""


def _end_of(pid: int, mirror: bool = False) -> str:
    """Wait for a process that sends, a mirror until it has read the records once more; returns what went wrong."""
    try:
        if mirror:
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return DIED if status else ""
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return f"did not end within {PATIENCE:g} s and was stopped"
    except (ProcessLookupError, ChildProcessError):  # it died before, and somebody collected it
        return DIED


def _be_mirror(mirror: Mirror, root: Path, cells: Callable[[], list[Cell]]) -> int:
    """Body of the mirror's process: look until SIGTERM arrives, and once after it; returns the exit code."""
    over: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: over.append(number))

    def follow() -> None:
        last = False
        while not last:
            last = bool(over)
            mirror.look(root, cells())
            end = time.monotonic() + LOOK
            while not over and time.monotonic() < end:
                time.sleep(0.05)
        mirror.close()

    return _in_process(mirror, follow)
