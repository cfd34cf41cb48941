"""Seeds that are added between looks (`sweep --seeds auto`): a study's plan, and its progress (looks.json).

report/sequential.py decides what a look finds, and what follows from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.schema import Kept, read_kept
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.study import LOOKS, Ablation, Study
from lightning_tfm.study.study_file import folder_of

FIRST, BUDGET = 5, 8
"""seeds of every row at first, the fewest at which a table has verdicts (report/stats/statistics.py), and at most"""
LATE = (0.1, 0.2, 0.7)
"""shares of the level at the first look, at one in between and at the last"""
NOT_ASKED = "not asked for: closed with fewer seeds"
Options = Mapping[str, int | None]
"""first_seeds, max_seeds, max_runs"""


@dataclass(frozen=True)
class Plan:
    """The looks of a study."""

    sizes: tuple[int, ...]
    """seeds of an open row at each look"""
    shares: tuple[float, ...]
    """of alpha that each look spends"""

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        if not (self.sizes and rising and len(self.sizes) == len(self.shares)):
            raise ValueError(f"no plan of looks: {self.sizes} seeds with {self.shares} of the level")
        if min(self.shares) <= 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ValueError(f"shares of the level must be above 0 and sum to 1, not {self.shares}")

    @property
    def first(self) -> int:
        return self.sizes[0]

    @property
    def budget(self) -> int:
        return self.sizes[-1]


def late(first: int, budget: int) -> Plan:
    """Looks at `first`, at the geometric mean of both (rounded) and at `budget` seeds, with LATE of the level.

    5 and 8: looks at 5, 6, 8. Where the middle one falls on the first, it and its share are the first's; where all
    fall together, the seeds are fixed. Raises UserError.
    """
    _check(first, budget)
    spent: dict[int, float] = {}
    for size, share in zip((first, round((first * budget) ** 0.5), budget), LATE, strict=True):
        spent[size] = spent.get(size, 0.0) + share
    return Plan(tuple(spent), tuple(round(share, 9) for share in spent.values()))


def linear(first: int, budget: int) -> Plan:
    """Looks at `first`, `first` + 1, … `budget` seeds, with shares in proportion to the seeds each adds."""
    _check(first, budget)
    sizes = range(first, budget + 1)
    return Plan(tuple(sizes), tuple((n - m) / budget for n, m in zip(sizes, [0, *sizes], strict=False)))


def _check(first: int, budget: int) -> None:
    if not 2 <= first <= budget:
        raise UserError(f"looks need 2 <= first <= budget, not {first} and {budget}")


@dataclass(frozen=True)
class Look:
    """What was known when a look was taken."""

    seeds: dict[str, list[int]]
    """row -> its finished seeds so far"""


@dataclass(frozen=True)
class Course:
    """A study whose seeds are added between looks, up to the present."""

    plan: Plan
    looks: list[Look]
    asked: dict[str, list[int]] | None
    """row -> all seeds that the next look waits for; None after the last look"""
    seeds: tuple[int, ...] = ()
    """all seeds that the looks may take, in order; empty where an earlier version did not write them down"""

    def why_left_out(self, row: str, seed: int) -> str | None:
        """None if a cell belongs in the report, else why not: the report shows what the last look saw."""
        if self.looks and seed in self.looks[-1].seeds.get(row, []):
            return None
        if self.asked is None or seed not in self.asked.get(row, []):
            return NOT_ASKED
        return "waits for the next interim analysis" if self.looks else None

    def after_look(self, finished: Mapping[str, Sequence[int]]) -> "Course":
        """After one more look at these seeds, with no decision yet about what comes next."""
        wanted = self.asked or {}
        taken = {row: [s for s in seeds if s in finished.get(row, ())] for row, seeds in wanted.items()}
        return replace(self, looks=[*self.looks, Look(taken)], asked=None)


@dataclass(frozen=True)
class _LooksFile(Kept):
    """The content of looks.json."""

    first: int
    budget: int
    looks: list[dict[str, list[int]]]
    asked: dict[str, list[int]] | None
    sizes: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()


def read_looks(folder: Path) -> Course | None:
    """The study's looks, None where its seeds were fixed beforehand. Raises UserError for a broken file."""
    path = folder / LOOKS
    file = read_kept(_LooksFile, path, "a record of looks")
    if file is None:
        return None
    try:  # without shares: started when every seed was a look
        plan = Plan(file.sizes, file.shares) if file.shares else linear(file.first, file.budget)
    except ValueError as error:
        raise UserError(f"{path}: not a record of looks ({error})") from None
    if len(file.looks) > len(plan.sizes) or (not file.looks and file.asked is None):
        raise UserError(f"{path}: {len(file.looks)} looks, the plan has {len(plan.sizes)}")
    return Course(plan, [Look(look) for look in file.looks], file.asked, file.seeds)


def looks_to_json(course: Course) -> dict[str, Any]:
    """The content of looks.json."""
    plan = course.plan
    plain = {"schema": 2, "first": plan.first, "budget": plan.budget, "sizes": plan.sizes, "shares": plan.shares}
    plain |= {"asked": course.asked, "looks": [look.seeds for look in course.looks]}
    return plain | ({"seeds": course.seeds} if course.seeds else {})


def following_seeds(listed: Sequence[int], most: int) -> list[int]:
    """The seeds to take, in order: those of the sweep file, then the numbers after the highest."""
    after = max(listed) + 1
    return [*listed, *range(after, after + most)][:most]


def plan_of(options: Options, before: Course | None, where: Path) -> Plan:
    """As given, or as the study began: p-values are corrected for it. Raises UserError where the two differ."""
    first, most = options["first_seeds"], options["max_seeds"]
    if before is None:
        first = FIRST if first is None else first
        return late(first, max(BUDGET, first) if most is None else most)
    for name, value, fixed in (("first", first, before.plan.first), ("max", most, before.plan.budget)):
        if value not in (None, fixed):
            raise UserError(f"--{name}-seeds={value}: {where} began with {fixed}, and p-values are corrected for that")
    return before.plan


def reported_seeds(requested: Ablation, options: Options, root: Path) -> list[int]:
    """All seeds that the looks may take. Raises UserError as `plan_of`."""
    folder = folder_of(root, requested.name)
    return following_seeds(requested.seeds, plan_of(options, read_looks(folder), folder / LOOKS).budget)


def seeds_of(course: Course, study: Ablation, where: Path) -> list[int]:
    """All seeds that a study's looks may take. Raises UserError where an earlier version did not write them down, and
    they cannot be told from those taken."""
    taken = study.seeds
    if not course.seeds and taken != list(range(taken[0], taken[0] + len(taken))):
        raise UserError(f"{where / LOOKS}: says not which seeds follow {taken[-1]}: type the sweep's command again")
    return list(course.seeds) or following_seeds(taken, course.plan.budget)


def planned_cells(study: Study, root: Path) -> list[Cell]:
    """The cells that are known beforehand; where seeds are added by looks, those requested. Raises UserError.

    A row that is closed early gets fewer seeds than others.
    """
    course = read_looks(folder_of(root, study.name)) if isinstance(study, Ablation) else None
    return [cell for cell in study.cells() if course is None or course.why_left_out(cell.row, cell.seed) != NOT_ASKED]


def check_fixed(name: str, root: Path) -> None:
    """Raise UserError where a study's seeds are added by looks."""
    folder = folder_of(root, name)
    if read_looks(folder) is not None:
        raise UserError(
            f"{folder}: this study's seeds are added to undecided rows, and its p-values are corrected for that: "
            "continue with --seeds auto, or give this one its own name with --name"
        )
