"""The gate: exit codes, looks declared beforehand, and a budget that many candidates share."""

import errno
import json
import os
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.judging import gate
from lightning_tfm.judging.gate import level_shares
from lightning_tfm.study.sequential import LATE
from tests.judging.test_verdicts import normal

wide = partial(normal, sd=1.0)
METRIC = ["--metric", "acc:higher:0.5"]


def write(path: Path, rows: dict[str, list[float]]) -> Path:
    lines = [f"{row},{s},{x!r}" for row, of in rows.items() for s, x in enumerate(of, 1)]
    path.write_text("row,seed,acc\n" + "\n".join(lines))
    return path


def asked(capsys, path: Path, row: str, *more: str) -> tuple[int, dict[str, object]]:
    code = main(["judge", str(path), *METRIC, "--gate", row, *more])
    said = capsys.readouterr()
    return code, json.loads(said.out) if code != 2 else {"error": said.err}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A file of base and of a, which is far better, at five seeds."""
    return write(tmp_path / "scores.csv", {"base": wide(0, 5, 1), "a": wide(9, 5, 2)})


def test_exit_codes(tmp_path, capsys):
    rows = {"base": wide(0, 8, 1), "good": wide(9, 8, 2), "bad": wide(-9, 8, 3), "open": wide(0.3, 8, 4)}
    rows |= {"lost": [float("nan")] * 5, "one": [3.0]}
    path = write(tmp_path / "scores.csv", rows)
    codes = {row: asked(capsys, path, row)[0] for row in rows}
    assert codes == {"base": 2, "good": 0, "bad": 4, "open": 3, "lost": 4, "one": 3}
    assert asked(capsys, path, "none")[0] == 2
    assert asked(capsys, path, "open")[1]["seeds needed"] > 8 and asked(capsys, path, "one")[1]["seeds missing"] == 4
    assert asked(capsys, path, "good", "--format", "json") == asked(capsys, path, "good")
    assert "--gate: not together with --format" in asked(capsys, path, "good", "--format", "html")[1]["error"]
    assert [p.name for p in tmp_path.iterdir()] == ["scores.csv"], "nothing is kept where nothing was declared"


def test_looks_share_the_level_as_a_study_shares_it():
    assert level_shares([5, 8, 12]) == pytest.approx(LATE)
    assert [sum(level_shares(range(5, 5 + k))) for k in (1, 2, 3, 4, 6)] == pytest.approx([1] * 5)


def test_looks_are_declared_once_kept_and_repeated_for_nothing(tmp_path, capsys):
    looks = ("--looks", "5,8,12")
    rows = {"base": wide(0, 12, 1), "x": wide(1.6, 12, 2)}
    first = {row: of[:6] for row, of in rows.items()}
    path = write(tmp_path / "scores.csv", first)
    code, line = asked(capsys, path, "x", *looks)
    assert code == 3 and line["n"] == 5 and line["next look"] == 8 and line["seeds missing"] == 2
    assert asked(capsys, path, "x", *looks) == (code, line)
    write(path, rows)
    code, last = asked(capsys, path, "x", *looks)
    assert last["next look"] is None
    found = json.loads((tmp_path / "scores.csv.gate.json").read_text())["looks"]['["x", "base", "acc"]']["found"]
    assert list(found) == ["5", "8", "12"] and last["p"] == min(one["p"] for one in found.values())
    for wrong in (("--looks", "5,6,12"), ()):
        code, said = asked(capsys, path, "x", *wrong)
        assert code == 2 and "5,8,12 was declared for 'x'" in said["error"]
    write(path, rows | {"x": [9.0, *rows["x"][1:]]})
    code, said = asked(capsys, path, "x", *looks)
    assert code == 2 and "the first 5 seeds of 'x' or 'base' have changed" in said["error"]


@pytest.mark.parametrize("looks", ["3,5", "8,5", "5,5", "5,x", ""])
def test_wrong_looks_are_refused(two, capsys, looks):
    assert asked(capsys, two, "a", f"--looks={looks}")[0] == 2


def test_a_family_shares_one_budget_and_its_file_is_not_begun_anew(tmp_path, capsys):
    family = tmp_path / "family.json"
    more = ("--family", str(family), "--candidates", "10")
    rows = {"base": wide(0, 5, 1), "a": wide(9, 5, 2), "b": wide(9, 5, 3), "c": wide(0, 5, 4)}
    path = write(tmp_path / "scores.csv", rows | {"few": [1.0, 2.0]})
    code, line = asked(capsys, path, "a", *more)
    assert code == 0 and line["level"] == pytest.approx(0.005) and line["candidate"] == 1
    first = line
    assert asked(capsys, path, "a", *more)[1] == line, "asked again, nothing is spent"
    assert asked(capsys, path, "few", *more)[0] == 3, "too few seeds spend nothing"
    code, line = asked(capsys, path, "b", *more)
    assert (code, line["level"], line["candidate"]) == (0, pytest.approx(0.005), 2)
    code, line = asked(capsys, path, "c", *more, "--base", "b")
    assert (code, line["level"], line["candidate"]) == (4, pytest.approx(0.01), 3)

    kept = family.read_bytes()
    for spoilt in (kept.replace(b'"kept": true', b'"kept": false'), kept[:-9], b"[]", None):
        family.unlink() if spoilt is None else family.write_bytes(spoilt)
        code, said = asked(capsys, path, "c", *more)
        assert code == 2 and str(family) in said["error"] and "not known any more" in said["error"]
    family.write_bytes(kept)
    write(path, rows | {"base": wide(0, 9, 1)})
    again = asked(capsys, path, "a", *more)[1]
    assert (again["p"], again["candidate"]) == (first["p"], 1), "what base gained since changes nothing"
    write(path, rows | {"a": [*rows["a"], 9.0]})
    code, said = asked(capsys, path, "a", *more)
    assert code == 2 and "was tested at 5 seeds, and has 6 now" in said["error"]
    assert asked(capsys, path, "c", *more[:2], "--candidates", "11")[0] == 2


def test_a_family_is_not_asked_before_its_first_look(tmp_path, capsys):
    """Six good seeds, of eight that were declared, are no verdict: it would be looked at for nothing."""
    family = tmp_path / "family.json"
    path = write(tmp_path / "scores.csv", {"base": wide(0, 6, 1), "a": wide(9, 6, 2)})
    code, line = asked(capsys, path, "a", "--family", str(family), "--looks", "8,12")
    assert (code, line["verdict"], line["next look"], line["seeds missing"]) == (3, "not testable", 8, 2)
    assert "p" not in line and not family.exists()
    assert asked(capsys, path, "a", "--family", str(tmp_path / "none" / "family.json"))[0] == 2


def test_what_was_declared_for_one_direction_answers_no_other(two, capsys):
    assert asked(capsys, two, "a", "--looks", "5,8")[0] == 0
    for other in ("acc:lower:0.5", "acc:higher:0.1"):
        assert main(["judge", str(two), "--metric", other, "--gate", "a", "--looks", "5,8"]) == 2
        assert f"declared with acc:higher:0.5, not {other}" in capsys.readouterr().err


def test_a_link_to_the_scores_has_the_looks_of_the_scores(two, tmp_path, capsys):
    link = tmp_path / "link.csv"
    link.symlink_to(two)
    assert asked(capsys, two, "a", "--looks", "5,8")[0] == 0
    code, said = asked(capsys, link, "a", "--looks", "5")
    assert code == 2 and "5,8 was declared for 'a'" in said["error"]


def test_a_family_is_kept_in_a_file_of_its_own(two, tmp_path, capsys):
    before = two.read_bytes()
    for family in ("scores.csv", "scores.csv.gate.json"):
        code, said = asked(capsys, two, "a", "--family", str(tmp_path / family))
        assert code == 2 and "name a file of its own" in said["error"] and two.read_bytes() == before


def test_looks_that_cannot_be_kept_are_refused(two, capsys, monkeypatch):
    for number in (errno.EROFS, errno.EACCES):
        monkeypatch.setattr(gate, "locked", Mock(side_effect=OSError(number, os.strerror(number), str(two))))
        code, said = asked(capsys, two, "a", "--looks", "5,8")
        assert code == 2 and os.strerror(number) in said["error"] and str(two)[:80] in said["error"]


def test_a_p_of_zero_is_the_smallest(tmp_path, capsys):
    rng = np.random.default_rng(1)
    rows = {f"r{i}": (9 + 1e-13 * rng.standard_normal(40)).tolist() for i in range(20)}
    path = write(tmp_path / "scores.csv", rows | {"base": (1e-13 * rng.standard_normal(40)).tolist()})
    code, line = asked(capsys, path, "r1", "--looks", "40,50")
    assert code == 0 and line["p"] == 0
    found = json.loads((tmp_path / "scores.csv.gate.json").read_text())["looks"]['["r1", "base", "acc"]']["found"]
    assert found["40"]["p"] == 0


def test_a_family_may_have_a_file_of_scores_for_each_candidate(tmp_path, capsys):
    more = ("--family", str(tmp_path / "family.json"))
    base = {"base": wide(0, 12, 1)}
    for i, name in enumerate("abab"):
        path = write(tmp_path / f"{name}.csv", base | {name: wide(9, 5, ord(name))})
        code, line = asked(capsys, path, name, *more)
        assert (code, line["candidate"], line["of"]) == (0, 1 + i % 2, 200)


def test_a_family_that_is_spent_is_refused(tmp_path, capsys):
    more = ("--family", str(tmp_path / "family.json"), "--candidates", "1")
    path = write(tmp_path / "scores.csv", {name: wide(0, 5, i) for i, name in enumerate(("base", "a", "b"))})
    assert asked(capsys, path, "a", *more)[0] == 3
    code, said = asked(capsys, path, "b", *more)
    assert code == 2 and "all of its 1 candidate were tested; begin another" in said["error"]
