"""Files that grow, are replaced, or are half-written: each line is read once, and never a part of one."""

import json
import os

from lightning_tfm.dashboard.course import Course, dev_curve
from lightning_tfm.dashboard.files import Kept, Lines, read_object, tail


def test_a_line_is_given_once_and_not_before_it_is_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = Lines(path)
    assert lines.fresh() == (True, [])
    path.write_text('{"step": 1}\n{"st')
    assert lines.fresh() == (True, [{"step": 1}])
    assert lines.fresh() == (False, [])
    with path.open("a") as file:
        file.write('ep": 2}\n')
    assert lines.fresh() == (False, [{"step": 2}])


def test_a_file_that_is_replaced_is_read_anew(tmp_path):
    """As a run does that resumes from a checkpoint before its last lines."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    lines = Lines(path)
    lines.fresh()
    half = tmp_path / "half"
    half.write_text('{"step": 1}\n{"step": 3}\n{"step": 4}\n')
    os.replace(half, path)
    assert lines.fresh() == (True, [{"step": 1}, {"step": 3}, {"step": 4}])
    path.write_text('{"step": 9}\n')  # shorter, in place
    assert lines.fresh() == (True, [{"step": 9}])


def test_damaged_lines_are_counted_and_the_others_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "dev_ppl": 3}\n\xff\x00{\n[1]\n{"step": 2, "dev_ppl": 2}\n')
    lines = Lines(path)
    assert [record["step"] for record in lines.fresh()[1]] == [1, 2] and lines.damaged == 2
    assert dev_curve(path) == [(1, 3), (2, 2)]


def test_a_course_keeps_finite_numbers_and_thins_long_series(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": s, "loss": 5.0 - s / 1000, "seconds": s * 0.5, "note": "x", "flag": True} for s in range(1, 1001)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 1001, "loss": NaN}\n{"loss": 3}\n')
    course = Course(path)
    assert course.look() and not course.look()
    assert set(course.series) == {"loss", "seconds"} and len(course.of("loss")) == 1000
    points = course.of("loss").points(most=100)
    assert len(points) == 100 and points[0] == (5.5, sum(row["loss"] for row in rows[:10]) / 10)
    assert course.seconds_per_step() == 0.5 and course.last("grad_norm") is None


def test_what_was_read_is_kept_until_the_file_is_another(tmp_path):
    path, read = tmp_path / "a.json", []
    path.write_text("1")
    kept = Kept(lambda p: read.append(p) or p.read_text(), most=1)
    assert [kept(path), kept(path)] == ["1", "1"] and len(read) == 1
    half = tmp_path / "half"
    half.write_text("2")
    os.replace(half, path)
    assert kept(path) == "2" and len(read) == 2
    half.write_text("3")
    kept(half)
    assert kept(path) == "2" and len(read) == 4  # one was kept, and it was the other


def test_objects_and_tails_of_what_is_not_there(tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert [read_object(tmp_path / f"{name}.json") for name in ("none", "list", "deep")] == [{}, {}, {}]
    (tmp_path / "log.txt").write_text("\n".join(map(str, range(50_000))))
    assert tail(tmp_path / "log.txt", 2) == "49998\n49999" and tail(tmp_path / "none", 2) == ""
