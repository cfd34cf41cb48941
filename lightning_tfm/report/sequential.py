"""Seeds spent where the verdict is still open, and the correction that looking again and again requires.

At look k every open row, and base, has n_k seeds: `first`, then one more each time, up to `budget`. The level alpha is
spent in shares that sum to one, look k's in proportion to the seeds it adds (alpha spending, Lan and DeMets 1983, with
the linear function of Kim and DeMets 1987, added up by Bonferroni). At each look Holm runs at its share. A row rejected
at any look stays rejected, so the chance of any false verdict is at most the sum of the shares, whatever stops when
(Maurer and Bretz 2013, for the closed procedure that this is a shortcut of). Fixed seeds are the case of one look.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.report.cells import Cells
from lightning_tfm.report.verdict import OPEN, Evidence

FILE = "looks.json"


@dataclass(frozen=True)
class Plan:
    """Looks at `first`, `first` + 1, … `budget` seeds."""

    first: int = 3
    budget: int = 8

    def __post_init__(self) -> None:
        if not 2 <= self.first <= self.budget:
            raise UserError(f"looks need 2 <= first <= budget, not {self.first} and {self.budget}")

    @property
    def sizes(self) -> list[int]:
        """Seeds of an open row at each look."""
        return list(range(self.first, self.budget + 1))

    @property
    def shares(self) -> list[float]:
        """Share of alpha that each look spends."""
        before = [0, *self.sizes[:-1]]
        return [(n - m) / self.budget for n, m in zip(self.sizes, before, strict=True)]


def open_rows(summary: Mapping[str, Any]) -> list[str]:
    """Rows whose word in perplexity, the primary metric, more seeds could still decide."""
    return [row["row"] for row in summary["rows"] if not row["base"] and row["ppl"]["difference"]["verdict"] in OPEN]


@dataclass(frozen=True)
class Look:
    """What was known when a look was taken."""

    seeds: dict[str, list[int]]
    """row -> its finished seeds so far"""


@dataclass(frozen=True)
class Course:
    """A study whose seeds are added while looking, as far as it has come."""

    plan: Plan
    looks: list[Look]
    asked: dict[str, list[int]] | None
    """row -> all seeds that the next look waits for; None after the last look"""

    def shown(self, row: str, seed: int) -> str | None:
        """None where a cell belongs into the report, else why not: the report shows what the last look saw."""
        if self.looks and seed in self.looks[-1].seeds.get(row, []):
            return None
        if self.asked is None or seed not in self.asked.get(row, []):
            return NOT_ASKED
        return "waits for the next look" if self.looks else None

    def looked(self, finished: Mapping[str, Sequence[int]]) -> "Course":
        """After one more look at these seeds, which says nothing yet of what comes next."""
        asked = self.asked or {}
        seen = {row: [s for s in seeds if s in finished.get(row, ())] for row, seeds in asked.items()}
        return replace(self, looks=[*self.looks, Look(seen)], asked=None)

    def further(self, summary: Mapping[str, Any], before: Mapping[str, list[int]], pool: Sequence[int]) -> "Course":
        """What the next look waits for: one more seed of `pool` for base and every open row that has finished runs."""
        if len(self.looks) == len(self.plan.sizes):
            return self
        last, base = self.looks[-1].seeds, next(row["row"] for row in summary["rows"] if row["base"])
        still = {row for row in open_rows(summary) if last[row]} if last[base] else set()
        if not still:
            return self
        size = self.plan.sizes[len(self.looks)]
        asked = {row: list(pool[:size]) if row in still or row == base else seeds for row, seeds in before.items()}
        return replace(self, asked=asked)


NOT_ASKED = "not asked for: decided with fewer seeds"


def read_looks(folder: Path) -> Course | None:
    """The study's looks, None where its seeds were fixed beforehand. Raises UserError for a broken file."""
    path = folder / FILE
    try:
        plain = json.loads(path.read_bytes())
        plan, looks = Plan(plain["first"], plain["budget"]), [Look(dict(look)) for look in plain["looks"]]
        course = Course(plan, looks, None if plain["asked"] is None else dict(plain["asked"]))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not the record of looks ({type(error).__name__}: {error})") from error
    if len(looks) > len(plan.sizes) or (not looks and course.asked is None):
        raise UserError(f"{path}: {len(looks)} looks, the plan has {len(plan.sizes)}")
    return course


def looks_to_json(course: Course) -> dict[str, Any]:
    """The content of looks.json."""
    plain = {"schema": 1, "first": course.plan.first, "budget": course.plan.budget, "asked": course.asked}
    return plain | {"looks": [look.seeds for look in course.looks]}


def restricted(cells: Cells, look: Look) -> Cells:
    """The cells that a look saw."""
    kept = {(row, seed): cell for (row, seed), cell in cells.filled.items() if seed in look.seeds.get(row, [])}
    return replace(cells, filled=kept)


P_VALUES = ("p", "holm", "equivalent", "half")


def over_looks(looks: Sequence[Mapping[tuple[str, str], Evidence]]) -> dict[tuple[str, str], Evidence]:
    """The last look's evidence, with the smallest p of any look (each already divided by its share).

    A look whose estimate had the other sign counts for nothing: a word has to agree with the number beside it.
    """
    last = dict(looks[-1])
    for key, found in last.items():
        same = [e for look in looks if (e := look.get(key)) and (e.estimate > 0) == (found.estimate > 0)]
        ps = {name: [p for e in same if (p := getattr(e, name)) == p] for name in P_VALUES}
        last[key] = replace(found, **{name: min(values) for name, values in ps.items() if values})
    return last
