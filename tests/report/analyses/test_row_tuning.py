"""A tuned study: which value each row took, of which, what the choice cost, and how its error widens intervals."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.queue.row_tuning import Tuning, best_value, variants
from lightning_tfm.report.analyses import row_tuning
from lightning_tfm.report.analyses.row_tuning import notes
from lightning_tfm.report.stats.statistics import SentenceNoise, compare
from lightning_tfm.report.study_report import make
from lightning_tfm.study.row_tuning import TunedRow, TuningSummary
from lightning_tfm.study.rows import all_rows
from tests.golden.synthetic import TUNING
from tests.golden.synthetic import tuned as tuned_study
from tests.helpers.studies import Generator, summary


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tuned_study(tmp_path_factory.mktemp("tuned"), [1, 2])


def test_a_study_that_was_not_tuned_says_nothing_and_a_broken_record_is_named(made, tmp_path):
    path = made.root / "studies/made/tuning.json"
    before = path.read_text()
    try:
        path.write_text(json.dumps(TUNING | {"cost": None}))  # as it was written first
        assert "its runs are from the study made-tuning" in make("made", made.root).render("markdown")
        path.unlink()
        report = make("made", made.root)
        assert all("tun" not in report.render(kind) for kind in ("markdown", "csv", "json", "latex"))
        assert "section-tuning" not in report.render("html")
        path.write_text('{"key": 1}')
        with pytest.raises(UserError, match=r"tuning.json: not a record of tuning \(key=1: expected text"):
            make("made", made.root)
    finally:
        path.write_text(before)


def test_a_value_is_never_chosen_by_a_run_that_was_scored_otherwise(tmp_path):
    asked = Tuning("training.lr_factor", [0.5, 1.0], [1001])
    base = all_rows()["base"]
    tried = Generator(tmp_path, variants(asked, [base]), [1001], name="made-tuning")
    half, whole = tried.study.rows
    tried.write(half, 1001, 0.05)
    tried.write(whole, 1001, 0.0, ppl=3.0, evaluation_hash="f" * 64)
    with pytest.raises(UserError, match=r"lr_factor=1\.0 is not scored as the table will be"):
        best_value(tried.study, asked, base, tmp_path)
    tried.write(whole, 1001, 0.5)
    assert best_value(tried.study, asked, base, tmp_path).value == 0.5


# --- the error of a tuned row's choice is part of what the row is said to show ---


VALUES = [0.5, 1.0, 2.0]
SEEDS = [0.0, 0.01, -0.01, 0.015, -0.015]


def tuned(*rows: tuple[str, float, list[float]], seeds: int = 1, values=VALUES) -> TuningSummary:
    made = [TunedRow(n, v, {str(x): math.exp(m) for x, m in zip(values, ms, strict=True)}) for n, v, ms in rows]
    return TuningSummary("training.lr_factor", values, list(range(seeds)), "t", None, None, None, made)


def test_a_close_choice_adds_error_and_is_open_and_a_clear_one_adds_none():
    tuning = tuned(("base", 1.0, [0.9, 0.7, 0.9]), ("close", 1.0, [0.9, 0.7, 0.705]))
    found = row_tuning.row_choices(tuning, {"base": SEEDS, "close": SEEDS})
    assert found["base"].loss == found["base"].other == 0
    assert 0.3 < found["close"].other < 0.5 and found["close"].loss > 0
    more = row_tuning.row_choices(replace(tuning, seeds=[1, 2, 3, 4, 5]), {"base": SEEDS, "close": SEEDS})
    assert more["close"].other < found["close"].other, "tuning seeds settle it"


def test_a_value_that_diverged_and_a_row_on_a_plateau_change_no_other_row():
    rows = [("base", 1.0, [0.9, 0.7, 0.72]), ("a", 1.0, [0.91, 0.71, 0.74]), ("b", 1.0, [0.9, 0.7, 0.73])]
    known = {name: SEEDS for name in ("base", "a", "b", "out")}
    alone = row_tuning.row_choices(tuned(*rows), known)
    for bad in (2.3, math.inf):
        beside = row_tuning.row_choices(tuned(*rows, ("out", 1.0, [0.95, 0.8, bad])), known)
        assert math.isfinite(beside["out"].loss)
        for name in ("base", "a", "b"):
            assert beside[name].other == alone[name].other
            assert beside[name].loss == pytest.approx(alone[name].loss, rel=0.25)
        assert beside["out"].other == 0 and beside["out"].loss < 0.1, "clear, whatever lies beyond"


def test_the_response_is_a_parabola_in_the_log_of_the_value_whose_curvature_rows_share():
    x = np.log(VALUES)
    exact = np.array([[0.1 * (v - at) ** 2 + 0.5 for v in x] for at in (0.0, 0.3, -0.2)])
    assert row_tuning.response(exact, VALUES) == pytest.approx(exact)
    assert all(row_tuning.response(exact, no) is exact for no in (["a", "b", "c"], [True, 1, 2]))


def test_row_and_base_add_their_losses_to_the_error_and_no_seed_makes_them_smaller():
    n, zero = np.full(3, 5), np.zeros(3)
    d = compare(np.array([0.0, 0.02, 0.02]), np.full(3, 1e-4), n, SentenceNoise(zero, zero))
    wide = row_tuning.add_selection_error(d, np.array([0.1, 0.0, 0.3]))
    assert wide.se[1:] ** 2 - d.se[1:] ** 2 == pytest.approx(np.array([0.1, 0.4]) * d.seed_variance[1:])
    assert (wide.p[1:] > d.p[1:]).all() and (wide.df[1:] < d.df[1:]).all() and np.isnan(wide.p[0])
    assert wide.shared[1:] == pytest.approx(np.array([0.1, 0.4]) * d.seed_variance[1:])
    same = row_tuning.add_selection_error(d, zero)
    assert same.p[1:] == pytest.approx(d.p[1:], rel=1e-12) and same.df[1:] == pytest.approx(d.df[1:], rel=1e-12)


def test_a_report_whose_rows_were_tuned_has_wider_intervals_and_says_which_choice_is_open(tmp_path):
    made = Generator(tmp_path, ["base", "A-h1", "C-N2"], [1, 2, 3])
    made.write_all({"A-h1": 0.05})
    before = {row.name: row for row in make("made", tmp_path).summary.rows}
    path = tmp_path / "studies/made/tuning.json"
    rows = {"base": [5.5, 5.0, 5.1], "A-h1": [5.5, 5.2, 5.21], "C-N2": [9.0, 5.0, 9.0]}
    plain = [{"row": n, "value": 1.0, "ppl": dict(zip(map(str, VALUES), ppl, strict=True))} for n, ppl in rows.items()]
    path.write_text(json.dumps({key: TUNING[key] for key in ("key", "values", "seeds", "study")} | {"rows": plain}))
    report = make("made", tmp_path)
    for row in report.summary.rows[1:]:
        for metric in ("ppl", "bleu"):
            now, then = row.metric(metric).difference, before[row.name].metric(metric).difference
            assert now.estimate == then.estimate and now.se > then.se and now.upper > then.upper, (row.name, metric)
    markdown = report.render("markdown")
    uncertain = markdown.partition("the choice is uncertain for")[2].partition(";")[0]
    assert "A-h1 (" in uncertain and "C-N2 (" not in uncertain


def test_a_row_that_joined_later_is_not_said_to_be_tuned(made):
    assert "every row but E-learned at its best training.lr_factor" in make("made", made.root).render("markdown")


def test_a_tuning_without_seeds_to_judge_it_by_says_nothing_of_open_choices():
    told = notes(tuned(("base", 1.0, [1, 0.9, 1])), summary(rows=[]))
    assert not any("open" in note or "clear" in note for note in told)
