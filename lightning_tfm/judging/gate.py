"""One row's verdict for a program: an exit code and one line of JSON.

`--looks 5,8,12` declares beforehand at how many seeds one looks: the level is shared as `sweep --seeds auto` shares it
(0.1, 0.2, 0.7), a look reads the first seeds in their order, and what it found is kept beside the scores, so that
looking again spends nothing. A row found at any look stays found.

`--family FILE`: a stream of candidates, one after the other, has one error budget: LOND (Javanmard and Montanari 2015;
under positive dependence, as of candidates that share base's runs, Zrnic, Ramdas and Jordan 2021). Of `candidates`
announced, the t-th is kept if its one-sided p is at most

    ALPHA / candidates × max(1, kept before it)

which is never below Bonferroni's level. Each candidate is tested once, or at its declared looks, which share its level.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import locked, to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.judging.scores import Aim, Scores
from lightning_tfm.judging.verdicts import Judged, Judgement, judged
from lightning_tfm.plural_words import plural
from lightning_tfm.report.stats.base_alone import CHEAPEST
from lightning_tfm.report.stats.statistics import ALPHA, LEAST
from lightning_tfm.report.wording.verdict_words import OPEN, Verdict

KEEP, WAIT, DISCARD = 0, 3, 4
CODES = {Verdict.BETTER: KEEP, **dict.fromkeys(OPEN, WAIT)}
CODES |= dict.fromkeys((Verdict.WORSE, Verdict.EQUAL, Verdict.DIVERGED), DISCARD)
FIRST, LAST = 0.1, 0.7
"""shares of the level at the first look and at the last of three or more; those in between have the rest"""
CANDIDATES = 200


@dataclass(frozen=True)
class Answer:
    """What the gate says."""

    code: int
    line: dict[str, Any]

    def __str__(self) -> str:
        return json.dumps(self.line, ensure_ascii=False)


def shares(looks: Sequence[int]) -> list[float]:
    """Of the level, for each look."""
    k = len(looks)
    return [1.0] if k == 1 else [1 - LAST, LAST] if k == 2 else [FIRST, *[(1 - FIRST - LAST) / (k - 2)] * (k - 2), LAST]


def looks_of(text: str) -> list[int]:
    """Raises UserError."""
    found = [int(n) for n in text.split(",") if n.strip().isdecimal()]
    if len(found) != len(text.split(",")) or sorted(set(found)) != found or found[0] < LEAST:
        raise UserError(f"--looks {text}: rising numbers of seeds, the first at least {LEAST}: --looks 5,8,12")
    return found


def answer_of_file(judgement: Judgement, row: str) -> Answer:
    """The table's verdict on a row, corrected over the rows of the file."""
    if row == judgement.base:
        raise UserError(f"--gate {row}: that is what the rows are compared with; name one of the others")
    one = judgement.of(row)
    return Answer(CODES[one.verdict], _line(judgement, one))  # type: ignore[index]


def _line(judgement: Judgement, one: Judged) -> dict[str, Any]:
    e = one.evidence
    numbers = {k: getattr(e, k) for k in ("estimate", "lower", "upper", "p", "needed")} if e else {}
    kept = {k: float(v) if math.isfinite(v) else None for k, v in numbers.items()}
    line = {"row": one.row, "base": judgement.base or judgement.target, "metric": one.metric, "verdict": one.verdict}
    line |= {"why": one.why, "n": one.n, "seeds missing": one.missing, "difference": kept.pop("estimate", None)}
    line |= {"seeds needed" if k == "needed" else k: v for k, v in kept.items()}
    return line | ({"warning": f"{judgement.alone}; {CHEAPEST}"} if judgement.alone else {})


@dataclass
class Kept:
    """A file of what was declared and found, which says whether it is as it was left."""

    path: Path
    content: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Kept":
        """Empty where there is none. Raises UserError where it was edited."""
        if not path.exists():
            return cls(path)
        try:
            found = json.loads(path.read_bytes())
            whole = found.pop("checksum") == _digest(found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise UserError(f"{path}: was edited or damaged; what was spent is not known any more. Restore it")
        return cls(path, found)

    def write(self) -> None:
        write_atomic(self.path, to_json(self.content | {"checksum": _digest(self.content)}))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Gate:
    """What one row is asked, with what was declared."""

    scores: Scores
    aims: Sequence[Aim]
    base: str
    row: str
    looks: Sequence[int] = ()
    family: Path | None = None
    candidates: int | None = None
    """of a family that begins; None: CANDIDATES"""

    def answer(self, beside: Path) -> Answer:
        """`beside`: the scores, whose folder keeps what was declared. Raises UserError."""
        declared_in = beside.with_name(f"{beside.name}.gate.json")
        nothing_declared = not self.looks and self.family is None and not declared_in.exists()
        if self.row not in self.scores.runs or self.row == self.base or nothing_declared:
            return self._plain()
        if self.family is not None and not self.family.parent.is_dir():
            raise UserError(f"--family {self.family}: there is no folder {self.family.parent}")
        with locked(beside.with_name(f"{beside.name}.lock")):
            kept = Kept.read(declared_in)
            if self.family is not None:
                with locked(self.family.with_name(f"{self.family.name}.lock")):
                    answer = self._in_family(Kept.read(self.family), kept.content)
            else:
                declared = kept.content.setdefault("looks", {})
                if not self.looks and self._key not in declared:
                    return self._plain()
                test = declared.setdefault(self._key, {"looks": list(self.looks), "level": ALPHA, "found": {}})
                answer = self._answer_of_looks(test, test["looks"])
            kept.write()
        return answer

    def _plain(self) -> Answer:
        return answer_of_file(judged(self.scores, self.aims[:1], self.base), self.row)

    @property
    def _key(self) -> str:
        return json.dumps([self.row, self.base, self.aims[0].name])

    def _seeds(self, row: str) -> int:
        return len(self.scores.of(row, self.aims[0].name))

    def _answer_of_looks(self, test: dict[str, Any], looks: Sequence[int], all_of_base: bool = False) -> Answer:
        """The smallest p of all looks that the seeds allow, each over its share of the level. `all_of_base`: whether a
        look has all of base's seeds, and not as many as the row's."""
        if list(looks) != list(self.looks or looks if all_of_base else self.looks):
            before, now = (",".join(map(str, n)) or "none" for n in (looks, self.looks))
            raise UserError(
                f"--looks: {before} was declared for '{self.row}', {now} was not; looks cannot be added later"
            )
        if (before := test.setdefault("aim", self.aims[0].written)) != (now := self.aims[0].written):
            raise UserError(f"--metric: '{self.row}' was declared with {before}, not {now}; its looks are of that one")
        have = self._seeds(self.row) if all_of_base else min(map(self._seeds, (self.row, self.base)))
        line: dict[str, Any] = {"row": self.row, "base": self.base, "metric": self.aims[0].name}
        line |= {"verdict": Verdict.UNTESTABLE, "n": have}
        best: dict[str, Any] = {"p": 1.0, "code": WAIT, "line": line}
        for n, share in zip(looks, shares(looks), strict=True):
            if n <= have:
                look = self._look(test, n, share, self._seeds(self.base) if all_of_base else n)
                if look["p"] <= best["p"] or look["line"]["verdict"] == Verdict.DIVERGED:
                    best = look
        following = next((n for n in looks if n > have), None)
        missing = following - have if following else 0
        return Answer(best["code"], best["line"] | {"next look": following, "seeds missing": missing})

    def _look(self, test: dict[str, Any], n: int, share: float, of_base: int) -> dict[str, Any]:
        """Taken once; taken before, as it was. Raises UserError where its scores have changed."""
        before = test["found"].get(str(n))
        of_base = before["seeds of base"] if before else of_base
        first = _first(self.scores, n, {self.base: of_base})
        digest = _digest([first.of(row, self.aims[0].name) for row in (self.row, self.base)])
        if before is None:
            tested = self._test_result(first, share, test["level"])
            before = test["found"][str(n)] = {"digest": digest, "seeds of base": of_base, **tested}
        if before["digest"] != digest:
            raise UserError(
                f"{self.scores.source}: the first {n} seeds of '{self.row}' or '{self.base}' have changed since"
            )
        return dict(before)

    def _test_result(self, scores: Scores, share: float, level: float) -> dict[str, Any]:
        """{p, code, line}; outside a family p is corrected over the rows of the file, and level is ALPHA."""
        judgement = judged(scores, self.aims[:1], self.base, share=share)
        one = judgement.of(self.row)
        line, e = _line(judgement, one), one.evidence
        if self.family is None or e is None or math.isnan(e.p):
            return {"p": 1.0 if line.get("p") is None else line["p"], "code": CODES[one.verdict], "line": line}  # type: ignore[index]
        p = min(float(e.below(0.0) if self.aims[0].lower_is_better else e.above(0.0)) / share, 1.0)
        verdict = Verdict.BETTER if p <= level else Verdict.UNDECIDED if one.verdict == Verdict.BETTER else one.verdict
        line |= {"verdict": verdict, "p": p, "level": level}
        if verdict == Verdict.UNDECIDED:
            line["why"] = f"one-sided p {p:.2g}, above this candidate's level {level:.2g}"
        return {"p": p, "code": CODES[verdict], "line": line}  # type: ignore[index]

    def _in_family(self, family: Kept, own: dict[str, Any]) -> Answer:
        """`own`: what the scores' folder keeps, the candidates that a family is known to have."""
        path, content = family.path, family.content
        known, tested = own.setdefault("families", {}), content.get("tested", [])
        before = known.get(str(path.resolve()), [])
        if before and [one["key"] for one in tested[: len(before)]] != before:
            what = "has fewer candidates than this gate tested" if content else "is lost"
            raise UserError(f"{path}: {what}; what they spent is not known any more. Restore it")
        most = content.get("candidates", self.candidates or CANDIDATES)
        if self.candidates not in (None, most):
            raise UserError(f"{path}: was begun for {most} candidates, not {self.candidates}")
        test, have = next((one for one in tested if one["key"] == self._key), None), self._seeds(self.row)
        if test is None:
            if min(have, self._seeds(self.base)) < (self.looks[0] if self.looks else LEAST):
                return self._answer_of_looks({}, self.looks) if self.looks else self._plain()  # nothing is spent
            if len(tested) == most:
                raise UserError(f"{path}: all of its {plural(most, 'candidate')} were tested; begin another family")
            level = ALPHA / most * max(1, sum(one["kept"] for one in tested))
            test = {"key": self._key, "level": level, "looks": list(self.looks) or [have], "kept": False, "found": {}}
            tested.append(test)
        if not self.looks and test["looks"] != [have]:
            raise UserError(
                f"{path}: '{self.row}' was tested at {test['looks'][0]} seeds, and has {have} now; to test a candidate "
                f"again, declare its looks beforehand: --looks {test['looks'][0]},{have}"
            )
        answer = self._answer_of_looks(test, test["looks"], all_of_base=not self.looks)
        test["kept"] = test["kept"] or answer.code == KEEP
        family.content = {"rule": "LOND", "level": ALPHA, "candidates": most, "tested": tested}
        family.write()
        known[str(path.resolve())] = [one["key"] for one in tested]
        place = {"candidate": tested.index(test) + 1, "of": most, "level": test["level"]}
        return Answer(answer.code, answer.line | place)


def _first(scores: Scores, n: int, more: Mapping[str, int]) -> Scores:
    """The first n seeds of every row, in their order; `more`: of some rows another number."""
    names = {metric for run in scores.runs.values() for one in run.values() for metric in one}
    found = Scores(scores.source)
    for row, runs in scores.runs.items():
        for metric in names:
            for seed in list(scores.of(row, metric))[: more.get(row, n)]:
                found.runs.setdefault(row, {}).setdefault(seed, {})[metric] = runs[seed][metric]
    return found
