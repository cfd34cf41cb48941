"""Which record belongs into which cell: one that is damaged, misplaced or diverged empties its own, and no other."""

import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.output import write_page
from lightning_tfm.config import Experiment, Miniature, training_hash
from lightning_tfm.dashboard import study_page
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.fields import fields
from lightning_tfm.report.charts.curves import curves
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.pages.provenance import run_facts
from lightning_tfm.report.records import FilledCell, misfit, read_cells
from lightning_tfm.report.study_report import make, write_table
from lightning_tfm.runs.record import Machine, RunRecord, Segment, Texts, from_plain, to_plain
from lightning_tfm.study import study
from lightning_tfm.study.rows import Fingerprints, Row, all_rows, apply
from lightning_tfm.watch.run_state import Curve
from tests.golden.synthetic import diverging
from tests.helpers.studies import Generator, ablation, record, record_of, write_json, write_lines
from tests.helpers.tiny import in_child


def changed(*keys, value=None):
    """A record with another value under these keys, or without the last of them."""

    def text(record):
        part = record
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value
        if value is None:
            del part[keys[-1]]
        return json.dumps(record)

    return text


PPL = ("scores", "dev", "ppl")
MALFORMED = {
    "cut off": (lambda record: json.dumps(record)[:200], "not valid JSON"),
    "empty": (lambda record: "", "not valid JSON"),
    "a list": (lambda record: "[1, 2]", "'status' is missing"),
    "not UTF-8": (lambda record: b'{"status": "\xff"}', "cannot be read"),
    "nested": (lambda record: "[" * 100_000, "cannot be read"),
    "no scores": (changed("scores"), "'scores'"),
    "no identity": (changed("identity"), "'identity'"),
    "no flops": (changed("flops"), "'flops'"),
    "no total": (changed("seconds", "total"), "the key 'seconds.total' is missing"),
    "no signature": (changed("scores", "dev", "signature"), "the key 'scores.dev.signature' is missing"),
    "scores a text": (changed("scores", value="x"), "is malformed"),
    "ppl a text": (changed(*PPL, value="x"), "scores.dev.ppl='x': expected a number"),
    "ppl NaN": (changed(*PPL, value=float("nan")), "scores.dev.ppl=nan: expected a finite number"),
    "ppl huge": (changed(*PPL, value=10**400), ": expected a number below 1e+300"),
    "git a text": (changed("git", value="abc"), "git='abc': expected the keys commit, changed"),
    "pruned": (changed("status", value="pruned"), "pruned"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):

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
        table = write_table(read_cells(made.study, made.root))
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


def readings(made: Generator) -> tuple[Counter, Counter]:
    """How often a report reads each file of runs, and lays each row on base."""
    read, laid, lay = Counter[str](), Counter[str](), study.apply

    def listen(event: str, args: tuple) -> None:
        if event == "open" and "/runs/" in str(args[0]):
            read[str(args[0])] += 1

    def laying(base, row, *seed):
        laid[row.name] += 1
        return lay(base, row, *seed)

    study.apply = laying
    sys.addaudithook(listen)
    assert make("made", made.root, "A-h1").render("html")
    return read, laid


def test_a_report_reads_a_record_once_and_lays_a_row_on_base_once(made):
    read, laid = in_child(lambda: readings(made))
    runs = {name: {n for path, n in read.items() if path.endswith(name)} for name in ("result.json", "metrics.jsonl")}
    # a record without a checksum is asked for one once more, by the score of its own file
    assert runs == {"result.json": {2}, "metrics.jsonl": {1}} and laid == {"base": 1, "A-h1": 1}


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
    found = run_facts(FilledCell("base", 1, Path("x"), made))
    two_one = "steps 41\u201390: a CPU, 2 process(es) of 1 thread(s); steps 91\u2013120: a CPU, 1 process(es)"
    assert two_one in found["hardware"]
    assert found["versions"] == "steps 1\u201340: not recorded; steps 41\u2013120: torch 2.12"
    assert "process(es)" in run_facts(FilledCell("base", 1, Path("x"), record()))["hardware"]


# --- which record belongs into which cell ---


BASE = Experiment(miniature=Miniature(width=8, depth=2, steps=100))
PRINTS = Fingerprints("train text", "dev set")
STUDY = ablation(all_rows(), base=BASE, prints=PRINTS)


def refusal(record: RunRecord, row: Row, seed: int) -> str | None:
    missing = misfit(record, STUDY, row, seed)
    return missing.reason if missing else None


def test_a_record_fits_its_own_cell_and_no_other():
    rows = all_rows()
    for row in rows.values():
        own = record_of(apply(BASE, row, 3), PRINTS)
        assert refusal(own, row, 3) is None
        assert "training.seed is 3, the cell asks for 4" in str(refusal(own, row, 4))
        for other in rows.values():
            assert (refusal(own, other, 3) is None) == (other is row)


def test_what_a_cell_refuses():
    row = all_rows()["A-h4"]
    right = apply(BASE, row, 1)
    more = record_of(replace(right, training=replace(right.training, warmup=500)), PRINTS)
    assert refusal(more, row, 1) == "a different experiment: training.warmup is 500, the cell asks for 4000"
    assert "train is other text" in str(refusal(record_of(right, replace(PRINTS, train="other text")), row, 1))
    beam = replace(right, evaluation=replace(BASE.evaluation, beam=1))
    assert "a different evaluation" in str(refusal(record_of(beam, PRINTS), row, 1))
    own = record_of(right, PRINTS)
    assert refusal(replace(own, scores={}), row, 1) == "no dev score"
    assert "does not yield" in str(refusal(replace(more, training_hash=training_hash(own.identity)), row, 1))
    assert refusal(record_of(right, PRINTS, ppl=0.0), row, 1) == "its dev ppl is 0.0, its dev bleu 50.0"
    assert refusal(replace(own, data=Texts(train=PRINTS.train)), row, 1) is None
    edited = str(refusal(replace(own, data=Texts(train="another text")), row, 1))
    assert "trained on another text (another text…) than it is named by (train text…)" in edited
    lost = record_of(right, PRINTS, ppl=math.inf, nll=8120.0)
    assert "diverged: dev PPL is infinite (nll 812 per token)" in str(refusal(lost, row, 1))
    assert "bleu 100.5" in str(refusal(record_of(right, PRINTS, bleu=100.5), row, 1))


def test_big_declares_its_steps():
    big = all_rows()["big"]
    short = apply(BASE, replace(big, change={k: v for k, v in big.change.items() if k != "training.steps"}), 1)
    assert "training.steps is 1000, the cell asks for 3000" in str(refusal(record_of(short, PRINTS), big, 1))


# --- a diverged row is called that, is averaged over nothing, and leaves every other row as it is without it ---


ROWS, SEEDS = ["base", "A-h1", "A-h4", "C-N2", "D-Pdrop0.0"], [1, 2, 3, 4]


@pytest.fixture
def studies(generator):
    """The same study with a row that diverged in two of four seeds (at a perplexity of 46 digits), and without it."""
    made = generator(ROWS, SEEDS, "made")
    made.write_all({"A-h1": 0.3, "C-N2": 0.1})
    row = made.study.rows[-1]
    for seed in SEEDS:
        folder = made.write(row, seed, 100.0) if seed < 3 else made.folder(row, seed)
        write_lines(folder.metrics, diverging(4.9 if seed < 3 else 2.5))
    without = generator(ROWS[:-1], SEEDS, "without")
    return made, make("made", made.root), make("without", without.root)


def test_every_other_row_is_what_it_is_in_the_study_without_it(studies):
    _, one, other = studies
    rows = {row.name: row for row in other.summary.rows}
    for row in one.summary.rows[1:-1]:
        assert row == rows[row.name], "interval and adjusted p, in perplexity and in BLEU"
        assert row.ppl.difference.p is not None


def test_it_has_no_mean_of_its_survivors_and_no_word_but_diverged(studies):
    made, one, _ = studies
    row = one.summary.rows[-1]
    write_json(made.folder(made.study.rows[-1], 3).path / "report/softmax.json", {"lines": 7})
    drawn = curves(one.summary, one.cells, forest_of(one.summary)).rows
    assert list(drawn) == list(one.summary.analyses["lengths"][1]) == ROWS[:-1] and not one.cells.collected("softmax")
    assert (row.diverged, row.n, row.ppl.mean, row.metric("bleu").mean) == ([1, 2], 4, None, None)
    assert {row.ppl.difference.verdict, row.metric("bleu").difference.verdict} == {"diverged"}
    assert row.ppl.difference.p is None and row.ppl.difference.estimate is None
    assert all(words in row.missing["1"] for words in ("rose from", "learning rate 0.1", "lr_factor"))


def test_status_and_dashboard_count_it_and_do_not_call_it_best(studies, capsys):
    made, *_ = studies
    row = made.study.rows[-1]
    assert main(["status", "made", "--json", "--out", str(made.root)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["diverged"] == 2 and said["counts"]["finished"] == 20 and said["best"]["row"] != row.name
    assert main(["status", "made", "--out", str(made.root)]) == 0
    assert "20 finished, 0 running, 0 waiting, 0 failed, 2 diverged" in capsys.readouterr().out
    seen = Board(made.root, every=0).look()
    assert (seen.studies["made"].diverged, seen.studies["made"].best.row) == (2, said["best"]["row"])
    page = study_page.page(Board(made.root), seen, "made")
    assert "2 diverged" in page.news().body()


def test_beside_a_diverged_base_nothing_is_tested(generator):
    made = generator(["base", "A-h1"], SEEDS)
    made.write_all({"A-h1": 0.3})
    write_lines(made.folder(made.study.rows[0], 2).metrics, diverging(9.0))
    base, row = make("made", made.root).summary.rows
    assert base.diverged == [2] and base.ppl.mean is None
    assert (row.ppl.difference.verdict, row.ppl.difference.why) == ("not testable", "seeds of base diverged")


def test_a_loss_that_is_not_finite_and_a_perplexity_that_overflowed_are_of_the_same_family(generator):
    made = generator(["base", "A-h1", "A-h4"], SEEDS, "made")
    made.write_all(skip=[("A-h1", 3)])
    h1, h4 = made.study.rows[1:]
    folder = made.folder(h1, 3)
    write_json(folder.outcome, {"outcome": "nan_loss", "reason": "the loss was nan", "step": 9, "attempt": 1})
    record = json.loads(made.folder(h4, 2).result.read_text())
    record["scores"]["dev"]["ppl"] = "Infinity"
    made.folder(h4, 2).result.write_text(json.dumps(record))
    (made.folder(h4, 2).scores(made.study.evaluation_of(h4)) / "val.json").unlink()
    rows = make("made", made.root).summary.rows
    assert [row.diverged for row in rows] == [None, [3], [2]]
    assert all(row.ppl.difference.beside == "1 of 4" for row in rows[1:])
    board = Board(made.root, every=0)
    seen = board.look()
    shown = study_page.page(board, seen, "made").data["rows"]
    assert [row["ppl"].get("instead") for row in shown] == [None, "diverged (1 of 4)", "diverged (1 of 4)"]
    assert seen.studies["made"].best.row == "base" and fields(seen)["diverged"].of(seen.runs[folder.path.name])
