"""From files to numbers: planted effects are found, cells that do not belong are refused with the reason."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lightning_tfm.config import Experiment, Miniature
from lightning_tfm.metrics import PPL
from lightning_tfm.report.build_summary import _full_size, summarise
from lightning_tfm.report.records import read_cells, with_sentences
from lightning_tfm.report.serialize import rounded
from lightning_tfm.report.significance import _differences
from lightning_tfm.report.stats.evidence import Evidence, significance_fields
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg, holm
from lightning_tfm.report.stats.statistics import SentenceNoise, compare
from lightning_tfm.report.study_report import make, write_table
from lightning_tfm.report.wording.verdict import judge
from tests.helpers.studies import SIGNATURE


def read(made):
    return with_sentences(read_cells(made.study, made.root))


def rows_of(made):
    return {row.name: row for row in summarise(read(made)).rows}


def test_planted_effects_are_found_and_noise_is_not(generator):
    made = generator(["base", "A-h1", "A-h4", "C-N2", "C-dff4096", "E-learned"], [1, 2, 3])
    made.write_all({"A-h1": 0.2, "C-N2": 0.3, "C-dff4096": 0.2})
    rows = rows_of(made)
    words = {name: row.ppl.difference and row.ppl.difference.verdict for name, row in rows.items()}
    assert words["base"] is None
    assert words["A-h1"] == words["C-N2"] == "same direction"
    assert words["A-h4"] == words["E-learned"] == "undecided"  # noise of 2 % against a tau of 1.4 %
    assert words["C-dff4096"] == "contradicted"
    d = rows["C-N2"].ppl.difference
    printed = math.log(6.11 / 4.92)
    assert vars(d.factor) == pytest.approx({k: getattr(d, k) / printed for k in ("estimate", "lower", "upper")})
    d = rows["C-dff4096"].ppl.difference  # the paper's is negative
    assert d.factor.lower < d.factor.estimate < d.factor.upper < 0
    assert rows["E-learned"].ppl.difference.factor is None
    assert "500 seeds" in rows["A-h4"].ppl.difference.why  # its estimate is next to nothing
    assert rows["E-learned"].ppl.difference.needed > 3
    d = rows["C-N2"].ppl.difference
    assert d.lower < 0.3 < d.upper and d.percent.estimate == pytest.approx(100 * math.expm1(d.estimate))
    assert rows["C-N2"].metric("bleu").difference.estimate < 0


def test_no_finished_run(generator):
    made = generator(["base", "A-h1"], [1, 2])
    report = summarise(read(made))
    assert report.finished == 0 and "agreement" not in report.analyses
    assert report.rows[1].ppl.mean is None
    assert report.rows[1].missing == {"1": "not run yet", "2": "not run yet"}


def test_rows_without_a_base_are_shown_without_tests(generator):
    made = generator(["A-h1", "A-h4"], [1, 2])
    made.write_all()
    rows = rows_of(made)
    assert rows["A-h1"].ppl.mean > 1
    found = rows["A-h1"].ppl.difference
    assert (found.verdict, found.why) == ("not testable", "no scores of base")
    report = make("made", made.root)
    assert "differences to" not in report.render("text") and r"\Delta" not in report.render("latex")
    assert "Rows beside base" not in report.render("html")


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"ppl": math.nan}, "scores.dev.ppl=nan: expected a finite number"),
        ({"bleu": math.inf}, "scores.dev.bleu=inf: expected a finite number"),
        ({"ppl": "5"}, "scores.dev.ppl='5': expected a number"),
        ({"evaluation_hash": "0" * 64}, "scored by a different evaluation"),
        ({"signature": "nrefs:1|case:lc"}, "BLEU with a different signature: nrefs:1|case:lc"),
        ({"nll": 1.0}, "do not add up"),
    ],
)
def test_refusals(generator, changes, reason):
    made = generator(["base", "A-h1"], [1, 2, 3])
    made.write_all()
    made.write(made.study.rows[1], 2, 0.0, **changes)
    if "evaluation_hash" in changes:  # else the score file beside the sentences wins over result.json
        (path,) = made.folder(made.study.rows[1], 2).path.glob("scores/*/val.json")
        path.unlink()
    row = rows_of(made)["A-h1"]
    assert row.n == 2 and reason in row.missing["2"]


def test_the_table_holds_the_same_cells_as_the_report(generator):
    made = generator(["base", "A-h1"], [1, 2, 3])
    made.write_all()
    made.write(made.study.rows[1], 3, 0.0, signature="nrefs:1|case:lc", bleu=99.0)
    made.write(made.study.rows[1], 2, 0.0, bleu=100.5)
    table, report = write_table(read_cells(made.study, made.root)), summarise(read(made))
    for ours, theirs in zip(table.rows, report.rows, strict=True):
        assert (ours.n, ours.missing) == (theirs.n, theirs.missing)
        assert rounded(ours.metric("bleu").by_seed) == theirs.metric("bleu").by_seed
        assert rounded(ours.ppl.mean) == theirs.ppl.mean
    assert [row.n for row in table.rows] == [3, 1] and table.signature == report.signature == SIGNATURE
    written = [(made.root / f"studies/made/table.{kind}").read_text() for kind in ("md", "csv", "json")]
    assert all("case:lc, the table's" in text for text in written)


def test_missing_or_torn_sentences_are_refused(generator):
    made = generator(["base", "A-h1"], [1, 2])
    made.write_all()
    torn, gone = (
        next(made.folder(made.study.rows[1], seed).path.glob("scores/*/val.sentences.tsv")) for seed in (1, 2)
    )
    torn.write_text(torn.read_text()[:-40])
    gone.unlink()
    missing = rows_of(made)["A-h1"].missing
    assert set(missing) == {"1", "2"} and all("cannot be read" in why for why in missing.values())


def test_rows_and_claims_are_families_of_their_own(generator):
    made = generator(["base", "A-h1", "A-h4", "B-dk16", "B-dk32", "E-learned"], [1, 2, 3])
    made.write_all({"A-h1": 0.2, "B-dk16": 0.3})
    cells = read(made)
    report = summarise(cells)
    order = [row.name for row in cells.study.rows]
    runs = {name: cells.of(name) for name in order}
    d = _differences(order, runs, np.array([len(runs[name]) for name in order]), cells.boots, ("ppl", "bleu"))
    for metric in ("ppl", "bleu"):
        raw = d[metric].p[1:]
        told = [row.metric(metric).difference for row in report.rows[1:]]
        assert [t.p for t in told] == pytest.approx(benjamini_hochberg(raw))
        assert [t.holm for t in told] == pytest.approx(holm(raw))
    words = {claim.text.split()[0]: claim.verdict for claim in report.claims}
    assert words == {"One": "supported", "Reducing": "undecided", "Learned": "undecided"}  # B-dk32 is as base
    found = {f.row: f for claim in report.claims for f in claim.findings}
    assert found["B-dk16"].p < 0.01 and found["B-dk32"].p > 0.05


def test_a_difference_is_clear_at_full_size_as_in_a_miniature_but_only_there_may_it_be_too_small():
    n, equal = np.array([8, 8, 8]), np.full(3, 1e-6)
    d = compare(np.array([0.0, 0.001, 0.03]), equal, n, SentenceNoise(np.zeros(3), np.zeros(3)))
    printed = np.array([np.nan, 0.05, 0.05])
    numbers = significance_fields(d, d.p, printed, PPL.clear, 1.0)
    words = []
    for i in (1, 2):
        who = {k: float(x[i]) for k, x in numbers.items()}
        found = Evidence(estimate=float(d.estimate[i]), n=8, n_base=8, **who)
        words.append([judge(found, 0.05, "ppl", full_size).word for full_size in (True, False)])
    assert words == [["smaller than printed", "undecided"], ["same direction", "same direction"]]


def test_full_size_is_the_papers_sizes_and_steps():
    paper = Experiment()
    assert _full_size(paper) and _full_size(replace(paper, training=replace(paper.training, steps=200_000)))
    assert not _full_size(replace(paper, miniature=Miniature(steps=2)))
    assert not _full_size(replace(paper, model=replace(paper.model, d_model=128)))
    assert not _full_size(replace(paper, training=replace(paper.training, steps=4000)))
