"""Looks: shares of the level, what is still open, the evidence over all looks."""

import math

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.report.build import make
from lightning_tfm.report.sequential import Look, Plan, looks_to_json, open_rows, over_looks, read_looks
from lightning_tfm.report.verdict import Evidence
from lightning_tfm.study.files import to_json


def test_shares_add_up_to_the_whole_level():
    plan = Plan(3, 8)
    assert plan.sizes == [3, 4, 5, 6, 7, 8]
    assert plan.shares == pytest.approx([3 / 8] + [1 / 8] * 5)
    assert Plan(5, 5).shares == [1.0]
    with pytest.raises(UserError):
        Plan(1, 5)


def test_a_row_rejected_at_any_look_stays_rejected():
    def found(p):
        return {("a", "ppl"): Evidence(3, 1.0, 0.5, 1.5, p, 0.3)}

    assert over_looks([found(0.01), found(0.2)])["a", "ppl"].p == 0.01
    assert over_looks([found(math.nan), found(0.2)])["a", "ppl"].p == 0.2


def test_a_study_with_looks_is_stricter_than_one_with_fixed_seeds(generator):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.2})
    fixed = make("made", made.root).summary
    assert open_rows(fixed) == ["A-h4"]
    look = Look({row: [1, 2, 3] for row in ("base", "A-h1", "A-h4")})
    folder = made.root / "studies/made"
    (folder / "looks.json").write_bytes(to_json(looks_to_json(Plan(3, 6), [look])))
    assert read_looks(folder) == (Plan(3, 6), [look])
    looked = make("made", made.root).summary
    before, after = (s["rows"][1]["ppl"]["difference"] for s in (fixed, looked))
    assert after["p"] == pytest.approx(2 * before["p"])
    assert after["upper"] - after["lower"] > before["upper"] - before["lower"]
    assert looked["interval level"] == pytest.approx(0.975)


def test_a_broken_record_of_looks_is_named(tmp_path):
    (tmp_path / "looks.json").write_text("[]")
    with pytest.raises(UserError, match=r"looks\.json"):
        read_looks(tmp_path)
    assert read_looks(tmp_path / "nowhere") is None
