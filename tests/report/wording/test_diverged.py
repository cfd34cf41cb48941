"""A diverged row is called that, is averaged over nothing, and leaves every other row as it is without it."""

import json

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.study_page import StudyPages
from lightning_tfm.report.build import make, render_table
from lightning_tfm.report.build_summary import tabulate
from lightning_tfm.report.records import collect
from lightning_tfm.report.wording.notes import to_words

ROWS, SEEDS = ["base", "A-h1", "A-h4", "C-N2", "D-Pdrop0.0"], [1, 2, 3, 4]


def lines(end: float) -> str:
    course = [{"step": 5 * i, "nll": 3.0 if i < 20 else end, "lr": 0.1, "grad_norm": 7.0} for i in range(1, 41)]
    return "".join(json.dumps(line) + "\n" for line in course)


@pytest.fixture
def studies(generator):
    """The same study with a row that diverged in two of four seeds (at a perplexity of 46 digits), and without it."""
    made = generator(ROWS, SEEDS, "made")
    made.write_all({"A-h1": 0.3, "C-N2": 0.1})
    row = next(row for row in made.study.rows if row.name == "D-Pdrop0.0")
    for seed in SEEDS:
        folder = made.folder(row, seed)
        if seed < 3:
            folder = made.write(row, seed, 100.0)
        folder.metrics.write_text(lines(4.9 if seed < 3 else 2.5))
    without = generator(ROWS[:-1], SEEDS, "without")
    return made, make("made", made.root), make("without", without.root)


def test_every_other_row_is_what_it_is_in_the_study_without_it(studies):
    _, one, other = studies
    rows = {row.name: row for row in other.summary.rows}
    for row in one.summary.rows[1:-1]:
        assert row == rows[row.name], "interval and adjusted p, in perplexity and in BLEU"
        assert row.ppl.difference.p is not None


def test_it_has_no_mean_of_its_survivors_and_no_word_but_diverged(studies):
    _, one, _ = studies
    row = one.summary.rows[-1]
    assert (row.diverged, row.n, row.ppl.mean, row.metric("bleu").mean) == ([1, 2], 4, None, None)
    assert {row.ppl.difference.verdict, row.metric("bleu").difference.verdict} == {"diverged"}
    assert row.ppl.difference.p is None and row.ppl.difference.estimate is None
    assert (
        "rose from" in row.missing["1"] and "learning rate 0.1" in row.missing["1"] and "lr_factor" in row.missing["1"]
    )


def test_every_format_says_so_and_no_number_is_wider_than_its_column(studies):
    made, one, _ = studies
    found = collect(made.study, made.root)
    text = render_table(tabulate(made.study, found), "text", 100)
    assert "diverged (2 of 4)" in text and max(map(len, text.splitlines())) <= 100
    for kind in ("markdown", "html", "latex"):
        assert "diverged" in one.render(kind)
    assert "diverged (2 of 4)" in one.render("markdown") and "diverged (2 of 4)" in one.render("latex")
    assert "2 diverged" in one.render("html") and "1 diverged" in to_words(one.summary, 100)


def test_status_and_dashboard_count_it_and_do_not_call_it_best(studies, capsys):
    made, *_ = studies
    row = next(row for row in made.study.rows if row.name == "D-Pdrop0.0")
    made.folder(row, 1).metrics.write_text(lines(4.9))
    assert main(["status", "made", "--json", "--out", str(made.root)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["diverged"] == 2 and said["counts"]["finished"] == 20 and said["best"]["row"] != row.name
    assert main(["status", "made", "--out", str(made.root)]) == 0
    assert "20 finished, 0 running, 0 waiting, 0 failed, 2 diverged" in capsys.readouterr().out
    seen = Board(made.root, every=0).look()
    assert (seen.studies["made"].diverged, seen.studies["made"].best.row) == (2, said["best"]["row"])
    page = StudyPages(made.root).page(seen, "made")
    assert "2 diverged" in page.news().body()


def test_beside_a_diverged_base_nothing_is_tested(generator):
    made = generator(["base", "A-h1"], SEEDS)
    made.write_all({"A-h1": 0.3})
    made.folder(made.study.rows[0], 2).metrics.write_text(lines(9.0))
    base, row = make("made", made.root).summary.rows
    assert base.diverged == [2] and base.ppl.mean is None
    assert (row.ppl.difference.verdict, row.ppl.difference.why) == ("not testable", "seeds of base diverged")


def test_a_loss_that_is_not_finite_and_a_perplexity_that_overflowed_are_of_the_same_family(generator):
    made = generator(["base", "A-h1", "A-h4"], SEEDS, "made")
    made.write_all(skip=[("A-h1", 3)])
    h1, h4 = made.study.rows[1:]
    folder = made.folder(h1, 3)
    folder.path.mkdir(parents=True)
    folder.outcome.write_text(
        json.dumps({"outcome": "nan_loss", "reason": "the loss was nan", "step": 9, "attempt": 1})
    )
    record = json.loads(made.folder(h4, 2).result.read_text())
    record["scores"]["dev"]["ppl"] = "Infinity"
    made.folder(h4, 2).result.write_text(json.dumps(record))
    score = made.folder(h4, 2).scores(made.study.evaluation_of(h4)) / "val.json"
    score.unlink()
    rows = make("made", made.root).summary.rows
    assert [row.diverged for row in rows] == [None, [3], [2]]
    assert all(row.ppl.difference.beside == "1 of 4" for row in rows[1:])
