"""An interim look at a study whose seeds are added where a verdict is open (`sweep --seeds auto`)."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.report.build_summary import summarise
from lightning_tfm.report.records import collect_seen, read_cells
from lightning_tfm.report.sequential import further, hopeless_rows, open_rows
from lightning_tfm.study.sequential import Course
from lightning_tfm.study.study import Ablation


def look(course: Course, study: Ablation, root: Path, seeds: Sequence[int]) -> tuple[Course, str]:
    """Look at the requested runs: the course with the next request, and what is still open, in words."""
    assert course.asked is not None, "there is something to look at"
    wanted = course.asked
    cells = read_cells(study, root, collect_seen(study, root, course.looked(wanted)))
    finished = {row: [seed for seed in taken if (row, seed) in cells.filled] for row, taken in wanted.items()}
    course = course.looked(finished)
    summary = summarise(cells, course=course)
    course = further(course, summary, wanted, seeds)
    still, hopeless = open_rows(summary), hopeless_rows(summary)
    more = f"; next: {max(map(len, course.asked.values()))} seeds of each" if course.asked else ""
    said = f"undecided: {', '.join(still)}{more}" if still else "no row is undecided"
    said += f"; dropped for futility: {', '.join(hopeless)}" if hopeless else ""
    return course, f"interim analysis {len(course.looks)} of at most {len(course.plan.sizes)}; {said}"
