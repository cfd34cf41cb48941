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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import locked, to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.judging.scores import Aim, Scores
from lightning_tfm.judging.verdicts import JudgedRow, Judgement, judgement_of
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
    """An exit code, and a line of JSON."""

    code: int
    line: dict[str, Any]

    def __str__(self) -> str:
        return json.dumps(self.line, ensure_ascii=False)


def level_shares(looks: Sequence[int]) -> list[float]:
    k = len(looks)
    return [1.0] if k == 1 else [1 - LAST, LAST] if k == 2 else [FIRST, *[(1 - FIRST - LAST) / (k - 2)] * (k - 2), LAST]


def parse_looks(text: str) -> list[int]:
    """Raises UserError."""
    looks = [int(n) for n in text.split(",") if n.strip().isdecimal()]
    if len(looks) != len(text.split(",")) or sorted(set(looks)) != looks or looks[0] < LEAST:
        raise UserError(f"--looks {text}: rising numbers of seeds, the first at least {LEAST}: --looks 5,8,12")
    return looks


def answer_of_file(judgement: Judgement, row: str) -> Answer:
    """The table's verdict on a row, corrected over the rows of the file."""
    if row == judgement.base:
        raise UserError(f"--gate {row}: that is what the rows are compared with; name one of the others")
    judged = judgement.of(row)
    return Answer(CODES[judged.verdict], _line(judgement, judged))  # type: ignore[index]


def _line(judgement: Judgement, row: JudgedRow) -> dict[str, Any]:
    e = row.evidence
    numbers = {k: getattr(e, k) for k in ("estimate", "lower", "upper", "p", "needed")} if e else {}
    finite = {k: float(v) if math.isfinite(v) else None for k, v in numbers.items()}
    line = {"row": row.row, "base": judgement.base or judgement.target, "metric": row.metric, "verdict": row.verdict}
    line |= {"why": row.why, "n": row.n, "seeds missing": row.missing, "difference": finite.pop("estimate", None)}
    line |= {"seeds needed" if k == "needed" else k: v for k, v in finite.items()}
    return line | ({"warning": f"{judgement.alone}; {CHEAPEST}"} if judgement.alone else {})


@contextmanager
def ledger_at(path: Path) -> Iterator[dict[str, Any]]:
    """What a file keeps from one call to the next, empty where there is none; under a lock, and written anew where the
    block changed it. Raises UserError where it was edited."""
    with locked(path.with_name(f"{path.name}.lock")):
        content: dict[str, Any] = {}
        if path.exists():
            try:
                content = json.loads(path.read_bytes())
                whole = content.pop("checksum") == _digest(content)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                whole = False
            if not whole:
                raise UserError(f"{path}: was edited or damaged; what was spent is not known any more. Restore it")
        before = _digest(content)
        yield content
        if (digest := _digest(content)) != before:
            write_atomic(path, to_json(content | {"checksum": digest}))


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
        beside, family = beside.resolve(), self.family and self.family.resolve()
        path = beside.with_name(f"{beside.name}.gate.json")
        nothing_declared = not self.looks and family is None and not path.exists()
        if self.row not in self.scores.runs or self.row == self.base or nothing_declared:
            return self._answer_of_file()
        if family in (beside, path):
            raise UserError(f"--family {self.family}: holds the scores or their looks; name a file of its own")
        if family is not None and not family.parent.is_dir():
            raise UserError(f"--family {self.family}: there is no folder {family.parent}")
        with ledger_at(path) as ledger:
            if family is not None:
                with ledger_at(family) as content:
                    return self._answer_in_family(family, content, ledger)
            declared = ledger.get("looks", {})
            if not self.looks and self._key not in declared:
                return self._answer_of_file()
            new = {"looks": list(self.looks), "level": ALPHA, "found": {}}
            return self._answer_of_looks(ledger.setdefault("looks", {}).setdefault(self._key, new))

    def _answer_of_file(self) -> Answer:
        return answer_of_file(judgement_of(self.scores, self.aims[:1], self.base), self.row)

    @property
    def _key(self) -> str:
        return json.dumps([self.row, self.base, self.aims[0].name])

    def _seeds(self, row: str) -> int:
        return len(self.scores.of(row, self.aims[0].name))

    def _answer_of_looks(self, test: dict[str, Any]) -> Answer:
        """The smallest p of all looks that the seeds allow, each over its share of the level."""
        once, looks = self.family is not None and not self.looks, test["looks"]
        if not once and looks != list(self.looks):
            before, now = (",".join(map(str, n)) or "none" for n in (looks, self.looks))
            raise UserError(
                f"--looks: {before} was declared for '{self.row}', {now} was not; looks cannot be added later"
            )
        if (before := test.setdefault("aim", self.aims[0].written)) != (now := self.aims[0].written):
            raise UserError(f"--metric: '{self.row}' was declared with {before}, not {now}; its looks are of that one")
        have, of_base = self._seeds(self.row), self._seeds(self.base)
        have = have if once else min(have, of_base)
        line: dict[str, Any] = {"row": self.row, "base": self.base, "metric": self.aims[0].name}
        line |= {"verdict": Verdict.UNTESTABLE, "n": have}
        best: dict[str, Any] = {"p": 1.0, "code": WAIT, "line": line}
        for n, share in zip(looks, level_shares(looks), strict=True):
            if n <= have:
                look = self._look(test, n, share, of_base if once else n)
                if look["p"] <= best["p"] or look["line"]["verdict"] == Verdict.DIVERGED:
                    best = look
        following = next((n for n in looks if n > have), None)
        missing = following - have if following else 0
        return Answer(best["code"], best["line"] | {"next look": following, "seeds missing": missing})

    def _look(self, test: dict[str, Any], n: int, share: float, of_base: int) -> dict[str, Any]:
        """Taken once; taken before, as it was. Raises UserError where its scores have changed."""
        look = test["found"].get(str(n))
        of_base = look["seeds of base"] if look else of_base
        first = _first(self.scores, self.aims[0].name, n, {self.base: of_base})
        digest = _digest([first.of(row, self.aims[0].name) for row in (self.row, self.base)])
        if look is None:
            result = self._test_result(first, share, test["level"])
            look = test["found"][str(n)] = {"digest": digest, "seeds of base": of_base, **result}
        if look["digest"] != digest:
            raise UserError(
                f"{self.scores.source}: the first {n} seeds of '{self.row}' or '{self.base}' have changed since"
            )
        return look

    def _test_result(self, scores: Scores, share: float, level: float) -> dict[str, Any]:
        """{p, code, line}; outside a family p is corrected over the rows of the file, and level is ALPHA."""
        judgement = judgement_of(scores, self.aims[:1], self.base, share=share)
        row = judgement.of(self.row)
        line, e, verdict = _line(judgement, row), row.evidence, row.verdict
        p = 1.0 if line.get("p") is None else line["p"]
        if self.family is not None and e is not None and not math.isnan(e.p):
            p = min(float(e.below(0.0) if self.aims[0].lower_is_better else e.above(0.0)) / share, 1.0)
            verdict = Verdict.BETTER if p <= level else Verdict.UNDECIDED if verdict == Verdict.BETTER else verdict
            line |= {"verdict": verdict, "p": p, "level": level}
            if verdict == Verdict.UNDECIDED:
                line["why"] = f"one-sided p {p:.2g}, above this candidate's level {level:.2g}"
        return {"p": p, "code": CODES[verdict], "line": line}  # type: ignore[index]

    def _answer_in_family(self, path: Path, content: dict[str, Any], ledger: dict[str, Any]) -> Answer:
        """`content`: of the family's file; `ledger`: what the scores' folder keeps, the candidates that each family is
        known to have."""
        tested = content.get("tested", [])
        before = ledger.get("families", {}).get(str(path), [])
        if before and [test["key"] for test in tested[: len(before)]] != before:
            what = "has fewer candidates than this gate tested" if content else "is lost"
            raise UserError(f"{path}: {what}; what they spent is not known any more. Restore it")
        most = content.get("candidates", self.candidates or CANDIDATES)
        if self.candidates not in (None, most):
            raise UserError(f"{path}: was begun for {most} candidates, not {self.candidates}")
        test, have = next((test for test in tested if test["key"] == self._key), None), self._seeds(self.row)
        if test is None:
            if min(have, self._seeds(self.base)) < (self.looks[0] if self.looks else LEAST):
                few = {"looks": list(self.looks)}
                return self._answer_of_looks(few) if self.looks else self._answer_of_file()  # nothing is spent
            if len(tested) == most:
                raise UserError(f"{path}: all of its {plural(most, 'candidate')} were tested; begin another family")
            level = ALPHA / most * max(1, sum(test["kept"] for test in tested))
            test = {"key": self._key, "level": level, "looks": list(self.looks) or [have], "kept": False, "found": {}}
            tested.append(test)
        if not self.looks and test["looks"] != [have]:
            raise UserError(
                f"{path}: '{self.row}' was tested at {test['looks'][0]} seeds, and has {have} now; to test a candidate "
                f"again, declare its looks beforehand: --looks {test['looks'][0]},{have}"
            )
        answer = self._answer_of_looks(test)
        test["kept"] = test["kept"] or answer.code == KEEP
        content |= {"rule": "LOND", "level": ALPHA, "candidates": most, "tested": tested}
        ledger.setdefault("families", {})[str(path)] = [test["key"] for test in tested]
        place = {"candidate": tested.index(test) + 1, "of": most, "level": test["level"]}
        return Answer(answer.code, answer.line | place)


def _first(scores: Scores, metric: str, n: int, more: Mapping[str, int]) -> Scores:
    """The first n seeds of every row, in their order; `more`: of some rows another number."""
    firsts = {row: dict(islice(scores.of(row, metric).items(), more.get(row, n))) for row in scores.runs}
    runs = {row: {seed: {metric: x} for seed, x in of.items()} for row, of in firsts.items()}
    return Scores(scores.source, runs)
