"""What the dashboard's pages show: every run in its state, any field as a column, names, sizes and own metrics."""

import gzip
import json
import re
import sys
import urllib.request
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard import index_page, study_page
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.fields import fields
from lightning_tfm.metrics import METRICS
from lightning_tfm.queue.studies import hide
from lightning_tfm.report.study_report import make
from lightning_tfm.report.tables import columns
from lightning_tfm.report.wording.verdict_words import WORDS
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.rows import all_rows, apply
from lightning_tfm.study.space import Parameter
from lightning_tfm.study.study_file import save
from lightning_tfm.watch.query import find_field
from lightning_tfm.watch.run_state import STATES
from tests.helpers.studies import SMALL, Folder, Generator, rescore


def test_the_first_page_is_made_once_and_again_when_anything_is_different(serve, monkeypatch, folder, tmp_path):
    study = folder.table("table", ["base", "A-h1"], seeds=[1, 2])
    folder.fill(study, ["finished", "running"])
    times, page = [], index_page.page
    monkeypatch.setattr(index_page, "page", lambda *given: times.append(1) or page(*given))
    served = serve(tmp_path)
    first = served.get("/").text
    assert served.get("/").text == first and len(times) == 1
    running = next(path for path in tmp_path.glob("runs/*/attempts/0001.beat")).parents[1]
    with (running / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2000, "dev_ppl": 1.2345}\n')
    assert "1.2345" in served.get("/").text and len(times) == 2


def test_base_of_a_search_that_has_not_begun_has_dashes_for_its_parameters(serve, folder, tmp_path):
    folder.trial(folder.search("alone", 5), 0, "finished", training__lr_factor=0.5)
    page = serve(tmp_path).get("/study/alone").text
    assert page.count("<bdi>–</bdi>") == 2 and "None" not in page


def test_a_study_of_own_classes_of_an_earlier_version_has_a_line_of_it(serve, tmp_path):
    archive = Path(__file__).parents[1] / "archives" / "own.tar.xz"
    assert main(["records", "unpack", str(archive), "--out", str(tmp_path)]) == 0
    assert "own_ff.Reversed trained under an earlier version" in serve(tmp_path).get("/study/own").text


def test_a_perplexity_that_overflowed_is_shown(serve, folder, tmp_path):
    study = folder.table("lost", ["base", "A-h1"], seeds=[1, 2])
    folder.fill(study)
    lost = folder.run(apply(study.base, study.rows[1], 2))
    rescore(lost.result, ppl="Infinity", nll=812_000.0)
    served = serve(tmp_path)
    page = served.get("/study/lost").text
    assert page.count(">∞<") == 1 and "diverged (1 of 2)" in page, "its cell; its row has no mean"
    assert "∞" in served.get(f"/run/{lost.path.name}").text and served.get("/").status == 200


def test_runs_and_studies_are_shown_by_what_they_were_asked_to_be_scored_by(serve, folder, tmp_path):
    folder.fill(folder.table("trees", ["base", "A-h1"], seeds=[1, 2]))
    for result in tmp_path.glob("runs/*/result.json"):
        rescore(result, f1=71.25, f1_signature="by hand")
    one, other = [path.parent.name for path in tmp_path.glob("runs/*/result.json")][:2]
    served = serve(tmp_path)
    assert ">F1<" in (index := served.get("/").text) and ">BLEU<" not in index and 'data-v="71.25"' in index
    assert "<dt>dev F1</dt><dd>71.2</dd>" in served.get(f"/run/{one}").text
    assert re.search(r">BLEU</?.*>F1<", served.get("/study/trees").text)
    assert "dev F1" in (page := served.get(f"/diff?run={one}&run={other}").text) and "71.25 (0.00)" in page
    assert "71.25" in served.get("/runs?where=f1+%3E+70&columns=dev.f1").text


OWN = """
from lightning_tfm.corpus_metrics import Summed

class RightWords(Summed):
    label, digits, WIDTH = "right words", 1, 2
    def counts(self, hypotheses): ...
    @staticmethod
    def score(sums_X): ...
"""


def scored_by(root: Path, metric: str) -> list[str]:
    """Two rows whose runs were also scored by it: 61.25, 62.25, 63.25, 64.25. Names of the runs."""
    made = Folder(root)
    made.fill(made.table("own", ["base", "A-h1"], seeds=[1, 2]))
    runs = Board(root, every=0).look().studies["own"].runs
    for i, name in enumerate(runs):
        rescore(root / "runs" / name / "result.json", **{metric: 61.25 + i, f"{metric}_signature": metric})
    return list(runs)


def test_a_metric_of_the_user_s_is_a_column_a_condition_and_a_number_of_every_page(serve, tmp_path, monkeypatch):
    (tmp_path / "own_right_words.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    names = scored_by(tmp_path / "out", "own_right_words:RightWords")
    served = serve(tmp_path / "out")
    try:
        assert 'value="RightWords"' in (index := served.get("/").text) and "warn" not in re.sub("warn wrong", "", index)
        found = chosen(served, "where=RightWords+%3E+63&columns=RightWords,dev.RightWords")
        assert found == {names[2]: ["63.25", "63.25"], names[3]: ["64.25", "64.25"]}
        study = served.get("/study/own?columns=RightWords").text
        heads = re.findall(r"<button type=.button.>([^<]*)</button></th>", study)
        assert heads.count("right words") == heads.count("RightWords") == 1
        assert re.search(r'data-v="61.75">61.8 <span class="soft">± 0.7', study), "as the report prints it"
        assert '<td data-v="61.75"><bdi>61.75</bdi></td>' in study and '<td data-v="63.75"><bdi>63.75' in study
        assert "right words" in served.get(f"/run/{names[0]}").text
        assert "62.25 (+1.00)" in served.get(f"/diff?run={names[0]}&run={names[1]}").text
        curves = served.get("/curves/news?by=RightWords").json["charts"]["chart-curves"]["series"]
        assert [one["name"] for one in curves] == ["61.25 (1)", "62.25 (1)", "63.25 (1)", "64.25 (1)"]
    finally:
        METRICS.pop("own_right_words:RightWords", None)


@pytest.mark.parametrize("source", [None, "raise ValueError('on <b>Sundays</b>')", "class RightWords: ..."])
def test_a_metric_whose_class_is_gone_or_broken_is_named_and_stays_a_column(serve, tmp_path, monkeypatch, source):
    if source:
        (tmp_path / "own_gone.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    scored_by(tmp_path / "out", "own_gone:RightWords")
    served = serve(tmp_path / "out")
    assert "metric &#39;own_gone:RightWords&#39;" in (page := served.get("/").text) and "<b>Sundays" not in page
    assert chosen(served, "where=dev.RightWords+%3E+63.5") and served.get("/study/own").status == 200
    version = served.board.look().version
    assert served.board.look().version == version, "that it is gone is nothing new"
    sys.modules.pop("own_gone", None)


def test_two_metrics_of_one_class_name_keep_their_paths(tmp_path):
    names = scored_by(tmp_path, "one:Words")
    rescore(tmp_path / "runs" / names[0] / "result.json", **{"two:Words": 5.0, "two:Words_signature": "s"})
    assert {"dev.one:Words", "dev.two:Words"} <= fields(Board(tmp_path, every=0).look()).keys()


def test_a_study_s_table_has_any_field_as_a_column_in_the_words_of_the_report_s(serve, monkeypatch, folder, tmp_path):
    folder.fill(folder.table("table", ["base", "A-h1"], seeds=[1, 2]))
    search = folder.search("search", 3)
    folder.trial(search, 0, "finished", training__lr_factor=0.7)
    wasted = columns.Fact("padding", "wasted", "of all cells", "{:.0%}".format)
    monkeypatch.setattr(columns, "FACTS", [*columns.FACTS, wasted])
    for result in tmp_path.glob("runs/*/result.json"):
        result.write_text(json.dumps(json.loads(result.read_text()) | {"padding": 0.125, "flops": 3 * 10**11}))
    served = serve(tmp_path)
    page = served.get("/study/table?columns=padding,+flops,h,dev.ppl,words").text
    assert ">wasted</button>" in page and ">12%</bdi>" in page and 'title="of all cells"' in page
    assert ">FLOPs</button>" in page and page.count(">3.00e+11</bdi>") == 2
    assert ">model.h</button>" in page and '<td data-v="8.0"><bdi>8</bdi></td>' in page
    (ppl,) = {float(text) for text in re.findall(r'<td data-v="([\d.]+)"><strong>', page)[:1]}
    assert f'<td data-v="{ppl}"><bdi>{ppl:.6g}' in page, "the same mean as in the table's own column"
    assert f'<td data-v="{ppl}"><bdi>{ppl:.6g}' in served.get("/study/table?columns=ppl").text
    assert '<td data-v=""><bdi>–</bdi></td>' in page, "no run has words"
    assert served.get("/study/table/news?columns=padding").json["parts"]["cells"].count("12%") == 2
    assert ">12%</bdi>" in served.get("/study/search?columns=padding").text
    wrong = served.get("/study/table?columns=paddin").text
    assert "no run has a field &#39;paddin&#39;: did you mean &#39;padding&#39;?" in wrong and "A-h1" in wrong


def test_a_metric_that_a_run_of_a_row_lacks_has_no_mean_over_the_others(folder, tmp_path):
    study = folder.filled()
    for cell in study.cells()[1:]:  # not base at its first seed
        rescore(RunFolder(tmp_path, cell.training_hash).result, chrf=60.0 + cell.seed, chrf_signature="by hand")
    board = Board(tmp_path, every=0)
    rows = study_page.page(board, board.look(), "table").data["rows"]
    chrf = [next(of["mean"] for metric, of in row["scores"] if metric.name == "chrf") for row in rows]
    assert chrf == [None, 61.5], "as the report has it"


def test_a_time_that_is_only_known_to_be_longer_says_so(serve, folder, tmp_path):
    folder.fill(folder.table("table", ["base", "A-h1"], seeds=[1]), ["running"])
    served, over = serve(tmp_path), re.compile(r">over \d")
    assert len(over.findall(served.get("/").text)) == 3, "the study and its runs"
    assert len(over.findall(served.get("/study/table").text)) == 1


def test_every_number_of_a_run_its_record_and_its_scores_is_a_field(served):
    known = fields(served.board.look())
    assert {"padding", "flops_per_second", "V", "dev.nll_per_byte", "kept", "loss"} <= known.keys()
    assert known["started"].kind == known["ended"].kind == "time" and known["abandoned"].kind == "truth"
    assert find_field("tokens", known).name == "training.tokens" and find_field("train", known).name == "data.train"


def test_the_index_shows_every_run_in_its_state_and_names_a_damaged_study(served):
    page = served.get("/").text
    assert len(re.findall(r'<tr id="run-', page)) == len(served.board.look().runs)
    for state in STATES:
        assert f'data-state="{state}"' in page
    assert "not a study definition" in page and 'href="/study/table"' in page
    assert re.findall(r'name="study" value="(.*?)"', page) == ["table", "other", "many"], "searches are not compared"


def test_sizes_are_shown_as_they_are_typed_with_those_trained_in_brackets(serve, folder, tmp_path):
    table = folder.table("rows", ["base", "C-N2"])
    folder.fill(table)
    sizes = {"model.N": [2, 4], "model.d_model": [256, 512]}
    space = [Parameter(name, "categorical", values) for name, values in sizes.items()]
    search = save(replace(folder.search("other", 2), name="trials", space=space), tmp_path)
    run = folder.trial(search, 0, "finished", model__N=4, model__d_model=256)
    client = serve(tmp_path)
    trials = client.get("/study/trials").text
    assert "<bdi>4 (2)</bdi>" in trials and "<bdi>256 (32)</bdi>" in trials
    page = client.get(f"/run/{run.training_hash[:16]}").text
    assert "<dt>N</dt><dd><bdi>4 (2)</bdi>" in page and "<dt>steps</dt><dd><bdi>100000 (2000)</bdi>" in page
    assert "--model.N=4 --model.d_model=256" in page and "--miniature.depth=2" in page
    assert "N 2 (1)" in client.get("/study/rows").text


def test_a_study_says_sizes_as_they_were_trained_and_which_row_is_another(serve, tmp_path):
    folder, known = Folder(tmp_path), all_rows()
    rows = [known["base"], known["A-h1"], replace(known["base"], name="again", change={"model.h": 8})]
    folder.fill(save(replace(folder.table("sizes", ["base", "A-h1"]), rows=rows), tmp_path))
    page = serve(tmp_path).get("/study/sizes").text
    assert "d_k 512 (64)" in page and "is base" in page


def test_stars_of_an_earlier_version_are_left_alone(served, made, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "lightning_tfm" / f"{made.root.name}-0123456789ab.json"
    file.parent.mkdir()
    file.write_text(before := '{"marks": {"study/table": {"star": true, "note": "odd"}}}')
    body = json.dumps({"key": "study/table", "star": False}).encode()
    assert served.get("/mark", "POST", body, Origin=served.url).status == 404
    assert "odd" not in served.get("/study/table").text
    assert "no run has a field" in served.get("/runs?where=starred+%3D+1").text
    assert file.read_text() == before and list(tmp_path.rglob("*")) == [file.parent, file]


def test_rows_keep_their_study_s_order_beside_each_other_and_are_called_as_people_call_them(serve, folder, tmp_path):
    study = folder.table("table", ["big", "base", "A-h1"], seeds=[1])
    rows = [replace(row, label="one head") if row.name == "A-h1" else row for row in study.rows]
    folder.fill(save(replace(study, rows=rows, title="Heads"), tmp_path))
    folder.table("earlier", ["A-h4", "A-h1", "base"], seeds=[1])
    served = serve(tmp_path)
    chart = served.get("/curves/news?by=row&where=study+%3D+%27table%27").json["charts"]["chart-curves"]
    assert [one["name"] for one in chart["series"]] == [f"{row.label or row.name} (1)" for row in study.rows]
    (name,) = chosen(served, "where=row+%3D+'A-h1'")
    page = served.get(f"/run/{name}").text
    assert "<h1><bdi>one head, seed 1</bdi> <code><bdi>A-h1</bdi></code>" in page
    assert "<bdi>Heads</bdi></a> <code><bdi>table</bdi></code>" in page
    index, table = served.get("/").text, served.get("/study/table").text
    assert '<bdi>one head, seed 1</bdi></a> <code class="soft"><bdi>A-h1</bdi></code>' in index
    assert '<bdi>one head</bdi></a> <code class="soft"><bdi>A-h1</bdi></code></th>' in table
    assert [name] == [*chosen(served, "find=A-H1")] == [*chosen(served, "find=one+head")], "found by either name"


def test_an_empty_folder_s_page_says_what_to_type_until_something_is_there(serve, tmp_path):
    served = serve(tmp_path)
    page = served.get("/").text
    assert [*tmp_path.iterdir()] == [] and served.board.seen.version == 0
    assert f"lightning-tfm demo --out {tmp_path}</pre>" in page and "table-runs" not in page
    assert f"lightning-tfm sweep sweeps/table3.yaml --out {tmp_path}</pre>" in page
    Folder(tmp_path).run(SMALL)
    page = served.get("/").text
    assert "lightning-tfm demo" not in page and "table-runs" in page


def test_a_row_s_name_opens_its_verdict_its_seeds_its_curve_and_what_it_changes(serve, tmp_path):
    made = Generator(tmp_path, ["base", "A-h1", "A-h4"], range(1, 6))
    made.write_all(skip=[("A-h4", seed) for seed in range(1, 6)])
    served = serve(tmp_path)
    assert 'href="/study/made/row?name=A-h1"' in served.get("/study/made").text
    page = served.get("/study/made/row?name=A-h1").text
    row = make("made", tmp_path).summary.rows[1]
    assert f"<strong>{WORDS[row.ppl.difference.verdict].shown}" in page and "d_k 512" in page
    assert page.count('href="/run/') == 5 and page.count("seed") >= 10 and page.count("<svg") >= 1
    assert "<li>seed 5: <bdi>" in served.get("/study/made/row?name=A-h4").text
    assert served.get("/study/made/row?name=base").status == 200
    assert served.get("/study/made/row?name=none").status == 404


def test_a_study_s_page_counts_its_hidden_rows(serve, folder, tmp_path):
    study = folder.table("table", ["base", "A-h1", "A-h4"], seeds=[1])
    folder.fill(study)
    hide(tmp_path, "table", "A-h4")
    page = serve(tmp_path).get("/study/table").text
    assert "1 row hidden (<bdi>four heads</bdi>), in every correction" in page


def test_a_trial_that_its_pruner_stopped_is_no_error(served):
    runs = served.board.look().runs.values()
    stopped, failed = (next(run for run in runs if run.state == state) for state in ("stopped early", "failed"))
    assert '<p class="soft"><bdi>stopped after step' in served.get(f"/run/{stopped.name}").text
    assert '<p class="warn"><bdi>' in served.get(f"/run/{failed.name}").text


def test_a_time_is_written_as_one_in_every_table(served, capsys):
    served.board.look()
    root, day = served.board.root, f"{datetime.now():%Y-%m-%d}"
    found = chosen(served, "where=state+%3D+%27finished%27&columns=started").values()
    assert found and all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", started) for (started,) in found)
    assert re.search(r"<bdi>\d{4}-\d\d-\d\d \d\d:\d\d</bdi>", served.get("/study/table?columns=changed").text)
    assert main(["runs", "query", "state = 'finished'", "--columns", "started", "--out", str(root)]) == 0
    assert "e+09" not in (said := capsys.readouterr().out) and day[:8] in said


def test_a_score_s_short_name_means_the_dev_text_where_several_texts_have_it(served):
    known = fields(served.board.look())
    known |= {"test.nll": replace(known["dev.nll"], name="test.nll")}
    assert find_field("nll", known).name == "nll" and find_field("ppl", known).name == "ppl"


def test_of_many_runs_the_page_has_the_newest_and_more_where_more_are_asked_for(serve, folder, tmp_path):
    for seed in range(130):
        folder.run(replace(SMALL, training=replace(SMALL.training, seed=seed)), texts=False)
    served = serve(tmp_path)
    page = served.get("/").text
    newest = sorted(served.board.seen.runs.values(), key=lambda run: (-run.changed, run.name))
    assert re.findall('<tr id="run-([0-9a-f]+)"', page) == [run.name for run in newest[:100]]
    assert "130 runs" in page and "more as you scroll" in page
    assert [*chosen(served, "most=1000")] == [run.name for run in newest]
    with urllib.request.urlopen(urllib.request.Request(served.url, headers={"Accept-Encoding": "gzip"})) as packed:
        assert len(gzip.decompress(sent := packed.read())) >= len(page) > 8 * len(sent)


def chosen(served, asked: str) -> dict[str, list[str]]:
    """The runs that the table has for an address's parameters -> what its own columns show of them."""
    rows = re.findall('<tr id="run-([0-9a-f]+)"(.*?)</tr>', served.get(f"/runs?{asked}").text, re.S)
    return {name: re.findall('<td class="own" data-v="([^"]*)"', row) for name, row in rows}


def test_a_condition_is_answered_with_rows_and_values_or_with_what_is_wrong(served):
    runs = (seen := served.board.look()).runs
    assert fields(seen) is fields(seen), "runs are asked once for what their scores hold"
    found = chosen(served, "where=state+%3D+%27finished%27&columns=d_model,study,diverged")
    assert found.keys() == {name for name, view in runs.items() if view.state == "finished"}
    sizes, studies, diverged = map(set, zip(*found.values(), strict=True))
    assert sizes <= {"512 (64)", "64"} and studies == {"table", "other", "search", "–"} and diverged == {"false"}
    assert len(chosen(served, "where=")) == len(runs)
    for asked, words in (("where=d_modl+%3E+3", "d_model"), ("where=ppl+%3C+3&columns=nothing", "'nothing'")):
        answer = served.get(f"/runs?{asked}")
        assert answer.status == 400 and words in answer.text and answer.headers["content-type"].startswith("text/plain")
        assert words.strip("'") in (page := served.get(f"/?{asked}").text) and page.count('<tr id="run-') == len(runs)


def test_the_server_sorts_by_any_column_with_what_is_missing_last(served):
    runs = served.board.look().runs
    for key in ("ppl", "changed", "seconds", "step", "state"):
        values = [index_page.SORTS[key](served.board.seen, run) for run in runs.values()]
        known = sorted(value for value in values if value is not None)
        for sort, wanted in ((key, known), (f"-{key}", known[::-1])):
            found = [index_page.SORTS[key](served.board.seen, runs[name]) for name in chosen(served, f"sort={sort}")]
            assert found == wanted + [None] * (len(values) - len(known)), sort
    seeds = [int(seed) for (seed,) in chosen(served, "columns=seed&sort=-seed").values() if seed.isdecimal()]
    assert seeds == sorted(seeds, reverse=True) and len(set(seeds)) > 1


def test_curves_of_groups_are_their_means_and_of_too_many_one_is_told_what_to_do(served):
    plain = served.get("/curves/news?where=study+%3D+%27table%27+and+state+%3D+%27finished%27&by=row").json
    (chart,) = plain["charts"].values()
    assert {"flops", "seconds", "target_tokens"} == set(chart["series"][0]["across"])
    assert [one["name"] for one in chart["series"]] == ["four heads (2)"], "the only finished ones"
    assert "d_model" in served.get("/curves?where=d_modl+%3E+3").text
    assert "Nothing of this was logged" in served.get("/curves?where=ppl+%3E+1e9").text


def test_studies_are_shown_by_title_and_question_with_the_name_beside(serve, tmp_path):
    found = Folder(tmp_path)
    for name, title in (("norm", "Where the norm stands"), ("again", "Where the norm stands"), ("bare", "")):
        study = found.table(name, ["base"], seeds=[1])
        save(replace(study, title=title, question="Before or after?" if title else ""), found.root)
    served = serve(found.root)
    index = served.get("/").text
    row = re.search(r'<tr id="study-norm".*?</tr>', index, re.S).group()
    assert '<a href="/study/norm"><bdi>Where the norm stands</bdi></a> <code><bdi>norm</bdi></code>' in row
    assert "Before or after?" in row and 'data-v="Where the norm stands"' in row
    assert '<a href="/study/bare"><bdi>bare</bdi></a> <span' in index
    assert '<option value="norm">Where the norm stands (norm)</option>' in index
    assert "<title>Where the norm stands · lightning-tfm</title>" in served.get("/study/norm").text
