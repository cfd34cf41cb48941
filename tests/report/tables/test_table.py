"""The table: a pure function of the records, blank where a row equals base, and honest about what is missing."""

import csv
import io
import json
import math
from dataclasses import replace
from statistics import stdev

import pytest

from lightning_tfm.config import Experiment, Miniature
from lightning_tfm.report.blocks import Column, Table
from lightning_tfm.report.build import render_table
from lightning_tfm.report.build_summary import tabulate
from lightning_tfm.report.render import text as terminal
from lightning_tfm.report.tables import of_the_paper
from lightning_tfm.runs.record import Missing, RunRecord
from lightning_tfm.study.rows import Fingerprints, all_rows, apply
from lightning_tfm.study.study import Ablation
from tests.helpers.studies import record_of

PRINTS = Fingerprints("train text", "dev set")
V = 500


def study(seeds, miniature=True):
    base = Experiment(miniature=Miniature(8, 2, 100) if miniature else Miniature())
    return Ablation(
        name="table3", base=base, rows=list(all_rows().values()), seeds=seeds, prints=PRINTS, V=V, store="store"
    )


def record(s: Ablation, row, seed: int, ppl: float, bleu: float, **changes) -> RunRecord:
    return record_of(apply(s.base, row, seed), PRINTS, V, ppl=ppl, bleu=bleu, **changes)


def full(seeds=(1,), miniature=True):
    s = study(list(seeds), miniature)
    found = {
        (row.name, seed): record(s, row, seed, 1.5 + i / 10 + seed / 100, 40 + i + seed / 10)
        for i, row in enumerate(s.rows)
        for seed in seeds
    }
    return s, found


def test_one_seed_fits_a_narrow_terminal_with_every_column_of_the_paper():
    text = render_table(tabulate(*full()), "text", 84)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 84
    heads = " ".join(lines[:3])
    for word in ("row", "N", "h", "drop", "eps", "pos", "steps", "PPL", "BLEU", "paper"):
        assert word in heads
    (h1,) = [line for line in lines if line.startswith("A-h1 ")]
    assert h1.split() == [
        "A-h1",
        "1",
        "512",
        "512",
        "380K",
        "1.61",
        "41.1",
        "5.29",
        "24.9",
    ]  # blank where equal to base
    (base,) = [line for line in lines if line.startswith("base ")]
    values = "6 512 2048 8 64 64 0.1 0.1 sin 100K 380K 1.51 40.1 4.92 25.8 65".split()
    assert base.split()[1:] == values
    assert "width ÷ 8, depth ÷ 2, steps ÷ 100" in text.replace("\n", " ")


@pytest.mark.parametrize(("seeds", "miniature"), [((1,), True), ((1, 2, 3), True), ((1,), False), ((1, 2), False)])
def test_where_it_does_not_fit_changes_are_spelled_out_in_words_of_their_labels(seeds, miniature):
    text = render_table(tabulate(*full(seeds, miniature)), "text", 80)
    assert max(map(len, text.splitlines())) <= 80
    assert " learned positions " in " ".join(text.split())
    assert " 16 heads " in text and "4.91 25.8" in text
    unlabelled, records = full(seeds, miniature)
    unlabelled = replace(unlabelled, rows=[replace(row, label="") for row in unlabelled.rows])
    assert "pos=learned" in render_table(tabulate(unlabelled, records), "text", 80)


def test_a_wide_terminal_shows_all_columns_of_the_full_size():
    text = render_table(tabulate(*full(miniature=False)), "text", 120)
    (big,) = [line for line in text.splitlines() if line.startswith("big ")]
    assert big.split() == [
        "big",
        "the",
        "big",
        "model",
        "1024",
        "4096",
        "16",
        "0.3",
        "300K",
        "176.8M",
        "3.41",
        "59.1",
        "4.33",
        "26.4",
        "213",
    ]


def test_several_seeds_are_mean_and_deviation():
    s, found = full((1, 2, 4))
    row = json.loads(render_table(tabulate(s, found), "json"))["rows"][1]
    ppl = [found["A-h1", seed].scores["dev"].ppl for seed in (1, 2, 4)]
    assert row["ppl"]["mean"] == pytest.approx(math.prod(ppl) ** (1 / 3))
    assert row["ppl"]["sd %"] == pytest.approx(100 * stdev(map(math.log, ppl)))
    assert row["ppl"]["by seed"] == {"1": ppl[0], "2": ppl[1], "4": ppl[2]}
    assert row["n"] == 3


def test_the_same_records_give_the_same_bytes_in_any_order():
    s, found = full((1, 2))
    a, b = tabulate(s, found), tabulate(s, dict(reversed(found.items())))
    for kind in ("text", "markdown", "csv", "json"):
        assert render_table(a, kind) == render_table(b, kind)


def test_empty_cells_say_why():
    s, found = full()
    found["A-h1", 1] = Missing("running at step 5 of 1000")
    found["big", 1] = record(s, all_rows()["base"], 1, 1.0, 99.0)  # another row's record
    del found["C-N2", 1]
    built = tabulate(s, found)
    for text in (
        render_table(built, "text", 80),
        render_table(built, "markdown"),
        render_table(built, "csv"),
        render_table(built, "json"),
    ):
        flat = " ".join(text.split())
        assert "running at step 5 of 1000" in flat
        assert "a different experiment" in flat and "the cell asks for" in flat
        assert "not asked for" in flat
        assert "99.0" not in flat
    (h1,) = [line for line in render_table(built, "text", 80).splitlines() if line.startswith("A-h1 ")]
    assert h1.split()[-4:] == ["–", "–", "5.29", "24.9"]


def test_csv_and_markdown_hold_every_row_and_column():
    built = tabulate(*full())
    rows = list(csv.DictReader(io.StringIO(render_table(built, "csv"))))
    assert [r["row"] for r in rows] == list(all_rows())
    assert rows[7]["N"] == "1" and rows[7]["d_model"] == "64" and rows[7]["paper ppl"] == "6.11"
    heads = render_table(built, "csv").splitlines()[0].split(",")
    assert len(set(heads)) == len(heads) and "ppl sd %" in heads
    cells = [line.count("|") for line in render_table(built, "markdown").splitlines() if line.startswith("|")]
    assert len(cells) == 22 and len(set(cells)) == 1


def test_parameter_counts_say_which_agree():
    rows = all_rows()
    found = of_the_paper.parameter_counts(Experiment(), 37000, rows.values())
    assert sum(c.agrees is True for c in found) == 0  # facts: none of 11 with the paper's own vocabulary
    assert "0 of 11 published counts with 37,000 tokens" in terminal.to_text(of_the_paper.count_blocks(found, 37000))
    assert json.loads(of_the_paper.counts_json(found, 37000))["rows"][0]["computed"] == 63_045_632


def test_a_terminal_of_60_columns_is_not_exceeded_by_one():
    """A name, seeds, a score, an interval, and a verdict whose verdicts are shorter than its room."""
    heads = [Column("row", True), Column("n"), Column("PPL"), Column("Δ, %"), Column("word", True)]
    line = ["C-dmodel1024", "5", "1.73 ± 0.4 %", "+18.7 [+16.1, +21.4]", "same direction, × 1.02 [0.81, 1.23]"]
    text = terminal.to_text([Table("", heads, [line], dense=True)], 60)
    assert max(map(len, text.splitlines())) <= 60 and "direction," in text
