"""The studies of a results folder, one line each, as queues, runs and looks together show them. Writes nothing."""

from dataclasses import dataclass
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.queue.storages.open import has_queue, open_queue
from lightning_tfm.study.sequential import planned_cells
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.study.study_file import folder_of, load
from lightning_tfm.watch.run_state import Runs
from lightning_tfm.watch.study_state import CellState, StudyState, Watch


def state_without_queue(study: Study, root: Path, runs: Runs) -> StudyState | None:
    """A table that came without a queue, as shown by its `runs`; None where none of them is finished."""
    cells = planned_cells(study, root) if isinstance(study, Ablation) else []
    state = Watch(root, study=study, runs=runs).look([CellState(cell) for cell in cells])
    return state if state.counts["finished"] else None


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
    """when any of it was last written; seconds since 1970"""
    trouble: str
    """why it cannot be read, or its storage cannot be reached"""
    state: str
    """StudyState.state, or unknown"""


def list_studies(root: Path) -> list[StudyInfo]:
    """All studies below `root`, the newest last. One that cannot be read says why."""
    runs = Runs(root, curves=False)  # whose curves no line shows
    studies = [_info(root, path.parent.name, runs) for path in (root / "studies").glob("*/study.json")]
    return sorted(studies, key=lambda info: (info.time, info.name))


def _info(root: Path, name: str, runs: Runs) -> StudyInfo:
    folder = folder_of(root, name)
    kind, counts, whole, trouble, state = "", dict[str, int](), 0, "", "waiting"
    try:
        study = load(root, name)
        kind, whole = study.KIND, study.budget or len(planned_cells(study, root))
        if has_queue(root, name):
            states = open_queue(root, name, say=lambda text: None).states()
            looked = Watch(root, study=study, runs=runs).look(states) if states else None
        else:
            looked = state_without_queue(study, root, runs)
        if looked is not None:
            counts = {word: number for word, number in looked.counts.items() if number}
            whole = max(whole, len(looked.cells)) if not study.budget else whole
            state = "interrupted" if looked.state == "finished" and looked.ended < whole else looked.state
    except UserError as error:
        trouble, state = str(error), "unknown"
    except Exception as error:  # a database that is away, a journal of another program: the other studies are listed
        trouble, state = f"{type(error).__name__}: {error}", "unknown"
    written = max(path.stat().st_mtime for path in folder.iterdir() if path.is_file())
    return StudyInfo(name, kind, counts, whole, written, trouble, state)
