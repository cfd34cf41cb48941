"""Records that are not what they should be: their own cell says so, the study goes on."""

import json
from pathlib import Path

import pytest

from lightning_tfm.cli.output import write_page
from lightning_tfm.report.build import make, write_table
from lightning_tfm.report.pages.provenance import run_facts
from lightning_tfm.report.records import FilledCell
from lightning_tfm.runs.record import Machine, Segment, from_plain, to_plain
from lightning_tfm.watch.run_state import Curve
from tests.helpers.studies import record


def without(*keys):
    def change(record):
        part = record
        for key in keys[:-1]:
            part = part[key]
        del part[keys[-1]]
        return json.dumps(record)

    return change


def with_(value, *keys):
    def change(record):
        part = record
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value
        return json.dumps(record)

    return change


MALFORMED = {
    "cut off": (lambda record: json.dumps(record)[:200], "not valid JSON"),
    "empty": (lambda record: "", "not valid JSON"),
    "a list": (lambda record: "[1, 2]", "'status' is missing"),
    "not UTF-8": (lambda record: b'{"status": "\xff"}', "cannot be read"),
    "nested": (lambda record: "[" * 100_000, "cannot be read"),
    "no scores": (without("scores"), "'scores'"),
    "no identity": (without("identity"), "'identity'"),
    "no flops": (without("flops"), "'flops'"),
    "no total": (without("seconds", "total"), "the key 'seconds.total' is missing"),
    "no signature": (without("scores", "dev", "signature"), "the key 'scores.dev.signature' is missing"),
    "scores a text": (with_("x", "scores"), "is malformed"),
    "ppl a text": (with_("x", "scores", "dev", "ppl"), "scores.dev.ppl='x': expected a number"),
    "ppl NaN": (with_(float("nan"), "scores", "dev", "ppl"), "scores.dev.ppl=nan: expected a finite number"),
    "ppl huge": (with_(10**400, "scores", "dev", "ppl"), ": expected a number below 1e+300"),
    "git a text": (with_("abc", "git"), "git='abc': expected the keys commit, changed"),
    "pruned": (with_("pruned", "status"), "pruned"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    from tests.helpers.studies import Generator

    found = Generator(tmp_path_factory.mktemp("r"), ["base", "A-h1"], [1, 2])
    found.write_all()
    return found


@pytest.mark.parametrize("kind", MALFORMED)
def test_one_malformed_record_is_one_refused_cell(made, kind):
    change, reason = MALFORMED[kind]
    path = made.folder(made.study.rows[1], 2).result
    before = path.read_bytes()
    spoilt = change(json.loads(before))
    path.write_bytes(spoilt if isinstance(spoilt, bytes) else spoilt.encode())
    # a score of its own file would otherwise replace the one in the record
    later = next(path.parent.glob("scores/*/val.json"))
    later_before = later.read_bytes()
    later.unlink()
    try:
        table = write_table(made.study, made.root)
        assert reason in table.rows[1].missing["2"]
        assert [row.missing for row in table.rows if row.missing] == [table.rows[1].missing]
        assert [row.n for row in table.rows] == [2, 1]
        if kind in ("cut off", "no flops"):  # from here on all are alike
            report = make("made", made.root)
            assert list(report.cells.empty) == [("A-h1", 2)] and reason in report.cells.empty["A-h1", 2].reason
            assert "1 cell empty or refused" in report.render("html")
    finally:
        path.write_bytes(before)
        later.write_bytes(later_before)


def test_a_malformed_later_score_or_curve_spoils_no_more(made):
    folder = made.folder(made.study.rows[1], 2)
    later, curve = next(folder.path.glob("scores/*/val.json")), folder.metrics
    before = later.read_bytes(), curve.read_bytes()
    try:
        later.write_text("{")
        curve.write_text('7\n[1]\n{"dev_ppl": null, "step": 1}\n{"dev_ppl": 3}\n')
        report = make("made", made.root)
        assert "cannot be read" in report.cells.empty["A-h1", 2].reason
        later.write_bytes(before[0])
        report = make("made", made.root)
        assert not report.cells.empty and report.render("html")
    finally:
        later.write_bytes(before[0])
        curve.write_bytes(before[1])


def test_a_sweep_ends_by_naming_its_report(made, capsys):
    path = made.root / "studies" / "made" / "report.html"
    assert write_page("made", made.root, lambda: make("made", made.root))
    assert capsys.readouterr().out.splitlines() == [str(path)]
    assert path.read_text().startswith("<!DOCTYPE html>")
    path.unlink()
    path.mkdir()
    try:
        assert not write_page("made", made.root, lambda: make("made", made.root))
        said = capsys.readouterr()
        assert said.out == "" and f"{path} could not be written: IsADirectoryError" in said.err
        assert "lightning-tfm report made" in said.err
    finally:
        path.rmdir()


def test_dev_perplexities_of_two_texts_make_no_curve(tmp_path):
    """A run that was begun on one dev text and resumed with another: the record's curve is that of the last one."""
    lines = [(5, 9.0, {"dev": "a"}), (10, 8.0, {"dev": "a"}), (15, 90.0, {"dev": "b"}), (20, 80.0, {"dev": "b"})]
    text = "".join(json.dumps({"step": s, "dev_ppl": p} | more) + "\n" for s, p, more in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    assert Curve.of(tmp_path).validations == {15: 90.0, 20: 80.0}
    (tmp_path / "metrics.jsonl").write_text(text.replace(', "dev": "a"', ""))  # of an earlier version
    assert Curve.of(tmp_path).validations == {15: 90.0, 20: 80.0}
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "dev_ppl": 9.0}\n')
    assert Curve.of(tmp_path).validations == {5: 9.0}
    (tmp_path / "metrics.jsonl").write_text(text)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n' + text)
    assert Curve.of(tmp_path).points("dev_ppl") == [(15, 90.0), (20, 80.0)]
    assert [line["step"] for line in Curve.of(tmp_path).lines] == [1, 15, 20]


def test_the_page_says_where_all_attempts_ran():
    two = Machine(cpu="a CPU", processes=2, threads=1)
    one = Machine(cpu="a CPU", processes=1, threads=1)
    parts = [
        Segment(last=40),
        Segment(attempt=2, first=41, last=90, hardware=two, versions={"torch": "2.12"}),
        Segment(attempt=3, first=91, last=90, hardware=one, versions={"torch": "2.14"}),
        Segment(attempt=4, first=91, last=120, hardware=one, versions={"torch": "2.12"}),
    ]
    made = record(ran=parts)
    assert from_plain(to_plain(made)) == made
    found = run_facts(FilledCell("base", 1, Path("x"), made, {}, ""))
    two_one = "steps 41\u201390: a CPU, 2 process(es) of 1 thread(s); steps 91\u2013120: a CPU, 1 process(es)"
    assert two_one in found["hardware"]
    assert found["versions"] == "steps 1\u201340: not recorded; steps 41\u2013120: torch 2.12"
    assert "process(es)" in run_facts(FilledCell("base", 1, Path("x"), record(), {}, ""))["hardware"]
