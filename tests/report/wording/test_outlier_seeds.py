"""Seeds far above the others of their row are marked, and nothing else is."""

import re
from dataclasses import replace

import numpy as np

from lightning_tfm.cli.train.carry_out import _printed
from lightning_tfm.report.build import make, render_table
from lightning_tfm.report.wording.notes import to_words
from lightning_tfm.report.wording.outlier_seeds import far_above, phrases
from tests.helpers.studies import summary_row


def test_a_seed_far_above_its_row_is_marked_and_one_below_is_not():
    rows = {"a": {1: 0.70, 2: 0.71, 3: 0.72, 4: 1.9}, "b": {1: 0.5, 2: 0.51, 3: 0.49, 4: 0.1}, "few": {1: 0.1, 2: 9.0}}
    assert far_above(rows) == {"a": [4], "b": []}
    assert far_above({}) == {} and far_above({"a": {1: 1.0, 2: 1.0, 3: 2.0}}) == {"a": []}


def test_three_seeds_that_chance_put_close_together_condemn_no_third():
    steady = {str(i): {1: 0.0, 2: 0.1, 3: -0.1} for i in range(5)}
    assert far_above(steady | {"a": {1: 0.0, 2: 0.001, 3: 0.1}})["a"] == []
    assert far_above({"a": {1: 0.0, 2: 0.001, 3: 0.1}})["a"] == [3]


def test_as_many_are_marked_as_it_says():
    rng, marked, hit, rows = np.random.default_rng(0), 0, [], 400
    for _ in range(rows // 20):
        y = rng.normal(size=(20, 5))
        marked += sum(map(bool, far_above({str(i): dict(enumerate(r)) for i, r in enumerate(y)}).values()))
        y[np.arange(20), rng.integers(0, 5, 20)] += 10
        hit += map(bool, far_above({str(i): dict(enumerate(r)) for i, r in enumerate(y)}).values())
    assert marked / rows < 0.06 and np.mean(hit) > 0.6


def test_the_report_says_it_everywhere(generator):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3, 4])
    made.write_all()
    made.write(made.study.rows[1], 3, 0.9)
    report = make("made", made.root)
    assert [r.far_above for r in report.summary.rows] == [[], [3], []]
    for text in (report.render("html"), report.render("markdown"), render_table(report.summary, "text", 200)):
        assert re.search("seed 3 of one head is far above the others of its row", text, re.IGNORECASE)
    assert ",3," in report.render("csv").splitlines()[2]


def test_the_terminal_counts_the_words_and_names_the_claims(generator):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.3})
    lines = to_words(make("made", made.root).summary, 100).splitlines()
    assert lines[0] == "PPL, 2 rows: 1 same direction; 1 undecided (over seeds: this corpus, this scale)" and lines[
        1
    ].startswith("BLEU, 2 rows: ")
    assert lines[2].startswith("“One attention head is worse than eight, the best setting.” supported (p ")


def test_a_sweep_ends_with_differences_and_verdicts(generator, capsys):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.3})
    _printed(make("made", made.root), several=True)
    told = capsys.readouterr().out
    assert told.startswith("differences to base") and "PPL, 2 rows: 1 same direction" in told
    assert told.index("Δ, %") < told.index("PPL, 2 rows")


def test_the_table_names_each_cell_that_is_left_out_and_why(generator):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3, 4])
    made.write_all()
    made.folder(made.study.rows[1], 2).result.write_text("{")
    made.folder(made.study.rows[2], 3).result.unlink()
    lines = render_table(make("made", made.root).summary, "text", 200)
    assert re.search(r"its record cannot be read: .*: A-h1/2\n", lines) and "not run yet: A-h4/3" in lines


def test_the_terminal_says_once_that_one_seed_is_not_tested(generator):
    made = generator(["base", "A-h1", "A-h4"], [7])
    made.write_all({"A-h1": 0.3})
    assert to_words(make("made", made.root).summary, 100).splitlines() == [
        "No difference to base can be tested: 1 seed, a verdict needs 2.",
        "--seeds 7-8 gives every row a verdict; finished runs are not repeated.",
    ]


def test_more_seeds_are_no_remedy_where_base_is_missing(generator):
    made = generator(["A-h1", "A-h4"], [7])
    made.write_all()
    assert to_words(make("made", made.root).summary, 100).splitlines() == [
        "No row of this study is base, so nothing is compared."
    ]


def test_a_seed_that_is_far_above_in_many_rows_is_said_once():
    rows = [replace(summary_row(f"r{i}", "undecided"), far_above=[1]) for i in range(4)]
    rows.append(replace(summary_row("s", "undecided"), far_above=[2]))
    assert phrases(rows) == [
        "seed 1 is far above the others in 4 rows",
        "seed 2 of s is far above the others of its row",
    ]
    assert phrases(rows[:2]) == ["seeds 1 of r0, 1 of r1 are far above the others of their rows"]
