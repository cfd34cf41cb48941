"""The table: a pure function of the records, with a column for what rows change, and honest about what is missing."""

import json
from dataclasses import replace

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment
from lightning_tfm.report.blocks import Column, Table
from lightning_tfm.report.build_summary import tabulate
from lightning_tfm.report.records import read_cells
from lightning_tfm.report.render import text as terminal
from lightning_tfm.report.render.text import to_text
from lightning_tfm.report.study_report import make, render_table
from lightning_tfm.report.summary import Difference, Scores, SummaryRow
from lightning_tfm.report.tables import columns, of_the_paper
from lightning_tfm.report.tables import main_table as table
from lightning_tfm.report.tables.main_table import table_lines
from lightning_tfm.report.tables.paper_table import paper_latex
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Machine, Measure, Missing, Seconds, to_plain
from lightning_tfm.study.rows import all_rows
from tests.golden.synthetic import OWN, table3
from tests.helpers.studies import DEV, Generator, cells_of, own_row, record, record_of, summary, summary_row


def test_the_same_records_give_the_same_bytes_in_any_order():
    s, found = table3((1, 2))
    a, b = tabulate(cells_of(s, found)), tabulate(cells_of(s, dict(reversed(found.items()))))
    for kind in ("text", "markdown", "csv", "json"):
        assert render_table(a, kind) == render_table(b, kind)


def test_empty_cells_say_why():
    s, found = table3()
    found["A-h1", 1] = Missing("running at step 5 of 1000")
    found["big", 1] = record_of(s.base, ppl=1.0, bleu=99.0)  # another row's record
    del found["C-N2", 1]
    built = tabulate(cells_of(s, found))
    for kind in ("text", "markdown", "csv", "json"):
        flat = " ".join(render_table(built, kind).split())
        assert "running at step 5 of 1000" in flat and "not asked for" in flat and "99.0" not in flat
        assert "a different experiment" in flat and "the cell asks for" in flat
    (h1,) = [line for line in render_table(built, "text", 80).splitlines() if line.startswith("A-h1 ")]
    assert h1.split()[-4:] == ["–", "–", "5.29", "24.9"]


def test_parameter_counts_say_which_agree():
    rows = all_rows()
    found = of_the_paper.parameter_counts(Experiment(), 37000, rows.values())
    assert sum(c["agrees"] is True for c in found) == 0  # facts: none of 11 with the paper's own vocabulary
    assert "0 of 11 published counts with 37,000 tokens" in terminal.to_text(of_the_paper.count_blocks(found, 37000))
    assert json.loads(of_the_paper.counts_json(found, 37000))["rows"][0]["computed"] == 63_045_632


def test_a_terminal_of_60_columns_is_not_exceeded_by_one():
    """A name, seeds, a score, an interval, and a verdict whose verdicts are shorter than its room."""
    heads = [Column("row", True), Column("n"), Column("PPL"), Column("Δ, %"), Column("word", True)]
    line = ["C-dmodel1024", "5", "1.73 ± 0.4 %", "+18.7 [+16.1, +21.4]", "same direction, × 1.02 [0.81, 1.23]"]
    text = terminal.to_text([Table("", heads, [line], dense=True)], 60)
    assert max(map(len, text.splitlines())) <= 60 and "direction," in text


# --- every field that a row changes is a column, in every format; what no row changes is said once ---


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Generator(tmp_path_factory.mktemp("c"), ["base", *OWN], [1, 2, 3])
    made.write_all({"pre": 0.2})
    return made


def table_of(made):
    return tabulate(read_cells(made.study, made.root))


def test_a_fact_of_rows_is_one_line_and_every_view_has_it(study, monkeypatch):
    monkeypatch.setattr(SummaryRow, "body", 7, raising=False)
    added = columns.Fact("body", "counted", "how many", "{:.0f} of them".format, brief=True)
    columns.FACTS.append(added)
    try:
        built, report = table_of(study), make("made", study.root)
        views = [render_table(built, "text", 200), render_table(built, "markdown"), paper_latex(built)]
        views += [report.render(kind) for kind in ("markdown", "latex", "html")]
        assert all("counted" in view and " of them" in view for view in views)
        csv = (render_table(built, "csv"), report.render("csv"))
        assert [view.splitlines()[0].split(",").count("body") for view in csv] == [1, 1]
        assert [line["body"] for line in table_lines(report.summary)] == [7] * len(report.summary.rows)
    finally:
        columns.FACTS.remove(added)


def test_a_class_of_the_users_is_not_cut_to_three_letters(study):
    base, name = table_of(study).rows[0], "tests.testing.schemes.Mine"
    changed = columns.columns_of([own_row("mine", {"model.positions": name})])
    row = replace(base, values=base.values | {"positions": name}, blank=[])
    assert columns.narrow_value(row, "positions") == name and changed["positions"] == ("model", "positions")
    assert columns.narrow_value(base, "positions") == "sin"


def test_long_names_of_combinations_fit_eighty_columns(generator):
    change = {"model.norm": "pre", "training.lr_factor": 0.35}
    rows = [own_row(f"norm=pre, warmup={n}, lr_factor=0.35", change | {"training.warmup": n}) for n in (150, 200, 250)]
    made = generator(["base", *rows], [1, 2, 3])
    made.write_all()
    text = render_table(table_of(made), "text", 80).splitlines()
    assert max(map(len, text)) <= 80
    assert any(line.startswith("norm=pre, warmup=150, ") for line in text) and "lr_factor=0.35" in text


def test_over_a_base_of_another_size_the_names_of_the_papers_rows_are_told_to_be_names(study):
    built = tabulate(cells_of(replace(study.study, rows=[all_rows()[name] for name in ("base", "C-N2")]), {}))
    rows = [replace(row, values=row.values | {"N": n}, typed={}) for row, n in zip(built.rows, (3, 1), strict=True)]
    told = "sizes are those trained, row names the paper's"
    assert told in render_table(replace(built, scale="", rows=rows), "text", 200)
    full = [replace(row, values=row.values | dict(N=6, d_model=512, d_ff=2048, h=8, d_k=64, d_v=64)) for row in rows]
    assert told not in render_table(replace(built, scale="", rows=full), "text", 200)


def test_a_page_has_room_for_the_differences_of_two_metrics_and_the_means_of_all():
    of = {name: Scores(5.0, None, {"1": 5.0}, Difference("undecided", "", None)) for name in ("ppl", "bleu", "chrf")}
    report = summary([summary_row("base", base=True), replace(summary_row("A-h1", "worse"), scores=of)])
    on = {c.key: c.on for c in table.page(report).columns}
    assert [on.get(key) for key in ("ppl-d", "bleu-d", "chrf-d", "chrf-word")] == [True, True, False, None], (
        "a verdict's column without a word is none"
    )
    assert on["ppl"] and on["bleu"] and on["chrf"]


# --- the paper's Table 2: its figures as printed, our runs below them by their records alone ---


def write(root, name: str, corpus: str, paper_bleu: float | None, **changes) -> None:
    folder = RunFolder(root, name * 64)
    attempt = folder.claim()
    data = {"corpus": corpus, "source": "en", "target": "de", "test": "newstest2014"}
    made = record(training_hash=folder.training_hash, experiment={"data": data}, **changes)
    attempt.write_json(folder.result, to_plain(made))
    attempt.write_json(folder.cell, {"row": "base", "seed": 3})
    score = replace(DEV, split="newstest2014", bleu=26.71, weights="average")
    both = replace(score, measures={"paper_bleu": Measure(paper_bleu or 0.0, "p")})
    path = folder.scores("f" * 64) / "newstest2014.json"
    attempt.write_json(path, to_plain(both if paper_bleu else score))
    attempt.release()


def test_the_paper_s_costs_are_its_own_arithmetic():
    rows = {line.name: line for line in of_the_paper.table2_lines(of_the_paper.FACTS.parent)}
    assert len(rows) == 10
    assert abs(12 * 3600 * 8 * 9.5e12 / rows["Transformer base"].flops["en-de"] - 1) < 0.01
    assert abs(3.5 * 86400 * 8 * 9.5e12 / rows["Transformer big"].flops["en-fr"] - 1) < 0.01
    assert all(line.source and set(line.bleu) >= set(line.flops) for line in rows.values())


def test_our_runs_stand_below_it(tmp_path, capsys):
    cost = {"seconds": Seconds(train=10_000.0, total=10_100.0), "hardware": Machine(processes=8), "flops": 2.6e18}
    for name, corpus, paper_bleu in (
        ("a", "wmt14-en-de", 27.18),
        ("b", "wmt14-en-de", None),
        ("c", "files", 99.0),  # a text of that name, but whose?
    ):
        write(tmp_path, name, corpus, paper_bleu, **cost)
    assert main(["table", "--table2", "--out", str(tmp_path), "--format", "json"]) == 0
    ours = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["sacrebleu"]]
    assert [(row["bleu"], row["flops"], row["sacrebleu"]["en-de"], row["counted"]) for row in ours] == [
        ({"en-de": 27.18}, {}, 26.71, 2.6e18),
        ({}, {}, 26.71, 2.6e18),
    ]
    assert main(["table", "--table2", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first = next(line.split() for line in text.splitlines() if "seed 3" in line)
    assert first[-3:] == ["27.18", "26.71", "2.6e+18"]
    assert "adds it" in text
    assert main(["table", "mine", "--table2"]) == 2


def test_a_verdict_takes_one_line_where_names_are_folded():
    heads = [Column("row", words=True), Column("verdict", words=True, kind="word")]
    text = to_text([Table("", heads, [["a long name of a row", "undecided, ~22 seeds"]])], 36)
    assert "undecided, ~22 seeds" in text and "a long name of a row" not in text
    assert max(map(len, text.splitlines())) <= 36
