"""W&B's face of our records: a process of its own reads the run folders and logs what it finds.

Training never touches W&B: no rank opens a run, and no trouble there reaches a run. Whatever was not sent, because W&B
was off, broken or killed, is sent later by `replay`: the records on disk are the truth.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_tfm.study.claim import Cell
from lightning_tfm.study.files import to_json, write_atomic
from lightning_tfm.study.folder import RunFolder, read_json
from lightning_tfm.study.processes import die_with_parent

LOOK = 1.0
"""seconds between two looks at the records"""
PATIENCE = 60.0
"""seconds that the mirror gets for what is left when the study has ended"""
NAMES = {"dev_ppl": "dev/ppl", "dev_nll": "dev/nll", "loss": "train/loss", "nll": "train/nll", "lr": "train/lr"}
NAMES |= {"target_tokens": "train/target_tokens", "seconds": "train/seconds"}
STEP = "optimizer_step"
SENT = "wandb.json"
"""file of a run's folder: the last step that was sent, by mode and W&B run id"""
WHOLE = -1
"""instead of a step, where the final scores were sent too"""


@dataclass
class Mirror:
    """Logs runs to W&B. `mode` is offline or online; offline files lie in `folder`/wandb."""

    folder: Path
    mode: str
    group: str
    _open: dict[str, Any] = field(default_factory=dict)
    _sent: dict[str, int] = field(default_factory=dict)
    _closed: set[str] = field(default_factory=set)

    def look(self, root: Path, cells: list[Cell]) -> None:
        """Send what is new of each run; end those that are finished."""
        for cell in cells:
            if cell.training_hash not in self._closed:
                self._follow(RunFolder(root, cell.training_hash), cell)

    def close(self) -> None:
        """End the runs that are still open; they may go on later."""
        for run in self._open.values():
            run.finish()
        self._open.clear()

    def table(self, path: Path) -> None:
        """Log a study's table, from its table.csv, as a run of its own (job type 'table')."""
        import csv

        import wandb

        if not path.is_file():
            return
        head, *rows = csv.reader(path.read_text().splitlines())
        run = self._init(f"table-{self.group}", f"{self.group} table", {}, "table", [])
        run.log({"table": wandb.Table(columns=head, data=rows)})
        run.finish()

    def _follow(self, folder: RunFolder, cell: Cell) -> None:
        records = [r for r in folder.read_metrics() if r["step"] > 0]
        result = folder.read_result()
        if not records and result is None:
            return
        if self._known(folder, self._id(folder)) == WHOLE:
            self._closed.add(folder.training_hash)
            return
        run = self._run(folder, cell)
        id = run.id
        sent = self._sent[id]
        fresh = [r for r in records if r["step"] > sent]
        if fresh and result is None:  # the newest step may still get its second record
            fresh = [r for r in fresh if r["step"] < records[-1]["step"]]
        for step in sorted({r["step"] for r in fresh}):
            values = {NAMES[k]: v for r in fresh if r["step"] == step for k, v in r.items() if k in NAMES}
            run.log({STEP: step, **values})
            self._sent[id] = step
        if fresh:
            self._remember(folder, id)
        if result is not None:
            self._end(folder, run, result)

    def _run(self, folder: RunFolder, cell: Cell) -> Any:
        if folder.training_hash not in self._open:
            config = read_json(folder.experiment) or {}
            config |= {"row": cell.row, "seed": cell.seed, "identity": folder.training_hash, "study": self.group}
            run = self._init(self._id(folder), f"{cell.row} seed {cell.seed}", config, "train", [cell.row])
            run.define_metric(STEP)
            for name in [*NAMES.values(), "dev/bleu"]:
                run.define_metric(name, step_metric=STEP)
            self._open[folder.training_hash] = run
            self._sent[run.id] = self._known(folder, run.id)
        return self._open[folder.training_hash]

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
            dir=str(self.folder),
            mode=self.mode,
            resume="allow",
            reinit="create_new",
            settings=quiet,
        )

    def _id(self, folder: RunFolder) -> str:
        """Our identity, but under an agent of W&B the id that it has chosen."""
        if "WANDB_SWEEP_ID" in os.environ and "WANDB_RUN_ID" in os.environ:
            return os.environ["WANDB_RUN_ID"]
        return folder.training_hash[:16]

    def _known(self, folder: RunFolder, id: str) -> int:
        """Last step that was sent, 0 for none."""
        known = read_json(folder.path / SENT) or {}
        return known[self._key(id)] if self._key(id) in known else 0

    def _key(self, id: str) -> str:
        return f"{self.mode} {id}"

    def _remember(self, folder: RunFolder, id: str) -> None:
        known = read_json(folder.path / SENT) or {}
        write_atomic(folder.path / SENT, to_json(known | {self._key(id): self._sent[id]}))

    def _end(self, folder: RunFolder, run: Any, result: dict[str, Any]) -> None:
        import wandb

        scores = {f"{name}/{key}": s[key] for name, s in result["scores"].items() for key in ("ppl", "bleu")}
        run.log({STEP: result["steps"], **scores})
        for key in ("parameters", "seconds", "attempts"):
            run.summary[key] = result[key]
        for name, score in result["scores"].items():
            text = folder.scores(score["evaluation_hash"]) / f"{score['split']}.hyp.txt"
            if text.is_file():
                lines = text.read_text().splitlines()
                table = wandb.Table(columns=["line", "translation"], data=[[i, x] for i, x in enumerate(lines)])
                run.log({f"{name}/translations": table})
        run.finish()
        self._sent[run.id] = WHOLE
        self._remember(folder, run.id)
        del self._open[folder.training_hash]
        self._closed.add(folder.training_hash)


@contextmanager
def mirrored(
    mode: str, root: Path, group: str, folder: Path, cells: Callable[[], list[Cell]], say: Callable[[str], None]
) -> Iterator[None]:
    """Mirror the runs of a study while the block runs, from a process of its own. `mode` off: do nothing."""
    if mode == "off":
        yield
        return
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_mirror(parent, Mirror(folder, mode, group), root, cells)
    try:
        yield
    finally:
        _end_mirror(pid, group, say)


def _end_mirror(pid: int, group: str, say: Callable[[str], None]) -> None:
    later = f"what is missing there: lightning-tfm wandb replay {group}"
    try:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                if status:
                    say(
                        f"W&B: the mirror ended early ({os.waitstatus_to_exitcode(status)}); no run was harmed; {later}"
                    )
                return
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        say(f"W&B: the mirror did not end within {PATIENCE:g} s and was stopped; {later}")
    except (ProcessLookupError, ChildProcessError):  # it died before, and somebody collected it
        say(f"W&B: the mirror was gone; no run was harmed; {later}")


def _be_mirror(parent: int, mirror: Mirror, root: Path, cells: Callable[[], list[Cell]]) -> None:
    code, over = 1, []
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, frame: over.append(number))
        os.setpgid(0, 0)
        die_with_parent(parent)
        mirror.folder.mkdir(parents=True, exist_ok=True)
        log = os.open(mirror.folder / "mirror.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for stream in (1, 2):
            os.dup2(log, stream)
        while True:
            last = bool(over)
            mirror.look(root, cells())
            if last:
                break
            end = time.monotonic() + LOOK
            while not over and time.monotonic() < end:
                time.sleep(0.05)
        mirror.close()
        code = 0
    except BaseException:  # the last stop before _exit
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
