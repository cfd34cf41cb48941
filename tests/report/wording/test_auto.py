"""`--seeds auto`: rounds and looks, with runs that are written instead of trained."""

import json
from dataclasses import replace

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.queue import rounds
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.storages.backends import find_storage
from lightning_tfm.queue.storages.join import MORE
from lightning_tfm.report import sequential
from lightning_tfm.report.build import look, make
from lightning_tfm.study.sequential import read_looks
from lightning_tfm.study.study_file import file_of, folder_of

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
        seeds = rounds.seeds_of(course, study, folder)
        return rounds.rounds(course, self.study, seeds, options["max_runs"], self.made.root, RESOURCES, look)

    @property
    def more(self):
        folder = folder_of(self.made.root, "made")
        return Queue("made", find_storage("", folder), create=False).noted(MORE)

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
    assert rounds.pool([11, 12], 4) == [11, 12, 13, 14]
    assert rounds.pool([5, 1], 3) == [5, 1, 6]
    assert rounds.pool([1, 2, 3], 2) == [1, 2]
