"""Files that grow, are replaced, or are half-written: each line is read once, and never a part of one."""

import json
import os

import pytest

from lightning_tfm.watch.file_cache import Kept, Lines, read_object, tail
from lightning_tfm.watch.run_state import Curve


def test_a_line_is_read_once_and_not_before_it_is_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = Lines(path)
    lines.look()
    assert lines.records == []
    path.write_text('{"step": 1}\n{"st')
    for _ in range(2):
        lines.look()
        assert lines.records == [{"step": 1}] and not lines.damaged
    with path.open("a") as file:
        file.write('ep": 2}\n')
    lines.look()
    assert lines.records == [{"step": 1}, {"step": 2}] and lines.words == ""


def test_a_file_that_is_replaced_is_read_anew(tmp_path):
    """As a run does that resumes from a checkpoint before its last lines."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n7\n')
    lines = Lines(path)
    lines.look()
    assert lines.damaged == 1
    half = tmp_path / "half"
    half.write_text('{"step": 1}\n{"step": 3}\n{"step": 4}\n')
    os.replace(half, path)
    lines.look()
    assert lines.records == [{"step": 1}, {"step": 3}, {"step": 4}] and not lines.damaged
    path.write_text('{"step": 9}\n')  # shorter, in place
    lines.look()
    assert lines.records == [{"step": 9}]
    path.unlink()
    lines.look()
    assert lines.records == []


def test_damaged_lines_are_named_counted_and_the_others_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    good = b'{"step": 1, "dev_ppl": 3}\n', b'{"step": 2, "dev_ppl": "Infinity"}\n', b'{"step": 3, "dev_ppl": 2}\n'
    good = good[0], good[1], b" \t" + good[2].replace(b"\n", b" \r\n")
    bad = [b'{"step": 1}, {"step": 5}', b'{"step": 6} x', b""]
    bad += [
        b"\xff\x00{",
        b"[1]",
        b'{"loss": 3}',
        b'{"step": true}',
        b'{"step": 7, "lr": null}',
        b'{"step": -1}',
        b'{"step": 2.5}',
        b'{"step": 4, "loss": "x"}',
    ]
    path.write_bytes(good[0] + b"".join(line + b"\n" for line in bad) + good[1] + good[2])
    curve = Curve(path).look()
    assert curve.points("dev_ppl") == [(1, 3), (3, 2)] and curve.damaged == curve.look().damaged == 11
    assert curve.words == "metrics.jsonl: 11 damaged lines left out, the first is line 2"


def test_a_curve_keeps_finite_numbers_and_thins_long_series(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": s, "loss": 5.0 - s / 1000, "seconds": s * 0.5, "note": "x", "flag": True} for s in range(1, 1001)]
    rows[900]["seconds"] = 40_000.0  # a night
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 1001, "loss": NaN}\n')
    curve = Curve(path).look()
    assert len(curve.every("loss")) == 1000 and curve.every("note") == curve.every("flag") == []
    points = curve.points("loss", most=100)
    assert len(points) <= 100 and points[0] == (6, pytest.approx(sum(row["loss"] for row in rows[:11]) / 11))
    assert points[-1] == (1000, 4.0), "the last one as it is"
    assert curve.per_step == 0.5 and curve.last("grad_norm") is None and curve.damaged == 0


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


@pytest.mark.parametrize(
    "bad",
    [
        [b'{"step": 3, "a": "x}', b'{", "b": 1}'],
        [b'{"step": 3, "a": [1', b"{}]}"],
        [b'{"step": 3, "a": [1]', b'{"step": 4}}'],
        [b'{"step": 3}, 5', b'{"step": 4'],
        [b'{"step": 3},'],
        [b'{"step": 3', b'"loss": 2}, {"step": 4}'],
        [b'{"step": 3}, {"step": 4}'],
        [b'{"step": 3, "a": "\xff"}'],
        [b'{"step": 3, "a": }', b'{"step": 4, "a": {}'],
    ],
)
def test_lines_that_make_sense_only_together_are_damaged(tmp_path, bad):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in [b'{"step": 1}', *bad, b'{"step": 2}']))
    lines = Lines(path)
    lines.look()
    assert lines.records == [{"step": 1}, {"step": 2}] and lines.damaged == len(bad)
