"""Seeds spent where the verdict is still open, and the correction that repeated (interim) looks require.

At look k every open row, and base, has n_k seeds. The level alpha is spent in shares that sum to one (alpha spending,
Lan and DeMets 1983, added up by Bonferroni); at each look the rows and the claims are corrected at its share. A row
found at any look stays found, so the chance of any false verdict is at most the sum of the shares, whatever stops when
(Maurer and Bretz 2013, for the closed procedure of which Holm at each look is a shortcut). Fixed seeds are the case of
one look.

Most of the level is kept for the last look, for few seeds find little at any level: `late` looks at the first seeds,
once in between and at all seeds, with 0.1, 0.2 and 0.7 of the level. Studies begun before these shares keep theirs
(`linear`): a look at every seed, with shares in proportion to the seeds it adds (Kim and DeMets 1987).

A row gets no more seeds where its verdict in perplexity, the primary metric, is known and the claims about it need none
from it, or where it is hopeless: the chance that the last look decides it, predicted from this one and at the most
favourable level, is below `HOPELESS`. Closing rows early can only make findings fewer, true ones and false ones alike.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.report.statistics import LEAST
from lightning_tfm.report.summary import Difference, Summary, SummaryRow
from lightning_tfm.report.verdict import DIVERGED, OPEN, Evidence
from lightning_tfm.study.study import LOOKS

FILE = LOOKS


FIRST, BUDGET = LEAST, 8
"""seeds at the first look and at the last, where nothing else is asked for"""
LATE = (0.1, 0.2, 0.7)
HOPELESS = 0.05


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


def late(first: int = FIRST, budget: int = BUDGET) -> Plan:
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


def open_rows(summary: Summary) -> list[str]:
    """Rows that more seeds could still decide."""
    found = waiting(summary)
    return [row.name for row in summary.rows if row.name in found and not _hopeless(row)]


def hopeless_rows(summary: Summary) -> list[str]:
    """Rows that are closed without a verdict."""
    found = waiting(summary)
    return [row.name for row in summary.rows if row.name in found and _hopeless(row)]


def waiting(summary: Summary) -> set[str]:
    """Rows without a verdict in perplexity, and those of an undecided claim that do not hold by Holm's p yet."""
    about = {finding.row for claim in summary.claims if claim.verdict in OPEN for finding in claim.findings}
    rows = [(row.name, row.primary) for row in summary.rows]
    return {name for name, found in rows if found and _waits(found, name in about, summary.alpha)}


def _waits(difference: Difference, claimed: bool, alpha: float) -> bool:
    p = difference.holm
    if difference.verdict == DIVERGED:
        return False
    return difference.verdict in OPEN or (claimed and (p is None or not p < alpha))


def _hopeless(row: SummaryRow) -> bool:
    found = row.primary
    return found is not None and found.prospect is not None and found.prospect < HOPELESS


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

    def shown(self, row: str, seed: int) -> str | None:
        """None where a cell belongs in the report, else why not: the report shows what the last look saw."""
        if self.looks and seed in self.looks[-1].seeds.get(row, []):
            return None
        if self.asked is None or seed not in self.asked.get(row, []):
            return NOT_ASKED
        return "waits for the next look" if self.looks else None

    def looked(self, finished: Mapping[str, Sequence[int]]) -> "Course":
        """After one more look at these seeds, which says nothing yet of what comes next."""
        asked = self.asked or {}
        taken = {row: [s for s in seeds if s in finished.get(row, ())] for row, seeds in asked.items()}
        return replace(self, looks=[*self.looks, Look(taken)], asked=None)

    def further(self, summary: Summary, before: Mapping[str, list[int]], pool: Sequence[int]) -> "Course":
        """What the next look waits for: its seeds of `pool` for base and every open row that has finished runs."""
        if len(self.looks) == len(self.plan.sizes):
            return self
        last, base = self.looks[-1].seeds, next(row.name for row in summary.rows if row.base)
        still = {row for row in open_rows(summary) if last[row]} if last[base] else set()
        if not still:
            return self
        size = self.plan.sizes[len(self.looks)]
        asked = {row: list(pool[:size]) if row in still or row == base else seeds for row, seeds in before.items()}
        return replace(self, asked=asked)


NOT_ASKED = "not asked for: closed with fewer seeds"


def read_looks(folder: Path) -> Course | None:
    """The study's looks, None where its seeds were fixed beforehand. Raises UserError for a broken file."""
    path = folder / FILE
    try:
        plain = json.loads(path.read_bytes())
        plan, looks = _plan(plain), [Look(dict(look)) for look in plain["looks"]]
        course = Course(plan, looks, None if plain["asked"] is None else dict(plain["asked"]))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a record of looks ({type(error).__name__}: {error})") from error
    if len(looks) > len(plan.sizes) or (not looks and course.asked is None):
        raise UserError(f"{path}: {len(looks)} looks, the plan has {len(plan.sizes)}")
    return course


def _plan(plain: Mapping[str, Any]) -> Plan:
    if "shares" not in plain:  # begun when every seed was a look
        return linear(plain["first"], plain["budget"])
    return Plan(tuple(plain["sizes"]), tuple(plain["shares"]))


def looks_to_json(course: Course) -> dict[str, Any]:
    """The content of looks.json."""
    plan = course.plan
    plain = {"schema": 2, "first": plan.first, "budget": plan.budget, "sizes": plan.sizes, "shares": plan.shares}
    return plain | {"asked": course.asked, "looks": [look.seeds for look in course.looks]}


P_VALUES = ("p", "holm", "equivalent", "half")


def over_looks(looks: Sequence[Mapping[tuple[str, str], Evidence]]) -> dict[tuple[str, str], Evidence]:
    """The last look's evidence, with the smallest p of any look (each already divided by its share).

    A look whose estimate had the other sign counts for nothing: a verdict has to agree with the number beside it.
    """
    last = dict(looks[-1])
    for key, found in last.items():
        same = [e for look in looks if (e := look.get(key)) and (e.estimate > 0) == (found.estimate > 0)]
        ps = {name: [p for e in same if (p := getattr(e, name)) == p] for name in P_VALUES}
        last[key] = replace(found, **{name: min(values) for name, values in ps.items() if values})
    return last
