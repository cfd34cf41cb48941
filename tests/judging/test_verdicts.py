"""Scores that somebody else made: verdicts by the package's statistics."""

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import lightning_tfm
from benchmarks import judge as simulated
from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.judging.presentation import notes, seeds_picture
from lightning_tfm.judging.scores import Scores, aim, scores_of
from lightning_tfm.judging.verdicts import Judgement, judgement_of
from lightning_tfm.report.stats import base_alone
from lightning_tfm.report.stats.statistics import LEAST


def made(rows: dict[str, list[float]], metric: str = "loss:lower", **options: object) -> Judgement:
    return judgement_of(scores_with(rows, metric), [aim(metric)], **options)  # type: ignore[arg-type]


def scores_with(rows: dict[str, list[float]], metric: str = "loss:lower") -> Scores:
    one = aim(metric)
    records = [{"row": row, "seed": s, one.name: x} for row, values in rows.items() for s, x in enumerate(values)]
    return scores_of("scores", enumerate(records, 1), [one], "row", "seed")


def normal(mean: float, n: int = 8, seed: int = 1, sd: float = 0.1) -> list[float]:
    return (mean + sd * np.random.default_rng(seed).standard_normal(n)).tolist()


THREE = {"base": normal(3), "good": normal(2, seed=2), "bad": normal(4, seed=3), "same": normal(3, seed=4)}
RECORDS = [{"row": row, "seed": s, "loss": x} for row, of in THREE.items() for s, x in enumerate(of)]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A file of THREE."""
    path = tmp_path / "scores.csv"
    path.write_text("row,seed,loss\n" + "\n".join(",".join(map(str, record.values())) for record in RECORDS))
    return path


def words(judgement: Judgement) -> dict[str, str]:
    return {one.row: str(one.verdict) for one in judgement.rows["loss"]}


def test_words_go_by_direction_and_by_margin():
    assert words(made(THREE)) == {"base": "", "good": "better", "bad": "worse", "same": "undecided"}
    assert words(made(THREE, "loss:lower:0.5"))["same"] == "practically equal"
    assert words(made(THREE, "loss:higher"))["good"] == "worse"


def test_a_single_row_of_equal_variance_is_close_to_welch():
    """With two rows there is little to moderate: between Welch's t and the pooled one."""
    rows = {"base": normal(3), "other": normal(3.1, seed=5)}
    e = made(rows).of("other").evidence
    welch = stats.ttest_ind(rows["other"], rows["base"], equal_var=False)
    assert e is not None and e.estimate == pytest.approx(np.mean(rows["other"]) - np.mean(rows["base"]))
    assert e.p == pytest.approx(welch.pvalue, rel=0.35) and float(e.se) >= welch._standard_error - 1e-12


def test_logarithms_are_printed_in_percent():
    found = made({"base": [math.e] * 4 + [3.0], "up": [2 * math.e] * 4 + [6.0]}, "loss:lower:log")
    e = found.of("up").evidence
    assert e is not None and float(e.estimate) == pytest.approx(math.log(2))
    records = [{"row": row, "seed": s, "x": k + s / 100} for row, k in (("base", 1), ("up", 2)) for s in range(5)]
    assert " +9" in str(lightning_tfm.judge(records, metrics={"x": "lower:log"})), "of a row twice as large, some 100 %"


def test_a_diverged_row_has_that_word_and_moves_no_other():
    without = made(THREE)
    beside = made(THREE | {"lost": [math.nan, 9.0, 1.0, 2.0, 500.0]})
    assert beside.of("lost").verdict == "diverged" and beside.of("lost").beside == "1 of 5"
    assert math.isnan(beside.of("lost").mean), "the other seeds are no sample of the row"
    assert not re.search(r"\bnan\b", seeds_picture(beside).svg)
    for row in THREE:
        assert str(beside.of(row).evidence) == str(without.of(row).evidence)


def test_a_base_that_diverged_allows_no_test():
    found = made(THREE | {"base": [*THREE["base"], math.inf]})
    assert {one.verdict for one in found.rows["loss"] if one.row != "base"} == {"not testable"}
    assert found.of("base").verdict == "diverged" and found.of("good").beside == "seeds of base diverged"
    assert "diverged, 1 of 9" in str(found)


def test_a_row_without_scores_is_shown_without_a_word():
    found = lightning_tfm.judge([*RECORDS, {"row": "empty", "seed": 0}], metrics={"loss": "lower"})
    assert (found.of("empty").verdict, found.of("empty").beside) == ("not testable", "no scores")
    assert found.gate("empty").code == 3 and str(found.rows["loss"][:-1]) == str(made(THREE).rows["loss"])


def test_a_row_whose_seeds_gave_one_number_says_why_it_is_undecided():
    records = [{"row": row, "seed": s, "loss": loss} for row, loss in (("base", 0.5), ("a", 0.6)) for s in range(5)]
    found = lightning_tfm.judge(records, metrics={"loss": "lower"}).of("a")
    assert (found.verdict, found.beside) == ("undecided", "all seeds gave the same number")


def test_reasons_name_the_row_that_is_compared_with():
    found = made({"small": normal(3, 3), "x": normal(9, 8)}, base="small").of("x")
    assert (found.beside, found.why) == ("2 more seeds of small", "3 seeds, a verdict needs 5")
    assert made({"small": normal(3), "x": normal(9)}, base="small").of("x").why == "differs from small"
    for options, whose in (({"base": "small"}, "row and of small"), ({"target": 3.0}, "row")):
        undecided = made({"small": normal(3), "x": normal(3.05, seed=4)}, **options)
        assert f"seeds: of the {whose}, to find the difference if it is as estimated" in notes(undecided)


def test_names_in_a_frame_may_be_numbers():
    records = [{"row": rate, "seed": s, "loss": s + rate} for rate in (1, 0.1) for s in range(5)]
    found = lightning_tfm.judge(records, base=1, metrics={"loss": "lower"})  # type: ignore[arg-type]
    assert [row.row for row in found.rows["loss"]] == ["1", "0.1"]


def test_fewer_seeds_than_a_verdict_needs_have_an_interval_and_how_many_are_missing():
    found = made(THREE | {"few": normal(2, 3), "one": [2.0]})
    few, one = found.of("few"), found.of("one")
    assert few.verdict == "not testable" and few.missing == LEAST - 3 and few.beside == "2 more seeds"
    assert few.evidence is not None and few.evidence.lower < few.evidence.estimate < few.evidence.upper
    assert one.evidence is not None and math.isnan(one.evidence.lower) and one.missing == LEAST - 1


def test_a_target_is_a_one_sample_test():
    found = made({"a": normal(3.0), "b": normal(3.4, seed=2)}, target=3.1)
    assert {one.row: str(one.verdict) for one in found.rows["loss"]} == {"a": "better", "b": "worse"}
    e = found.of("a").evidence
    own = stats.ttest_1samp(normal(3.0), 3.1)
    assert e is not None and e.estimate == pytest.approx(np.mean(normal(3.0)) - 3.1)
    assert float(e.se) >= np.std(normal(3.0), ddof=1) / math.sqrt(8) - 1e-12 and e.p < 10 * own.pvalue + 1e-3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": 3.0, "base": "a"}, "--base a: not together with --target"),
        ({"target": float("nan")}, "--target=nan: expected a number"),
        ({"target": float("inf")}, "--target=inf: expected a number"),
        ({"target": 0.0, "metric": "loss:lower:log"}, "--target=0: expected a number above 0"),
    ],
)
def test_a_target_that_compares_nothing_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        made({"a": normal(3.0), "b": normal(3.4, seed=2)}, **options)


def test_scores_however_small_or_large_are_judged_and_printed():
    for scale in (1e-12, 1.0, 1e50):
        rows = {"base": normal(0.5), "x": normal(5.5, seed=2)}
        found = made({row: [scale * x for x in of] for row, of in rows.items()}, "loss:higher")
        assert words(found)["x"] == "better"
        assert "+0.000000000005" in str(found) or scale > 1e-12


def test_the_first_metric_decides_and_another_changes_nothing_of_it():
    records = [record | {"time": record["seed"] + record["loss"]} for record in RECORDS]
    both = lightning_tfm.judge(records, metrics={"loss": "lower", "time": "lower"})
    assert str(both.rows["loss"]) == str(made(THREE).rows["loss"]) and len(both.rows["time"]) == 4


def test_base_is_found_by_its_name_or_must_be_named():
    assert made({"baseline": normal(3), "x": normal(2)}).base == "baseline"
    with pytest.raises(UserError, match="--base ROW"):
        made({"a": normal(3), "x": normal(2)})
    with pytest.raises(UserError, match="'base' and 'baseline'"):
        made({"base": normal(3), "baseline": normal(2)})
    with pytest.raises(UserError, match="--base bas: no such row: did you mean 'base'"):
        made(THREE, base="bas")
    with pytest.raises(UserError, match="nothing to compare it with"):
        made({"base": normal(3)})


def test_a_base_that_stands_apart_is_named_and_changes_no_verdict():
    low = {"base": [3.0, 3.1, 12.9, 13.0, 13.1]} | {f"r{i}": normal(10, seed=i) for i in range(4)}
    assert "two levels" in made(low).alone
    away = {"base": normal(3)} | {f"r{i}": normal(4, seed=i + 9) for i in range(4)}
    assert "alike" in made(away).alone and set(words(made(away)).values()) == {"", "worse"}
    assert made(THREE).alone == ""


def test_simulated_studies_are_judged_as_a_file_is():
    rng = np.random.default_rng(8)
    y = simulated.runs(rng, "base alone, gap 10", 12, 4, 5)
    false, warned = simulated.judged_false(y)
    for study, any_false, alone in zip(y, false, warned, strict=True):
        found = made({name: list(x) for name, x in zip(("base", *"abcd"), study, strict=True)})
        assert any(one.verdict in ("better", "worse") for one in found.rows["loss"]) == any_false
        assert bool(found.alone) == alone


def test_unimodal_studies_hold_few_false_rows_and_few_warnings_and_a_base_on_two_levels_is_seen():
    rng = np.random.default_rng(5)
    for kind in ("loss", "accuracy 0.99"):
        false, warned = simulated.judged_false(simulated.runs(rng, kind, 1000, 4, 5))
        assert false.mean() < 0.07 and warned.mean() < 0.05
    false, warned = simulated.judged_false(simulated.runs(rng, "base alone, gap 30", 1000, 4, 5))
    assert false.mean() > 0.1 and warned[false].mean() > 0.8
    assert not base_alone.two_levels(np.zeros((2, 3)), np.ones((2, 3)), np.full(3, 3)).any()


def test_the_command_prints_every_format_and_writes_page_and_pictures(three: Path, tmp_path: Path, capsys):
    asked = ["judge", str(three), "--metric", "loss:lower:0.5"]
    said = {}
    for kind in ("text", "markdown", "latex", "csv", "json"):
        assert main([*asked, "--format", kind]) == 0
        said[kind] = capsys.readouterr().out
        assert "practically equal" in said[kind] or kind == "latex"
    assert max(map(len, said["text"].splitlines())) <= 80
    assert "Of 3 changes" in said["markdown"] and "\n\nOver seeds, for this one test set.\n" in said["markdown"]
    assert {one["row"] for one in json.loads(said["json"])["rows"]} == set(THREE)
    assert main([*asked, "--format", "html", "--figures", str(tmp_path / "fig")]) == 0
    page = (tmp_path / "judge.html").read_text()
    assert 'class="forest on-screens"' in page and "Of 3 changes" in page, "what was found is said over the figure"
    assert page.count("<svg") >= 2 and "practically equal" in page
    assert {file.name for file in (tmp_path / "fig").iterdir()} == {"forest-loss.svg", "seeds.svg"}


def test_colours_are_for_terminals_that_want_them(three: Path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for environment, coloured in (({"TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False)):
        monkeypatch.delenv("NO_COLOR", raising=False)
        [monkeypatch.setenv(name, value) for name, value in environment.items()]
        assert main(["judge", str(three), "--metric", "loss:lower"]) == 0
        assert ("\033[" in capsys.readouterr().out) == coloured


def test_the_how_to_shows_what_is_printed(capsys):
    root = Path(__file__).parents[2]
    page = (root / "docs" / "howto" / "judge.md").read_text(encoding="utf-8")
    for scores, metrics in (
        ("speedrun/varlen.csv", ["val_loss:lower:0.001", "seconds:lower:log"]),
        ("own_model/scores.csv", ["test_acc:higher:0.005"]),
    ):
        named = [word for metric in metrics for word in ("--metric", metric)]
        assert main(["judge", str(root / "examples" / scores), *named]) == 0
        assert "```text\n" + capsys.readouterr().out.split("\n\n" + metrics[0].split(":")[0] + " (")[0].rstrip() in page


def test_python_gives_a_frame_a_picture_and_a_gate():
    pandas = pytest.importorskip("pandas")
    of_frame = lightning_tfm.judge(pandas.DataFrame(RECORDS), base="base", metrics={"loss": "lower"})
    of_list = lightning_tfm.judge(RECORDS, base="base", metrics={"loss": "lower"})
    assert str(of_frame) == str(of_list)
    assert of_frame.table().set_index("row").verdict["good"] == "better"
    assert of_frame.forest()._repr_svg_().startswith("<svg")
    assert [of_frame.gate(row).code for row in ("good", "same", "bad")] == [0, 3, 4]


def test_items_add_the_noise_of_the_test_set(tmp_path: Path, capsys):
    rng = np.random.default_rng(2)
    hard = rng.standard_normal(300)  # what an item costs every run of the other row
    lines, totals = ["row,seed,item,value"], ["row,seed,acc"]
    for row in ("base", "other"):
        for seed in range(5):
            right = rng.random(300) < 0.5 + 0.2 * (row == "other") * hard
            lines += [f"{row},{seed},{i},{int(ok)}" for i, ok in enumerate(right)]
            totals.append(f"{row},{seed},{right.mean()}")
    scores, items = tmp_path / "scores.csv", tmp_path / "items.csv"
    scores.write_text("\n".join(totals))
    items.write_text("\n".join(lines))
    wide = {}
    for more in ([], ["--items", str(items)]):
        assert main(["judge", str(scores), "--metric", "acc:higher", "--format", "json", *more]) == 0
        found = json.loads(capsys.readouterr().out)
        wide[bool(more)] = found["rows"][1]["se"]
        assert any("for this one test set" in note for note in found["notes"]) == (not more)
    assert wide[True] > 1.02 * wide[False]
    percent = [f"{row},{seed},{100 * float(x)}" for row, seed, x in (line.split(",") for line in totals[1:])]
    of_nothing = ["row,seed,item,numerator,denominator", *(f"{line},0" for line in lines[1:])]
    for of_scores, of_items, said in (
        (totals, of_nothing, "its items give acc inf, its score is 0.47"),
        ([totals[0], *percent], lines, "its items give acc 0.47, its score is 47"),
        (totals, lines[:-1], "row 'other', seed 4 has not the same items"),
    ):
        scores.write_text("\n".join(of_scores))
        items.write_text("\n".join(of_items))
        assert main(["judge", str(scores), "--metric", "acc:higher", "--items", str(items)]) == 2
        assert said in capsys.readouterr().err


def test_items_of_which_a_resample_may_be_all_zero_have_no_logarithm(tmp_path: Path, capsys):
    runs = [(row, seed) for row in ("base", "other") for seed in range(5)]
    scores, items = tmp_path / "scores.csv", tmp_path / "items.csv"
    scores.write_text("row,seed,acc\n" + "".join(f"{row},{seed},0.1\n" for row, seed in runs))
    items.write_text("row,seed,item,value\n" + "".join(f"{r},{s},{i},{i // 9}\n" for r, s in runs for i in range(10)))
    assert main(["judge", str(scores), "--metric", "acc:higher:log", "--items", str(items)]) == 2
    assert "a resampled test set has no log acc" in capsys.readouterr().err


def test_published_numbers_have_the_words_for_that(three: Path, tmp_path: Path, capsys):
    published = tmp_path / "published.csv"
    asked = ["judge", str(three), "--metric", "loss:lower", "--published", str(published), "--format", "json"]
    for numbers, words in (
        ({"base": 5, "good": 4, "bad": 4.9, "same": 5}, ["reproduced", "differs where the paper shows none"]),
        ({"base": 5, "good": 6, "same": 5}, ["contradicted", "worse"]),
    ):
        published.write_text("row,loss\n" + "\n".join(f"{row},{x}" for row, x in numbers.items()))
        assert main(asked) == 0
        found = {one["row"]: one["verdict"] for one in json.loads(capsys.readouterr().out)["rows"]}
        assert [found["good"], found["bad"]] == words
    assert main(asked[:-2]) == 0
    assert "1 goes the way of the published numbers, 1 against it" in " ".join(capsys.readouterr().out.split())
    published.write_text("row,loss\nbase,5\ngod,4\ngood,\n")
    assert main(asked) == 0
    (note,) = (note for note in json.loads(capsys.readouterr().out)["notes"] if str(published) in note)
    assert note == f"{published}: 'god' is none of the rows; left out"
    published.write_text("row,loss\nbase,500\ngood,400\n")
    assert main(asked) == 0
    (note,) = (note for note in json.loads(capsys.readouterr().out)["notes"] if str(published) in note)
    assert note.startswith(f"{published}: 'base' has loss 500, and 3.02 here: in another unit?")
    for lines, said in (("base,5\ngood,nan", "row 'good': loss is no finite number"), ("good,4", "no row 'base'")):
        published.write_text(f"row,loss\n{lines}\n")
        assert main(asked) == 2 and said in capsys.readouterr().err


LIGHT = """
import sys
from lightning_tfm.cli.main import main
assert main(["judge", sys.argv[1], "--metric", "loss:lower"]) == 0
assert not {"torch", "pandas", "lightning", "jinja2", "scipy.stats"} & sys.modules.keys()
"""


def test_a_file_is_judged_without_torch_and_pandas_and_a_thousand_rows_make_a_page_of_two_megabytes(tmp_path, capsys):
    rng, path = np.random.default_rng(6), tmp_path / "scores.csv"
    runs = [(i, s, x) for i in range(1000) for s, x in enumerate(rng.normal(size=10))]
    lines = [f"row{i},{s},{x:.5f},{x * x:.5f},{x + 9:.5f}" for i, s, x in runs]
    path.write_text("row,seed,loss,b,c\n" + "\n".join(lines[:60]).replace("row0,", "base,"))
    subprocess.run([sys.executable, "-c", LIGHT, str(path)], check=True, capture_output=True)
    path.write_text("row,seed,loss,b,c\n" + "\n".join(lines))
    more = ["--base", "row0", "--metric", "loss:lower", "--metric", "b:lower", "--metric", "c:lower:log"]
    start = time.process_time()
    assert main(["judge", str(path), *more, "--format", "html"]) == 0
    assert time.process_time() - start < 60, "a few seconds"
    assert (tmp_path / "judge.html").stat().st_size < 2e6
    assert "One dot per run" not in (tmp_path / "judge.html").read_text(), "of so many rows no runs are drawn"
