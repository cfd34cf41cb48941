"""Rows with other pieces or less text: compared by nll per reference word and BLEU, never by perplexity per piece."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lightning_tfm.bleu import text_size
from lightning_tfm.cli.main import main
from lightning_tfm.dashboard.reports import Reports
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.prepare import prepare
from lightning_tfm.errors import UserError
from lightning_tfm.queue.prepare_data_rows import raw_fingerprint, rows_data
from lightning_tfm.report.analyses.quality import strip
from lightning_tfm.report.charts.curves import curves
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.records import read_cells
from lightning_tfm.report.study_report import make, render_table, write_table
from lightning_tfm.study.rows import load_rows
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import from_plain, load_as, save
from tests.golden.synthetic import PIECES, pieces
from tests.helpers.studies import BASE, Generator, own_row

SEEDS = [1, 2, 3]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return pieces(tmp_path_factory.mktemp("data"), SEEDS)


@pytest.fixture(scope="module")
def report(made):
    return make("made", made.root)


def rows_of(report):
    return {row.name: row for row in report.summary.rows}


def test_what_a_word_and_a_character_are():
    assert text_size(" Über  zwei\tWörter. \u00a0x") == (4, 22) and text_size("") == (0, 0)


def test_rows_have_their_own_data_and_name_and_one_that_changes_nothing_is_base(made):
    study = made.study
    small, less, whole, wide = (study.rows[i] for i in (1, 2, 3, 4))
    assert study.data_of(small).V == 200 != study.V and study.data_of(wide).store == study.store
    prints = [study.data_of(row).prints.train for row in (small, less, study.rows[0])]
    assert len(set(prints)) == 3 and study.data_of(whole).prints == study.prints
    assert study.twins() == {"whole": "base"}
    cells = {cell.row: cell for cell in study.cells()}
    assert len({cell.training_hash for cell in cells.values()}) == 4
    experiment, identity = study.plan(cells["small"], made.root)
    assert experiment.data.vocab_size == 200 and identity["train"] == study.data_of(small).prints.train
    again = from_plain(json.loads(json.dumps(study.to_plain())), "here")
    assert again == study and load_as(Ablation, made.root, "made") == study
    assert "data" not in replace(study, rows=[study.rows[0], wide], data={}).to_plain()
    changed = replace(study, data={key: replace(one, V=7) for key, one in study.data.items()})
    with pytest.raises(UserError, match=r"the prepared data of data.vocab_size=200 differ"):
        save(changed, made.root)


def test_perplexity_is_refused_and_words_are_tested(report, made):
    rows = rows_of(report)
    assert report.summary.foreign == ["small", "less"]
    for name in ("small", "less"):
        found = rows[name].ppl.difference
        assert (found.verdict, found.estimate, found.p) == ("not comparable", None, None)
        assert "another vocabulary" in found.why
    assert rows["wide"].ppl.difference.verdict == "better" and rows["whole"].ppl.difference is None
    d = {name: row.word.difference for name, row in rows.items() if row.word.difference}
    assert d.keys() == {"small", "less", "wide"}
    cells = report.cells
    for name, found in d.items():
        means = [np.mean([c.dev.nll / c.dev.words for c in cells.of(row)]) for row in (name, "base")]
        assert found.estimate == pytest.approx(means[0] - means[1]) and found.lower < found.estimate < found.upper
    assert [d[name].verdict for name in d] == ["worse", "undecided", "better"]
    assert rows["small"].word.difference.se != pytest.approx(rows["small"].metric("bleu").difference.se)
    raw = sorted(2 * stats.t.sf(abs(one.estimate) / one.se, one.df) for one in d.values())
    assert min(one.holm for one in d.values()) == pytest.approx(3 * raw[0], rel=1e-6), "a family of all three"
    one = rows["wide"].ppl.difference
    assert one.holm == pytest.approx(2 * stats.t.sf(abs(one.estimate) / one.se, one.df), rel=1e-6), "a family of one"


def test_the_same_pieces_give_the_same_numbers_by_word_as_by_piece(report):
    """Words and pieces are in proportion there: the two metrics are one."""
    cells = report.cells
    pairs = [(c.value("ppl"), c.value("word")) for name in ("base", "wide") for c in cells.of(name)]
    ratio = {round(word / math.log(math.exp(ppl)), 9) for ppl, word in pairs}
    assert len(ratio) == 1


def test_pictures_of_perplexity_leave_them_out(report):
    """What people and programs read: tests/golden/made/pieces."""
    drawn = set(re.findall(r'class="series [^"]*" data-row="(\w+)"', report.render("html")))
    assert "small" not in drawn and "wide" in drawn
    assert "small, seed" not in (dots := strip(report.summary, {})) and "wide, seed" in dots
    pair = replace(report.summary, rows=[rows_of(report)[name] for name in ("base", "small")])
    course = curves(pair, report.cells, forest_of(pair))
    assert course.itself and not course.difference, "on the dashboard's page of a row"
    assert [Reports(report.cells.root).row("made", name)["to"] for name in ("small", "wide")] == ["", "base"]


def test_without_a_base_no_perplexity_is_compared_with_any(tmp_path):
    Generator(tmp_path, [PIECES[0], PIECES[-1]], SEEDS, by_word=True).write_all({"small": 0.2})
    report = make("made", tmp_path)
    page, paper = report.render("html"), report.render("latex")
    assert "small, wide have different vocabularies: perplexities per token" in report.render("markdown")
    assert "Different vocabularies, so that no perplexity is compared: small, wide." in paper
    assert not any(rf"\textbf{{{row.ppl.mean:.2f}}}" in paper for row in report.summary.rows)
    assert not any(f'id="section-{part}"' in page for part in ("quality", "curves"))


def test_the_marks_of_a_paper_s_table_are_explained_at_one_seed_too(tmp_path):
    Generator(tmp_path, ["base", *PIECES[:1]], [1], by_word=True).write_all()
    table, _, notes = make("made", tmp_path).render("latex").partition(r"\end{tabular}")
    assert r"$\ast$" in table and r"$\ast$ not comparable" in notes


def test_factors_of_the_data_are_compared_by_words(tmp_path):
    small, *_, wide = PIECES
    rows = ["base", small, wide, own_row("both", {**small.change, **wide.change})]
    Generator(tmp_path, rows, SEEDS, by_word=True).write_all({"small": 0.2, "both": 0.9})
    report = make("made", tmp_path)
    found = report.summary.analyses["factors"]
    assert {e.metric for e in found.effects} == {"word", "bleu"} == {m["metric"] for m in found.maps}
    cross = next(e for e in found.effects if e.kind == "interaction" and e.metric == "word")
    cells = {row.name: row.word.mean for row in report.summary.rows}
    assert cross.estimate == pytest.approx(cells["both"] - cells["wide"] - cells["small"] + cells["base"], abs=1e-6)
    assert cross.lower < cross.estimate < cross.upper and cross.p < 0.05
    assert "Dev nll per word by vocab_size and" in report.render("html")


def test_beside_perplexity_in_a_table_of_one_vocabulary_and_blank_in_old_records(tmp_path):
    for name, by_word in (("new", True), ("old", False)):
        one = Generator(tmp_path, ["base", "A-h1"], [1], name, by_word)
        one.write_all()
        table, summary = write_table(read_cells(one.study, tmp_path)), make(name, tmp_path)
        assert ("nll/" in render_table(table, "text", 200)) == by_word
        assert "nll/" not in render_table(table, "text", 80), "the paper's columns fill a terminal, and PPL says it all"
        assert all(("nll" in render_table(table, kind)) == by_word for kind in ("markdown", "csv", "json"))
        for kind in ("markdown", "csv", "json", "html"):
            assert bool(re.search("nll(/| per )word", summary.render(kind))) == by_word, kind
        assert summary.summary.foreign is None and "not comparable" not in summary.render("html")


def test_a_row_may_not_change_what_is_scored(tmp_path, made):
    file = tmp_path / "mine.yaml"
    file.write_text("mine: {group: X, change: {data.dev: other}}\n")
    with pytest.raises(UserError, match=r"mine.yaml:1: row 'mine': 'data.dev'.* must be the same .*data.vocab_size"):
        load_rows(file)
    prepared = prepare(BASE.data, made.root)
    other = [own_row("mine", {"data.pairs": 399})]
    if raw_fingerprint(prepare(replace(BASE.data, pairs=399), made.root), "val") == raw_fingerprint(prepared, "val"):
        assert rows_data(BASE, prepared, other, made.root)
    else:
        with pytest.raises(
            UserError, match=r"row 'mine' \(data.pairs=399\) changes the text 'val' that it is scored on"
        ):
            rows_data(BASE, prepared, other, made.root)


def test_unknown_pieces_of_the_references_are_refused_with_the_remedy(tmp_path, monkeypatch, made):
    monkeypatch.setattr(Prepared, "unknown_references", lambda self, split: 3)
    with pytest.raises(UserError, match=r"row 'small' \(data.vocab_size=200\): 3 tokens .*data.byte_fallback=true"):
        rows_data(BASE, prepare(BASE.data, made.root), made.study.rows[:2], made.root)
    assert rows_data(BASE, prepare(BASE.data, made.root), made.study.rows[4:], made.root) == {}


def test_unknown_pieces_of_the_test_text_count_where_vocabularies_differ(monkeypatch, made):
    monkeypatch.setattr(Prepared, "unknown_references", lambda self, split: 3 * (split == "test"))
    prepared = prepare(BASE.data, made.root)
    with pytest.raises(UserError, match=r"row 'small' \(data.vocab_size=200\): 3 tokens of its test references"):
        rows_data(BASE, prepared, made.study.rows[:2], made.root)
    cleaned = own_row("cleaned", {"data.max_words": 1000})
    assert rows_data(BASE, prepared, [cleaned], made.root), "an unknown token costs both the same"


def test_the_shipped_sweep_names_rows_that_there_are(capsys):
    rows = {row.name: row for row in load_rows("experiments/data.yaml")}
    assert all(key.startswith("data.") for row in rows.values() for key in row.change) and len(rows) >= 4
    assert main(["sweep", "sweeps/data.yaml", "--print_config"]) == 0
    assert "vocab_size: 800" in capsys.readouterr().out
