"""Interim analyses: shares of the level, what is still open, the evidence of all looks; the rounds of --seeds auto."""

import json
import math
from dataclasses import replace

import pytest

from lightning_tfm.atomic_io import to_json
from lightning_tfm.errors import UserError
from lightning_tfm.queue import rounds
from lightning_tfm.queue.launch import MORE
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.report import sequential
from lightning_tfm.report.sequential import evidence_over_looks, next_course, undecided_rows
from lightning_tfm.report.stats.evidence import Evidence
from lightning_tfm.report.stats.statistics import LEAST
from lightning_tfm.report.study_report import look, make
from lightning_tfm.report.wording.claims import ClaimSummary, Finding
from lightning_tfm.study.sequential import (
    BUDGET,
    FIRST,
    Course,
    Look,
    Plan,
    following_seeds,
    late,
    linear,
    looks_to_json,
    read_looks,
    seeds_of,
)
from lightning_tfm.study.study_file import file_of, folder_of
from tests.golden.synthetic import write_looks
from tests.helpers.studies import summary, summary_row


def test_new_studies_keep_most_of_the_level_for_the_last_look():
    assert late(FIRST, BUDGET) == Plan((5, 6, 8), (0.1, 0.2, 0.7)) and FIRST == LEAST
    assert late(3, 8) == Plan((3, 5, 8), (0.1, 0.2, 0.7))
    assert late(3, 20) == Plan((3, 8, 20), (0.1, 0.2, 0.7))
    assert late(2, 3) == Plan((2, 3), (0.3, 0.7))  # nothing lies between
    assert late(5, 5) == Plan((5,), (1.0,))
    for first, budget in ((1, 5), (6, 5)):
        with pytest.raises(UserError):
            late(first, budget)
    for first in range(2, 12):
        for budget in range(first, 40):
            plan = late(first, budget)
            assert (plan.first, plan.budget) == (first, budget) and sum(plan.shares) == pytest.approx(1)


def test_studies_of_before_keep_a_look_at_every_seed_and_its_shares(tmp_path):
    old = {"schema": 1, "first": 3, "budget": 8, "asked": None, "looks": [{"base": [1, 2, 3], "a": [1, 2, 3]}]}
    (tmp_path / "looks.json").write_text(json.dumps(old))
    course = read_looks(tmp_path)
    assert course.plan == linear(3, 8)
    assert course.plan.sizes == (3, 4, 5, 6, 7, 8)
    assert course.plan.shares == pytest.approx([3 / 8] + [1 / 8] * 5)
    (tmp_path / "looks.json").write_bytes(to_json(looks_to_json(course)))  # as the next round writes it
    assert read_looks(tmp_path) == course


@pytest.mark.parametrize(
    "sizes, shares", [((3, 3), (0.5, 0.5)), ((3, 5), (1.0,)), ((3, 5), (0.5, 0.6)), ((3, 5), (0.0, 1.0)), ((), ())]
)
def test_no_plan_spends_more_than_the_level(sizes, shares):
    with pytest.raises(ValueError):
        Plan(sizes, shares)


def test_a_row_rejected_at_any_look_stays_rejected():
    def found(p, estimate=1.0):
        return {("a", "ppl"): Evidence(estimate, 0.2, 5.0, 3, 3, p=p, holm=2 * p, equivalent=p, half=p)}

    kept = evidence_over_looks([found(0.01), found(0.2)])["a", "ppl"]
    assert (kept.p, kept.holm, kept.equivalent, kept.half) == (0.01, 0.02, 0.01, 0.01)
    assert evidence_over_looks([found(math.nan), found(0.2)])["a", "ppl"].p == 0.2
    assert evidence_over_looks([found(0.01, -1.0), found(0.2)])["a", "ppl"].p == 0.2  # it pointed the other way


def test_a_study_with_looks_is_stricter_than_one_with_fixed_seeds(generator):
    """How it is said: tests/golden/made/looks."""
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.2})
    fixed = make("made", made.root).summary
    assert undecided_rows(fixed)[0] == ["A-h4"]
    look = Look({row: [1, 2, 3] for row in ("base", "A-h1", "A-h4")})
    course = Course(linear(3, 6), [look], None)
    write_looks(made, course)
    assert read_looks(made.root / "studies/made") == course
    looked = make("made", made.root).summary
    before, after = (s.rows[1].ppl.difference for s in (fixed, looked))
    assert after.p == pytest.approx(2 * before.p)
    assert after.upper - after.lower > before.upper - before.lower
    assert looked.interval_level == pytest.approx(0.975)


def test_a_broken_record_of_looks_is_named(tmp_path):
    (tmp_path / "looks.json").write_text("[]")
    with pytest.raises(UserError, match=r"looks\.json"):
        read_looks(tmp_path)
    assert read_looks(tmp_path / "nowhere") is None


def test_the_report_shows_what_the_last_look_saw_and_judges_nothing_before_the_first(generator):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3, 4])
    made.write_all({"A-h1": 0.3})
    first = {row: [1, 2, 3] for row in ("base", "A-h1", "A-h4")}
    second = first | {"base": [1, 2, 3, 4], "A-h4": [1, 2, 3, 4]}
    write_looks(made, Course(linear(3, 6), [], first))
    before = make("made", made.root).summary
    assert {r.ppl.difference.verdict for r in before.rows[1:]} == {"undecided"}
    assert {r.ppl.difference.why for r in before.rows[1:]} == {"before the first interim analysis"}
    assert [r.n for r in before.rows] == [3, 3, 3] and before.cells == 9
    write_looks(made, Course(linear(3, 6), [Look(first)], second))
    after = make("made", made.root).summary
    assert after.rows[1].ppl.difference.verdict == "same direction"
    assert [r.n for r in after.rows] == [3, 3, 3] and after.cells == 11
    assert after.rows[2].missing == {"4": "waits for the next interim analysis"} and after.rows[1].missing == {}


def test_a_row_is_open_by_its_word_in_perplexity_its_claims_and_its_prospects():
    rows = [
        summary_row("base", base=True),
        summary_row("found", "reproduced", holm=0.2),
        summary_row("claimed", "reproduced", holm=0.2),
        summary_row("certain", "reproduced", holm=0.01),
        summary_row("likely", "undecided", holm=0.3, prospect=0.05),
        summary_row("hopeless", "undecided", holm=1.0, prospect=0.049),
        summary_row("alone", "not testable"),
        summary_row("neither", "no difference, as in the paper", holm=1.0),
        summary_row("gone", "diverged"),
    ]
    names = ("claimed", "certain", "gone", "found")
    *asked, found = (Finding(name, "", None, None, None, None) for name in names)
    claims = [ClaimSummary("", "undecided", None, asked), ClaimSummary("", "supported", None, [found])]
    made = summary(rows, claims)
    assert undecided_rows(made) == (["claimed", "likely", "alone"], ["hopeless"])


def test_the_next_look_asks_for_its_seeds_of_base_and_of_open_rows_with_results():
    asked = {"base": [1, 2, 3], "a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3]}
    words = {"base": "", "a": "reproduced", "b": "undecided", "c": "not testable"}
    made = summary([summary_row(name, word, base=name == "base") for name, word in words.items()])
    assert next_course(Course(late(3, 8), [Look(asked)], None), made, asked, range(1, 9)).asked["b"] == [1, 2, 3, 4, 5]
    course = Course(linear(3, 4), [], asked).after_look(asked | {"b": [3, 1], "c": []})
    assert course.looks[-1].seeds["b"] == [1, 3]
    more = next_course(course, made, asked, [1, 2, 3, 4])
    assert more.asked == asked | {"base": [1, 2, 3, 4], "b": [1, 2, 3, 4]}
    assert next_course(more.after_look(more.asked), made, more.asked, [1, 2, 3, 4]).asked is None
    without_base = Course(linear(3, 4), [], asked).after_look(asked | {"base": []})
    assert next_course(without_base, made, asked, [1, 2, 3, 4]).asked is None


# --- `--seeds auto`: rounds and looks, with runs that are written instead of trained ---


ROWS = ["base", "A-h1", "A-h4"]
RESOURCES = Resources()
NONE = {"first_seeds": None, "max_seeds": None, "max_runs": None}
ASKED = {"first_seeds": 3, "max_seeds": 5, "max_runs": None}


class Trainer:
    """Writes the records that `work` would train; A-h1 is far from base, A-h4 is not."""

    def __init__(self, generator, stop_after=None, never=()):
        self.made, self.batches, self.stop_after, self.never = generator(ROWS, [1]), [], stop_after, never
        self.said = []
        """at each batch: whether more runs may come"""
        # the study is the command's to define
        file_of(self.made.root, "made").unlink()
        self.study = replace(self.made.study, seeds=[1])

    def __call__(self, study, cells, root, resources, start, again):
        rows = {row.name: row for row in study.rows}
        new = [c for c in cells if not self.made.folder(rows[c.row], c.seed).finished() and c.row not in self.never]
        self.batches.append([(c.row, c.seed) for c in new])
        self.said.append(self.more)
        for count, cell in enumerate(new):
            if self.stop_after is not None and count == self.stop_after:
                self.stop_after = None
                raise SystemExit(143)
            rng = self.made.rng
            self.made.write(rows[cell.row], cell.seed, 0.4 * (cell.row == "A-h1") + rng.normal(0, 0.02))
        return []

    def run(self, options=ASKED):
        study, folder = rounds.begin(self.study, options, self.made.root), self.made.root / "studies/made"
        course = read_looks(folder)
        seeds = seeds_of(course, study, folder)
        return rounds.rounds(course, self.study, seeds, options["max_runs"], self.made.root, RESOURCES, look)

    @property
    def more(self):
        folder = folder_of(self.made.root, "made")
        return Queue("made", find_storage("", folder), create=False).note_of(MORE)

    @property
    def looks(self):
        return json.loads((self.made.root / "studies/made/looks.json").read_bytes())


@pytest.fixture
def trainer(generator, monkeypatch):
    def make(hopeless=0.0, **how):
        found = Trainer(generator, **how)
        monkeypatch.setattr(rounds, "work", found)
        monkeypatch.setattr(sequential, "HOPELESS", hopeless)
        return found

    return make


def test_only_open_rows_and_base_get_more_seeds_until_the_budget_is_spent(trainer, capsys):
    found = trainer()
    found.run()
    assert found.batches[0] == [(row, seed) for row in ROWS for seed in (1, 2, 3)]
    assert found.batches[1:] == [[("base", 4), ("A-h4", 4)], [("base", 5), ("A-h4", 5)]]
    assert [len(look["A-h1"]) for look in found.looks["looks"]] == [3, 3, 3]
    assert [len(look["A-h4"]) for look in found.looks["looks"]] == [3, 4, 5]
    assert found.looks["asked"] is None
    assert found.said == [True, True, True] and found.more is False
    assert "interim analysis 3 of at most 3; undecided: A-h4\n" in capsys.readouterr().err
    report = make("made", found.made.root).summary
    assert {r.name: r.n for r in report.rows} == {"base": 5, "A-h1": 3, "A-h4": 5}
    assert report.rows[1].ppl.difference.verdict == "same direction"
    assert report.finished == report.cells == 13


def test_a_row_that_no_look_to_come_is_likely_to_decide_gets_no_more_seeds(trainer, capsys):
    found = trainer(hopeless=sequential.HOPELESS)
    found.run()
    assert len(found.batches) == 1 and len(found.looks["looks"]) == 1 and found.looks["asked"] is None
    assert "no row is undecided; dropped for futility: A-h4\n" in capsys.readouterr().err
    (row,) = [r for r in make("made", found.made.root).summary.rows if r.name == "A-h4"]
    assert row.ppl.difference.verdict == "undecided" and row.ppl.difference.prospect < 0.05


@pytest.mark.parametrize("stop_after", [0, 4])
def test_after_a_stop_the_same_command_goes_on(trainer, stop_after):
    found = trainer(stop_after=stop_after)
    with pytest.raises(SystemExit):
        found.run()
    assert found.looks["looks"] == []
    found.run(NONE | {"max_seeds": 5})
    assert [len(look["A-h4"]) for look in found.looks["looks"]] == [3, 4, 5]
    before = found.looks
    found.run(NONE)  # nothing is left to do
    assert found.looks == before and len(found.batches) == 4


def test_a_stop_between_a_look_and_its_record_repeats_the_look(trainer, monkeypatch):
    found = trainer()
    whole = found.run() or found.looks
    path = found.made.root / "studies/made/looks.json"
    path.write_text(json.dumps(whole | {"looks": whole["looks"][:1], "asked": whole["looks"][1]}))
    found.run(NONE)
    assert found.looks == whole


def test_a_budget_of_runs_stops_before_it_is_exceeded_and_a_larger_one_goes_on(trainer):
    found = trainer()
    found.run(ASKED | {"max_runs": 12})
    assert found.said == [True, True] and found.more is False
    assert len(found.looks["looks"]) == 2 and found.looks["asked"]["A-h4"] == [1, 2, 3, 4, 5]
    found.run(NONE | {"max_runs": 13})
    assert len(found.looks["looks"]) == 3


def test_a_row_whose_runs_all_fail_gets_no_more_seeds(trainer):
    found = trainer(never=["A-h4"])
    found.run()
    assert len(found.looks["looks"]) == 1 and found.looks["looks"][0]["A-h4"] == []


def test_what_would_break_the_correction_is_refused(trainer, generator):
    found = trainer()
    found.run()
    with pytest.raises(UserError, match=r"--max-seeds=7.*began with 5"):
        found.run(NONE | {"max_seeds": 7})
    with pytest.raises(UserError, match="rows base, A-h1, A-h4, and they are fixed"):
        rounds.begin(replace(found.study, rows=found.study.rows[:2]), NONE, found.made.root)
    fixed = generator(ROWS, [1, 2, 3, 4, 5, 6], "fixed").study
    with pytest.raises(UserError, match=r"fixed beforehand.*--name"):
        rounds.begin(replace(fixed, seeds=[1]), NONE, found.made.root)


def test_seeds_are_the_files_and_then_those_after_them():
    assert following_seeds([11, 12], 4) == [11, 12, 13, 14]
    assert following_seeds([5, 1], 3) == [5, 1, 6]
    assert following_seeds([1, 2, 3], 2) == [1, 2]
