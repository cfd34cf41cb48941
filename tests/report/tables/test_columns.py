"""Every field that a row changes is a column, in every format; what no row changes is said once."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from lightning_tfm.report.build import make, render_table
from lightning_tfm.report.build_summary import tabulate
from lightning_tfm.report.records import collect
from lightning_tfm.report.row import Difference, Scores, SummaryRow
from lightning_tfm.report.tables import extra_columns
from lightning_tfm.report.tables import views as table
from lightning_tfm.report.tables.data_lines import lines
from lightning_tfm.report.tables.paper_table import to_latex
from lightning_tfm.study.rows import Paper, Row, all_rows
from tests.helpers.studies import summary, summary_row

NOT_PRINTED = Paper(None, None, None)


def own(name, **change):
    keys = {f"{'model' if key in ('norm', 'init', 'attention_bias') else 'training'}.{key}": key for key in change}
    return Row(name, "X", {dotted: change[key] for dotted, key in keys.items()}, NOT_PRINTED, "mine.yaml:1")


MINE = [
    own("pre", norm="pre"),
    own("pre-short", norm="pre", warmup=200),
    own("slow", lr_factor=0.5, warmup=200),
    own("long", steps=200_000),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    from tests.helpers.studies import Generator

    made = Generator(tmp_path_factory.mktemp("c"), [all_rows()["base"], *MINE], [1, 2, 3])
    made.write_all({"pre": 0.2})
    return made


def table_of(made):
    return tabulate(made.study, collect(made.study, made.root))


def test_what_rows_change_are_columns_of_the_text(study):
    lines = render_table(table_of(study), "text", 80).splitlines()
    assert max(map(len, lines)) <= 80
    heads = " ".join(" ".join(lines[:2]).split())
    assert "train" in heads and "warm-" in heads and "norm" in heads and "lr" in heads and "factor" in heads
    assert "paper" not in "".join(lines).replace("miniature of the paper", "")
    words = {
        line.split()[0]: line.split()[1:]
        for line in filter(None, lines)
        if line.split()[0] in ("base", "pre-short", "slow")
    }
    assert words["base"][:4] == ["100K", "post", "400", "1.0"]
    assert words["pre-short"][:2] == ["pre", "200"] and words["slow"][:2] == ["200", "0.5"]
    sizes = "N=6 (3), d_model=512 (64), d_ff=2048 (256), h=8, d_k=64 (8)"
    assert f"the same in every row: {sizes}" in " ".join(" ".join(lines).split())


def test_and_of_markdown_csv_json_and_latex(study):
    built, report = table_of(study), make("made", study.root)
    heads = render_table(built, "markdown").splitlines()[0]
    assert heads == "| group | row | train steps | norm | warmup | lr_factor | params | n | dev PPL | dev BLEU |"
    rows = {row["row"]: row for row in csv.DictReader(io.StringIO(render_table(built, "csv")))}
    assert (rows["slow"]["norm"], rows["slow"]["warmup"], rows["slow"]["lr_factor"]) == ("post", "200", "0.5")
    assert rows["slow"]["d_model"] == "64" and "paper PPL" not in rows["slow"]
    found = {row["row"]: row for row in json.loads(render_table(built, "json"))["rows"]}
    assert found["pre"]["values"]["norm"] == "pre" and found["base"]["paper"]["ppl"] is None
    tex = report.render("latex")
    assert r"row & steps & norm & warmup & lr\_factor & mean ($\pm$\,\%) & $\Delta$\,\%" in tex
    assert "The same in every row: $N$~6 (3)" in tex
    rows = {row["row"]: row for row in csv.DictReader(io.StringIO(report.render("csv")))}
    assert rows["pre-short"]["norm"] == "pre" and rows["pre-short"]["warmup"] == "200"
    assert "norm=pre, warmup=200" in report.render("markdown")


def test_and_of_the_page(study):
    page = make("made", study.root).render("html")
    for name in ("norm", "warmup", "lr_factor", "train steps"):
        assert f'<button type="button"><bdi>{name}</bdi></button>' in page
    assert '<td class="c-f1 wide" data-v="pre"><bdi>pre</bdi></td>' in page
    assert "<bdi>norm pre, warmup 200</bdi>" in page
    assert "d_model 512 (64)" in page and "<bdi>PPL against base</bdi>" in page and "paper PPL" not in page


def test_a_fact_of_rows_is_one_line_and_every_view_has_it(study, monkeypatch):
    monkeypatch.setattr(SummaryRow, "body", 7, raising=False)
    added = extra_columns.Fact("body", "counted", "how many", "{:.0f} of them".format, brief=True)
    extra_columns.FACTS.append(added)
    try:
        built, report = table_of(study), make("made", study.root)
        views = [render_table(built, "text", 200), render_table(built, "markdown"), to_latex(built)]
        views += [report.render(kind) for kind in ("markdown", "latex", "html")]
        assert all("counted" in view and " of them" in view for view in views)
        assert all(
            view.splitlines()[0].split(",").count("body") == 1
            for view in (render_table(built, "csv"), report.render("csv"))
        )
        assert [line["body"] for line in lines(report.summary)] == [7] * len(report.summary.rows)
    finally:
        extra_columns.FACTS.remove(added)


def test_beside_rows_of_the_paper_all_its_columns_stand(generator):
    made = generator([all_rows()[name] for name in ("base", "A-h4")] + MINE[:2], [1])
    built = table_of(made)
    heads = render_table(built, "markdown").splitlines()[0]
    assert heads.startswith(
        "| group | row | label | N | d_model | d_ff | h | d_k | d_v | P_drop | eps_ls | positions | train"
    )
    assert "| norm | warmup | params |" in heads and heads.endswith("| paper PPL | paper BLEU | paper params |")
    text = render_table(built, "text", 80)
    assert max(map(len, text.splitlines())) <= 80 and "norm=pre" in text
    wide = render_table(built, "text", 120).splitlines()
    (line,) = [line for line in wide if line.startswith("pre-short ")]
    assert line.split()[1:3] == ["pre", "200"]


def test_a_class_of_the_users_is_not_cut_to_three_letters(generator):
    rows = [Row("mine", "X", {"model.positions": "tests.testing.schemes.Mine"}, NOT_PRINTED, "mine.yaml:1")]
    made = generator([all_rows()["base"]], [1])
    from lightning_tfm.report.tables import columns

    (base,) = table_of(made).rows
    held = columns.columns_of(rows)
    row = replace(base, values=base.values | {"positions": "tests.testing.schemes.Mine"}, blank=[])
    assert columns.brief(row, "positions") == "tests.testing.schemes.Mine" and held["positions"] == (
        "model",
        "positions",
    )
    assert columns.brief(base, "positions") == "sin"


def test_nothing_of_the_papers_stands_beside_rows_that_it_does_not_print(study):
    report, built = make("made", study.root), table_of(study)
    shown = [report.render(kind) for kind in ("html", "markdown", "csv", "latex")]
    shown += [
        render_table(built, "text", 80),
        render_table(built, "text", 120),
        render_table(built, "markdown"),
        render_table(built, "csv"),
    ]
    for one in shown:
        told = re.sub(r"<(style|script|svg).*?</\1>", "", one, flags=re.DOTALL)
        assert not re.search("paper|reproduced|contradicted|section 6.2|[^ -]4[.]92[^0-9]", told)
    assert "<strong>worse</strong>" in shown[0] and "**worse**" in shown[1]
    assert [row.ppl.difference.why for row in report.summary.rows[1:2]] == [
        "differs from base (over seeds: this corpus, this scale)"
    ]


def test_long_names_of_combinations_fit_eighty_columns(generator):
    names = [f"norm=pre, warmup={n}, lr_factor=0.35" for n in (150, 200, 250)]
    rows = [own(name, norm="pre", warmup=150 + i, lr_factor=0.35) for i, name in enumerate(names)]
    made = generator([all_rows()["base"], *rows], [1, 2, 3])
    made.write_all()
    lines = render_table(table_of(made), "text", 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("norm=pre, warmup=150, ") for line in lines) and "lr_factor=0.35" in lines


def test_over_a_base_of_another_size_the_names_of_the_papers_rows_are_told_to_be_names(study):
    built = tabulate(replace(study.study, rows=[all_rows()[name] for name in ("base", "C-N2")]), {})
    rows = [replace(row, values=row.values | {"N": n}, typed={}) for row, n in zip(built.rows, (3, 1), strict=True)]
    told = "sizes are those trained, row names the paper's"
    assert told in render_table(replace(built, scale="", rows=rows), "text", 200)
    full = [replace(row, values=row.values | dict(N=6, d_model=512, d_ff=2048, h=8, d_k=64, d_v=64)) for row in rows]
    assert told not in render_table(replace(built, scale="", rows=full), "text", 200)


def test_a_page_has_room_for_the_differences_of_two_metrics_and_the_means_of_all():
    of = {name: Scores(5.0, None, {"1": 5.0}, Difference("undecided", "", None)) for name in ("ppl", "bleu", "chrf")}
    report = summary([summary_row("base", base=True), replace(summary_row("A-h1", "worse"), scores=of)])
    on = {c.key: c.on for c in table.page(report).columns}
    assert [on[key] for key in ("ppl-d", "bleu-d", "chrf-d", "chrf-word")] == [True, True, False, False]
    assert on["ppl"] and on["bleu"] and on["chrf"]
