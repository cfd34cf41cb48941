"""A metric is one class and one line: what is added to finished runs shows everywhere and moves nothing else."""

import csv
import io
import json
import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Evaluation
from lightning_tfm.corpus_metrics import corpus_scores
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, OF_OWN
from lightning_tfm.report.build_summary import summarise_untested
from lightning_tfm.report.records import read_cells, with_sentences
from lightning_tfm.report.serialize import plain
from lightning_tfm.report.study_report import make, render_table
from lightning_tfm.runs.record import Score, read_score
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as, save
from lightning_tfm.sums import KEY, with_checksum
from tests.helpers.studies import Generator, own_row
from tests.helpers.tables import read_tables

KINDS = ("markdown", "csv", "json", "latex")


def printed(root, *argv: str) -> str:
    from tests.golden import printed as of_command

    return of_command(*argv, "--out", str(root))


def views(root) -> dict[str, str]:
    report, table = make("made", root), summarise_untested(read_cells(load_as(Ablation, root, "made"), root))
    found = {f"report {kind}": report.render(kind) for kind in KINDS}
    found |= {f"table {kind}": render_table(table, kind) for kind in ("csv", "json")}
    found |= {"text": render_table(report.summary, "text")}
    found |= {"reference": render_table(make("made", root, "A-h1").summary, "text")}
    return found | {"page": report.render("html")}


@pytest.fixture
def root(made, tmp_path):
    """A copy of the study, to change."""
    return shutil.copytree(made.root, tmp_path / "root")


def forget(module):
    """A module of the user's and its metrics."""
    sys.modules.pop(module, None)
    for name in [name for name in METRICS if name.startswith(f"{module}:")]:
        METRICS.pop(name)


@pytest.fixture
def own_class(tmp_path, monkeypatch):
    """own_class(module, source): a file of the user's where the command is called, forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    written = []

    def write(module, source):
        (tmp_path / f"{module}.py").write_text(source)
        written.append(module)

    yield write
    for module in written:
        forget(module)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = Generator(tmp_path_factory.mktemp("metrics"), ["base", "A-h1", "C-N2"], [1, 2, 3, 4, 5])
    made.write_all({"C-N2": 0.2})
    return made


def test_a_metric_added_to_a_study_shows_in_every_format_and_moves_no_other(root):
    before, old = views(root), plain(make("made", root).summary)
    folders = sorted(root.glob("runs/*/scores/*"))
    assert not [name for name, text in before.items() if "chrf" in text.lower()]
    assert "15 runs have chrf" in printed(root, "validate", "made", "--add", "chrf")
    after, new = views(root), plain(make("made", root).summary)
    assert all("chrf" in text.lower() for text in after.values())
    unknown = "chrF: how often a word of it is false is not known"
    assert unknown in after["page"] and unknown not in before["page"]
    assert "chrf difference p" in after["report csv"] and sorted(root.glob("runs/*/scores/*")) == folders
    assert new.pop("signatures")["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6")
    added = {row["row"]: row.pop("chrf") for row in new["rows"]}
    assert new == old
    assert added["C-N2"]["difference"]["verdict"] == "worse" and added["base"]["difference"] is None
    heads = [next(csv.reader(io.StringIO(one["report csv"]))) for one in (before, after)]
    assert [head for head in heads[1] if not head.startswith("chrf ")] == heads[0]


def test_an_added_metric_is_compared_between_studies_and_exported(root, tmp_path):
    folder = tmp_path / "exported"
    Generator(root, ["base", "A-h1"], [1, 2, 3, 4, 5], "again")
    export = ("export", "made", "--to", "csv", "--folder", str(folder))

    def compared(*kinds: str) -> list[str]:
        return [printed(root, "compare", "made", "again", "--format", kind, "--to", "-") for kind in kinds]

    printed(root, *export)
    assert "dev/chrf" not in (folder / "runs.csv").read_text()
    assert not any("chrf" in text.lower() for text in compared("text", "html"))
    printed(root, "validate", "made", "--add", "chrf")
    printed(root, *export)
    assert "dev/chrf" in (folder / "runs.csv").read_text()
    assert all("chrf" in text.lower() for text in compared("text", *KINDS, "html"))


def test_an_added_metric_travels_in_an_archive_and_is_tested_there(root, tmp_path):
    there = tmp_path / "there"
    printed(root, "validate", "made", "--add", "chrf")
    file = str(tmp_path / "made.tar.xz")
    assert "15 runs" in printed(root, "records", "pack", "made", file)
    printed(there, "records", "unpack", file)
    ours, theirs = (make("made", where).summary.rows[2].metric("chrf") for where in (root, there))
    assert theirs.by_seed == ours.by_seed and theirs.difference.p == pytest.approx(ours.difference.p, rel=1e-5)


def test_every_trait_that_an_own_metric_may_have_changes_what_is_printed(made, monkeypatch):
    report, bleu = make("made", made.root), METRICS["bleu"]
    before = report.render("html")
    words = dict.fromkeys(("label", "column_head", "prose_name", "unit"), "Blue")
    for trait, changed in {**words, "digits": 3, "difference_digits": 4, "lower_is_better": True, "log": True}.items():
        monkeypatch.setitem(METRICS, "bleu", replace(bleu, **{trait: changed}))
        assert report.render("html") != before, trait
    assert {*words, "digits", "difference_digits", "lower_is_better", "log"} == {*OF_OWN}


def test_no_metric_has_the_name_of_another_number_of_a_score():
    assert {m.name for m in METRICS.values() if m.more} & {f.name for f in fields(Score)} == set()


def test_runs_that_lack_it_or_have_another_version_of_it_leave_it_untested(root, made):
    printed(root, "validate", "made", "--add", "chrf")
    folder = made.folder(made.study.rows[1], 3).path.name
    (path,) = (root / "runs" / folder).glob("scores/*/val.json")
    score = {key: value for key, value in json.loads(path.read_bytes()).items() if key != KEY}
    path.write_text(json.dumps(with_checksum(score | {"chrf_signature": "nrefs:1|version:1.5"})))
    assert METRICS["chrf"].of(read_score(path)) == score["chrf"]
    rows = {row.name: row.metric("chrf") for row in make("made", root).summary.rows}
    assert rows["A-h1"].mean is None and rows["C-N2"].mean and rows["C-N2"].difference is None
    study = load_as(Ablation, root, "made")
    save(replace(study, rows=[*study.rows, own_row("also-h1", study.rows[1].change)]), root)
    assert make("made", root).summary.outdated == {"chrf": 1}, "a row that is another has no runs of its own"


def test_a_metric_that_cannot_be_counted_is_refused_and_the_others_of_its_list_are_not_added(root, capsys):
    assert main(["validate", "made", "--add", "chrf+f1", "--out", str(root)]) == 2
    told = capsys.readouterr()
    assert told.err.count("brackets are counted in trees; line 1 of the references is not one") == 1 and not told.out
    assert all(read_score(path).measures == {} for path in root.glob("runs/*/scores/*/val.json"))


def test_what_has_no_translations_here_is_named_and_left_as_it_is(root, made, capsys):
    folder = made.folder(made.study.rows[0], 1).path.name
    for path in (root / "runs" / folder).glob("scores/*/val.hyp.txt"):
        path.unlink()
    assert main(["validate", "made", "--add", "chrf", "--out", str(root)]) == 1
    told = capsys.readouterr().out
    assert "base, seed 1: its translations are not here" in told and "14 runs have chrf" in told


OWN = '''
import numpy as np

from lightning_tfm.corpus_metrics import Summed


class Words(Summed):
    """Words that are where the reference has them."""

    label = "right words"
    digits = 2
    WIDTH = 2

    def counts(self, hypotheses):
        pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, self.references, strict=True)]
        return [[sum(a == b for a, b in zip(*pair)), len(pair[1])] for pair in pairs]

    @staticmethod
    def score(sums_X):
        return 100 * sums_X[..., 0] / sums_X[..., 1]
'''


def test_an_added_metric_counts_words_as_the_study_s_tokenizer_has_them(root, own_class):
    name = "own_tokens:Words"
    by_tokens = OWN.replace("(h.split(), r.split())", "(self.cut(h), self.cut(r))")
    by_tokens += """
    def cut(self, line):
        from lightning_tfm.bleu import bleu_tokenizer

        return bleu_tokenizer(self.tokenize)(line).split()
"""
    own_class("own_tokens", by_tokens)
    assert f"15 runs have {name}" in printed(root, "validate", "made", "--add", "own_tokens.Words"), "as parts are"
    row = make("made", root).summary.rows[2].metric(name)
    forget("own_tokens")
    assert row.difference.verdict == "worse", "its sums are what was added"


@pytest.mark.parametrize("listed", ["chrf+mixed:Words", "mixed:Words+exact", "chrf+mixed.Words+exact", "mixed:Words"])
def test_a_list_mixes_built_in_metrics_and_classes_of_the_user_s_own(root, listed, own_class):
    own_class("mixed", OWN)
    names = listed.replace("mixed.Words", "mixed:Words").split("+")
    it = "them" if len(names) > 1 else "it"
    said = printed(root, "validate", "made", "--add", listed)
    assert f"15 runs have {', '.join(names)}; lightning-tfm table made" in said and said.endswith(f"prints {it}\n")
    summary = make("made", root).summary
    assert all(row.metric(name).mean is not None for row in summary.rows for name in names)


@pytest.mark.parametrize("listed", ["chrf,exact", "chrf exact", "+chrf", "chrf+", "chrf++exact", "chrf,mixed:Words"])
def test_a_list_that_is_not_joined_by_plus_is_told_how(made, capsys, listed):
    assert main(["validate", "made", "--add", listed, "--out", str(made.root)]) == 2
    assert f"metrics '{listed}': names are joined by +, as in chrf+exact" in capsys.readouterr().err


def test_a_metric_is_added_once(made, capsys):
    assert main(["validate", "made", "--add", "chrf", "--add", "chrf", "--out", str(made.root)]) == 2
    assert "2 columns would be labelled 'chrF'" in capsys.readouterr().err
    assert main(["validate", "made", "--add", "", "--out", str(made.root)]) == 2
    assert "--add needs a metric: chrf" in capsys.readouterr().err


def test_a_class_of_the_user_s_own_is_a_metric_in_every_format_with_tests(root, tmp_path, capsys, own_class):
    name = "own_words:Words"
    own_class("own_words", OWN)
    old = plain(make("made", root).summary)
    assert f"15 runs have {name}" in printed(root, "validate", "made", "--add", name)
    found = make("made", root).summary
    assert all("right words" in text or name in text for text in views(root).values())
    row = found.rows[2].metric(name)
    assert METRICS[name].label == "right words" and 0 < row.mean < 100 and row.difference.p < 0.05
    assert row.difference.verdict == "worse" and "own_words:Words|source:" in found.signatures[name]
    own_class("own_words", OWN.replace("100 *", "50 *"))
    forget("own_words")
    assert make("made", root).summary.rows[2].metric(name).mean is None, "counted by an older version of the class"
    remedy = f"validate made --add {name} counts it again"
    for kind, text in views(root).items():
        assert kind.endswith(("csv", "json")) or "ight words: the score of 15 runs" in text, kind
        assert kind.endswith(("csv", "json", "latex")) or remedy in " ".join(text.split())
    assert f"15 runs have {name}" in printed(root, "validate", "made", "--add", name)
    again = make("made", root).summary
    assert again.rows[2].metric(name).mean == pytest.approx(row.mean / 2) and again.outdated == {}
    forget("own_words")
    (tmp_path / "own_words.py").unlink()
    without = plain(make("made", root).summary)
    assert without == old and f"metric '{name}': cannot import it" in capsys.readouterr().err


COUNTS = "[[sum(a == b for a, b in zip(*pair)), len(pair[1])] for pair in pairs]"
REFUSED = {name: more for name, *more in read_tables(Path(__file__).with_name("wrong_metrics.txt"))["refused"]}


@pytest.mark.parametrize(("part", "instead", "said"), REFUSED.values(), ids=REFUSED)
def test_a_class_whose_numbers_cannot_be_summed_is_refused_before_they_are_kept(part, instead, said, own_class):
    counts = instead if part == "COUNTS" else "[[1, 2] for _ in pairs]"
    own_class("own_counts", OWN.replace(COUNTS, counts).replace(part, instead))
    texts = [f"a b {i}" for i in range(5)]
    with pytest.raises(UserError, match=f"metric 'own_counts:Words'.*{said}"):
        corpus_scores(Evaluation(metrics="own_counts:Words"), texts, texts)


LOG = (
    OWN.replace("Words(Summed)", "Wrong(Summed)")
    .replace('"right words"', '"100 % wrong_words"')
    .replace("100 * sums_X[..., 0]", "(sums_X[..., 1] - sums_X[..., 0])")
)
LOG = LOG.replace("    WIDTH", "    lower_is_better = True\n    log = True\n    WIDTH")


def test_a_logarithm_is_what_is_resampled_where_one_is_tested_and_a_label_is_harmless_in_latex(root, own_class):
    name = "own_log:Wrong"
    own_class("own_log", LOG)
    assert "15 runs have" in printed(root, "validate", "made", "--add", name)
    study = load_as(Ablation, root, "made")
    cells = with_sentences(read_cells(study, root))
    boots, tested = cells.boots[name], {key: cell.value(name) for key, cell in cells.filled.items()}
    for key, scores in boots.items():
        assert scores.mean() == pytest.approx(tested[key], abs=4 * scores.std()) and tested[key] < 0
    row = make("made", root).summary.rows[2].metric(name)
    assert row.difference.percent.lower > 0 and row.difference.verdict == "worse"
    tex = printed(root, "table", "made", "--format", "latex")
    assert r"{100 \% wrong\_words (dev)}" in tex and "{100 % wrong" not in tex


def test_scores_without_a_finite_value_are_not_tested_and_disturb_no_other(root, made, own_class):
    """The logarithm of 0; sums that are 0 in some resampled texts."""
    before = plain(make("made", made.root).summary)
    nothing = LOG.replace(COUNTS, "[[1, 1] for _ in pairs]").replace("Wrong(", "Nothing(")
    rare = OWN.replace(COUNTS, "[[pair == pairs[7], pair == pairs[7]] for pair in pairs]").replace("Words(", "Rare(")
    own_class("own_zero", nothing + rare)
    names = ["own_zero:Nothing", "own_zero:Rare"]
    printed(root, "validate", "made", *(word for name in names for word in ("--add", name)))
    summary = make("made", root).summary
    nothing_row, rare_row = (summary.rows[2].metric(name) for name in names)
    assert nothing_row.mean == 0 and nothing_row.difference is None
    assert rare_row.mean == 100 and rare_row.difference.why.startswith("some resampled texts have no score")
    assert all("nan" not in text.lower() for kind, text in views(root).items() if kind != "page")
    after = plain(summary)
    assert [row["ppl"] for row in after["rows"]] == [row["ppl"] for row in before["rows"]]
