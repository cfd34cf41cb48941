"""Large studies and hostile content: bounded in time and memory, readable, harmless."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from lightning_tfm.report.build import make
from lightning_tfm.study.rows import Paper, Row
from tests.helpers.studies import Generator
from tests.report.pages.test_page import HOSTILE, Parser

MEASURE = """
import pathlib, re, resource, sys
from lightning_tfm.cli.main import main
code = main(["report", "made", "--out", sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_SELF)
peak = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())
print(used.ru_utime + used.ru_stime, int(peak[1]) // 1024, code)
"""
"""not ru_maxrss, which keeps the size of the process that started this one"""


def many(count: int) -> list[Row]:
    base = Row("base", "base", {}, Paper(4.92, 25.8, 65), "here:1")
    rows = [
        Row(f"r{i}", f"g{i % 9}", {"training.warmup": 401 + i}, Paper(5.0, 25.0, 65), "here:1") for i in range(count)
    ]
    return [base, *rows[: count - 1]]


@pytest.fixture(scope="module")
def hundred(tmp_path_factory):
    made = Generator(tmp_path_factory.mktemp("r"), many(100), [1, 2, 3, 4, 5])
    made.write_all({"r3": 0.3})
    return made


@pytest.mark.long
def test_report_from_500_runs_takes_a_gibibyte_at_most(hundred):
    began = time.monotonic()
    argv = [sys.executable, "-c", MEASURE, str(hundred.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    wall = time.monotonic() - began
    seconds, mebibytes, code = map(float, done.stdout.splitlines()[-1].split())
    size = (hundred.root / "studies/made/report.html").stat().st_size
    print(
        f"500 runs: {seconds:.1f} s of one processor ({wall:.1f} s by the clock), {mebibytes:.0f} MiB, {size:,} bytes"
    )
    assert code == 0 and mebibytes <= 1024 and size <= 5_000_000


@pytest.mark.long
def test_500_rows_of_one_seed_are_all_there(tmp_path):
    made = Generator(tmp_path, many(500), [1])
    made.write_all()
    page = make("made", made.root).render("html")
    assert len(page.encode()) <= 5_000_000
    assert Parser(page).open == []
    assert len(re.findall(r'<tr class="[^"]*one"', page)) == 500
    assert "500 of 500 runs finished" in page


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e999, "4.9", None, True, -1e308])
@pytest.mark.parametrize("key", ["ppl", "bleu", "nll"])
def test_a_score_that_is_no_number_empties_its_cell_and_no_other(generator, key, value):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.3})
    made.write(made.study.rows[2], 3, 0.0, **{key: value})
    report = make("made", made.root)
    rows = {r.name: r for r in report.summary.rows}
    far = key == "ppl" and value in (float("inf"), 1e999)  # so far from any number that the seed counts as diverged
    assert rows["A-h4"].n == 2 + far and list(rows["A-h4"].missing) == ["3"] and rows["A-h1"].n == 3
    for kind in ("html", "markdown", "csv", "latex"):
        shown = re.sub(r"=-?(nan|inf)\b", "", report.render(kind))  # the reason says what it was
        assert not re.search(r"\b(nan|inf)\b", shown)
    json.loads(report.render("json"), parse_constant=pytest.fail)


def test_all_scores_are_no_numbers(generator):
    made = generator(["base", "A-h1"], [1, 2])
    for row in made.study.rows:
        for seed in made.study.seeds:
            made.write(row, seed, 0.0, ppl=float("nan"))
    assert "0 of 4 runs finished" in make("made", made.root).render("html")


def test_hostile_text_in_every_field_of_a_record_is_harmless(generator):
    mine = Row(f"mine {HOSTILE}", f"group {HOSTILE}", {"model.h": 2}, Paper(None, None, None), f"{HOSTILE}:1")
    made = generator(["base"], [1, 2])
    made.study.rows.append(mine)
    from lightning_tfm.study.study_file import save

    save(made.study, made.root)
    for row in made.study.rows:
        for seed in made.study.seeds:
            folder = made.write(row, seed, 0.0)
            record = json.loads((folder.path / "result.json").read_bytes())
            record["hardware"] = {"cpu": HOSTILE, "gpus": [HOSTILE], "host": HOSTILE, "system": HOSTILE}
            record["versions"] = {HOSTILE: HOSTILE}
            record["git"] = {"commit": HOSTILE, "changed": True}
            record["data"] |= {key: HOSTILE for key in ("tokenizer", "dev")}
            record["inexact"] = [HOSTILE]
            (folder.path / "result.json").write_text(json.dumps(record))
            (folder.path / "report").mkdir(exist_ok=True)
            pair = {"source": [HOSTILE], "target_in": [HOSTILE], "encoder": [[[[1000]]]]}
            pair |= {"decoder": [[[[1000]]]], "cross": [[[[1000]]]]}
            (folder.path / "report/attention.json").write_text(json.dumps({"sentences": [pair]}))
    page = make("made", made.root).render("html")
    assert "4 of 4 runs finished" in page and 'id="attention-data"' in page
    parsed = Parser(page)
    assert parsed.open == [] and parsed.scripts == 2  # the page's own, and the data of the attention maps
    assert all(link.startswith(("#", "data:")) for link in parsed.links)
    found = page.find("<script>alert")
    assert found < 0, page[max(found - 200, 0) : found + 50]
    assert HOSTILE not in page
