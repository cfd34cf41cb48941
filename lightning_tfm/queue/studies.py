"""The studies of a results folder, each in a line."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.queue.open import has_queue, open_queue
from lightning_tfm.queue.progress import said
from lightning_tfm.study.study import folder_of, load


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
    found = [_info(root, path.parent.name) for path in (root / "studies").glob("*/study.json")]
    return sorted(found, key=lambda info: (info.time, info.name))


def _info(root: Path, name: str) -> StudyInfo:
    folder = folder_of(root, name)
    kind, counts, whole, trouble = "", Counter[str](), 0, ""
    try:
        study = load(root, name)
        kind, whole = study.KIND, study.budget or len(study.cells())
        if has_queue(root, name):
            states = open_queue(root, name, say=lambda text: None).states()
            counts = Counter(said(state.state) for state in states)
            whole = max(whole, len(states)) if not study.budget else whole
    except UserError as error:
        trouble = str(error)
    except Exception as error:  # a database that is away, a journal of another program: the other studies are listed
        trouble = f"{type(error).__name__}: {error}"
    written = max(path.stat().st_mtime for path in folder.iterdir() if path.is_file())
    return StudyInfo(name, kind, dict(counts), whole, written, trouble)


def studies_text(found: list[StudyInfo], root: Path) -> str:
    """As a table."""
    if not found:
        return f"no studies in {root / 'studies'}; begin one with: lightning-tfm sweep sweeps/table3.yaml"
    width = max(5, *(len(info.name) for info in found))
    lines = [f"{'study':{width}}  {'kind':6}  {'runs':>11}  {'state':11}  {'last written':16}"]
    for info in found:
        runs = f"{info.counts.get('finished', 0)} of {info.whole}"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.time))
        others = [f"{info.counts[word]} {word}" for word in ("stopped early", "failed") if info.counts.get(word)]
        more = "  " + (info.trouble.splitlines()[0] if info.trouble else ", ".join(others))
        lines.append(f"{info.name:{width}}  {info.kind:6}  {runs:>11}  {info.state:11}  {when}{more}".rstrip())
    return "\n".join(lines)
