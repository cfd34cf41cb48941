"""The cells of a study as its queue, its runs and its looks show them together, for `status`; the studies of a results
folder, each in a line. Nothing is written."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.queue.open import has_queue, open_queue
from lightning_tfm.queue.queue import Queue
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.study.looks import asked_cells
from lightning_tfm.study.study import Ablation, Study, folder_of, load
from lightning_tfm.watch.run_state import Runs
from lightning_tfm.watch.study_state import CellState, StudyState, Watch


def states_of(queue: Queue, root: Path) -> list[CellState]:
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


def recorded(study: Study, root: Path, runs: Runs) -> StudyState | None:
    """A table that came without a queue, as its `runs` show it; None where none of them is finished."""
    cells = asked_cells(study, root) if isinstance(study, Ablation) else []
    found = Watch(root, study=study, runs=runs).look([CellState(cell) for cell in cells])
    return found if found.counts["finished"] else None


USUAL = ("finished", "running", "waiting")
"""states that a line does not count by name"""


@dataclass(frozen=True)
class StudyInfo:
    """One line of `status` without a study."""

    name: str
    kind: str
    """table or search; empty where its definition cannot be read"""
    counts: dict[str, int]
    """cells by state, in words"""
    whole: int
    """cells of a table, trials of a search's budget"""
    time: float
    """when something was last written of it; seconds since 1970"""
    trouble: str
    """why it cannot be read, or its storage not be reached"""

    @property
    def state(self) -> str:
        if self.trouble:
            return "unknown"
        if self.counts.get("running"):
            return "running"
        finished = sum(self.counts.get(word, 0) for word in ("finished", "stopped early", "failed"))
        if not self.counts:
            return "not started"
        return "ended" if finished >= self.whole else "interrupted"


def list_studies(root: Path) -> list[StudyInfo]:
    """All studies below `root`, the newest last. One that cannot be read says why."""
    runs = Runs(root, curves=False)  # whose curves no line shows
    found = [_info(root, path.parent.name, runs) for path in (root / "studies").glob("*/study.json")]
    return sorted(found, key=lambda info: (info.time, info.name))


def _info(root: Path, name: str, runs: Runs) -> StudyInfo:
    folder = folder_of(root, name)
    kind, counts, whole, trouble = "", dict[str, int](), 0, ""
    try:
        study = load(root, name)
        kind, whole = study.KIND, study.budget or len(asked_cells(study, root))
        if has_queue(root, name):
            states = states_of(open_queue(root, name, say=lambda text: None), root)
            found = Watch(root, study=study, runs=runs).look(states) if states else None
        else:
            found = recorded(study, root, runs)
        if found is not None:
            counts = {word: number for word, number in found.counts.items() if number}
            whole = max(whole, len(found.cells)) if not study.budget else whole
    except UserError as error:
        trouble = str(error)
    except Exception as error:  # a database that is away, a journal of another program: the other studies are listed
        trouble = f"{type(error).__name__}: {error}"
    written = max(path.stat().st_mtime for path in folder.iterdir() if path.is_file())
    return StudyInfo(name, kind, counts, whole, written, trouble)


def studies_text(found: list[StudyInfo], root: Path) -> str:
    """As a table."""
    if not found:
        return f"no studies in {root / 'studies'}; begin one with: lightning-tfm sweep sweeps/table3.yaml"
    width = max(5, *(len(info.name) for info in found))
    lines = [f"{'study':{width}}  {'kind':6}  {'runs':>11}  {'state':11}  {'last written':16}"]
    for info in found:
        runs = f"{info.counts.get('finished', 0)} of {info.whole}"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.time))
        others = [f"{number} {word}" for word, number in info.counts.items() if word not in USUAL]
        more = "  " + (info.trouble.splitlines()[0] if info.trouble else ", ".join(others))
        lines.append(f"{info.name:{width}}  {info.kind:6}  {runs:>11}  {info.state:11}  {when}{more}".rstrip())
    return "\n".join(lines)
