"""The page: harmless, whole, the same bytes for the same records, bounded for large studies, in colours all can see."""

import html as html_module
import html.parser
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

import lightning_tfm.report
from lightning_tfm.cli.main import main
from lightning_tfm.cli.output import OF_REPORTS
from lightning_tfm.config import override
from lightning_tfm.report import archive
from lightning_tfm.report.pages.document import environment
from lightning_tfm.report.study_report import make
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.study.rows import Paper, Row, all_rows
from tests.golden import visible
from tests.golden.synthetic import diverging
from tests.helpers.studies import BASE, Generator, own_row, write_json, write_lines

HOSTILE = "<script>alert('1')</script>\"'&\u202e|$%"


class Parser(html.parser.HTMLParser):
    """Tags, and every attribute that could fetch something."""

    def __init__(self, markup):
        super().__init__()
        self.open, self.links, self.scripts, self.ids = [], [], 0, []
        self.feed(markup)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.links += [values[k] for k in ("src", "href", "data", "action") if k in values]
        self.ids += [values["id"]] if "id" in values else []
        self.scripts += tag == "script"
        assert not any(name.startswith("on") for name in values), values
        if tag not in ("meta", "link", "input", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.links += [v for k, v in attributes if k in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    mine = own_row(f"mine {HOSTILE}", {"model.h": 2}, f"group {HOSTILE}")
    found = Generator(tmp_path_factory.mktemp("r"), ["base", "A-h1", "E-learned", mine], [1, 2])
    found.references = [f"{HOSTILE} {line}" for line in found.references]
    found.write_all({"A-h1": 0.3}, skip=[("E-learned", 2)])
    return found


def test_page_is_whole_harmless_and_asks_nobody(made):
    page = make("made", made.root).render("html")
    parsed = Parser(page)
    assert parsed.open == [] and parsed.scripts == 1 and len(set(parsed.ids)) == len(parsed.ids)
    assert all(link.startswith(("#", "data:")) for link in parsed.links), parsed.links
    assert "<script>alert" not in page and HOSTILE not in page and "default-src 'none'" in page
    escaped = "mine &lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&#34;&#39;&amp;\u202e|$%"
    assert f"<bdi>{escaped}</bdi>" in page, "its direction too"


def test_templates_escape_what_is_no_markup_and_know_every_name_they_use():
    found = environment()
    names = [name for name in found.list_templates() if name.endswith(".html")]
    assert {"report.html", "search.html"} < set(names)
    for name in names:
        found.get_template(name)  # its syntax
        assert not re.search(r"autoescape|\|\s*safe\b", found.loader.get_source(found, name)[0]), name
    one = found.from_string('<a title="{{ words }}">{{ words }}</a>{{ words | spec("") }}{{ words ~ "" }}')
    assert Parser(shown := one.render(words=HOSTILE)).scripts == 0
    assert html_module.unescape(shown) == f'<a title="{HOSTILE}">{HOSTILE}</a>{HOSTILE}{HOSTILE}'
    with pytest.raises(UndefinedError):
        found.from_string("{{ words.unknown }}").render(words={"known": 1})


def test_an_undecided_row_tells_what_it_could_have_found(generator):
    few = generator(["base", "A-h1", "A-h4"], [1, 2, 3], "few")
    few.write_all({"A-h1": 0.3})
    page = make("few", few.root).render("html")
    assert re.search(r'title="[^"]*a true difference of [\d.]+ % PPL would have been detected with a probability', page)
    words = re.search(r'aria-label="Marks of the words">(.*?)</ul>', page).group(1)
    marks = re.findall(r'<span class="verdict (\w+)"><svg.*?></svg> ([\w ]+)</span>', words)
    assert marks[0] == ("found", "same direction") and ("open", "undecided") in marks
    assert "<strong>same direction</strong>" in page  # Holm's p is below the level too


def test_same_records_same_bytes(made):
    for kind in OF_REPORTS:
        assert make("made", made.root).render(kind) == make("made", made.root).render(kind)


def test_without_text_no_line_of_the_corpus_is_left(made):
    report = make("made", made.root)
    lines = [line for line in report.cells.sources + report.cells.references if len(line) > 12]
    shown, hidden = (html_module.unescape(report.render("html", texts=texts)) for texts in (True, False))
    assert any(line in shown for line in lines)
    assert not any(line in hidden for line in lines)


def test_ten_megabyte_sentence_is_clipped(made):
    folder = made.folder(made.study.rows[1], 1).path
    (path,) = folder.glob("scores/*/val.hyp.txt")
    before = path.read_text()
    path.write_text("x" * 10_000_000 + before[before.index("\n") :])
    try:
        assert len(make("made", made.root).render("html")) < 1_000_000
    finally:
        path.write_text(before)


def test_verb_writes_the_file_and_prints_the_table(made, capsys):
    out = ["--out", str(made.root)]
    assert main(["report", "made", *out]) == 0
    assert (made.root / "studies/made/report.html").read_text().startswith("<!DOCTYPE html>")
    capsys.readouterr()
    assert main(["report", "made", *out, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == "made"
    assert main(["report", "maid", *out]) == 2


def test_a_study_without_a_run_has_its_page(generator):
    """One of one seed: tests/golden/made/one_seed."""
    empty = generator(["base", "A-h1"], [1, 2], "empty")
    assert "0 of 4 runs finished" in make("empty", empty.root).render("html")


def test_the_page_of_a_smoke_test_says_so_first(tmp_path):
    words = "A smoke test: after ten steps scores and findings mean nothing"

    def page(root, steps):
        base = override(BASE, {"training.steps": steps, "miniature.steps": 1}, "")
        study = Generator(root, ["base", "A-h1"], [1, 2], base=base)
        study.write_all({"A-h1": 0.3})
        return make(study.study.name, root).render("html")

    of_smoke_test = page(tmp_path / "smoke", 10)
    assert of_smoke_test.index(words) < of_smoke_test.index("<h2")
    assert words not in page(tmp_path / "a" / "smoke", 20), "a folder may have that name by chance"
    assert words not in page(tmp_path / "results", 10)


def test_the_report_of_the_front_page_is_light(tmp_path):
    """Table 3 at five seeds; what pointing shows is said once, not in a title of every mark."""
    packed = Path(__file__).parents[3] / "experiments/results/miniature-8-epochs/records.tar.xz"
    study, _, _ = archive.unpack(packed, tmp_path)
    page = make(study, tmp_path).render("html")
    assert len(page.encode()) <= 450_000
    assert page.count("<title>") == 1 and page.count("data-tip=") < 400
    minus = html_module.unescape(re.sub(r"<(script|style|pre|code).*?</\1>|<[^>]+>", " ", page, flags=re.S))
    assert not re.search(r"(?<![\w.-])-\d", minus) and not re.search(r"[+−]0\.0(?!\d)", minus)


# --- large studies and hostile content: bounded in time and memory, readable, harmless ---


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
    paper = Paper(5.0, 25.0, 65)
    rows = [replace(own_row(f"r{i}", {"training.warmup": 401 + i}, f"g{i % 9}"), paper=paper) for i in range(count - 1)]
    return [replace(own_row("base", group="base"), paper=Paper(4.92, 25.8, 65)), *rows]


@pytest.mark.long
def test_report_from_500_runs_takes_a_gibibyte_at_most(tmp_path):
    Generator(tmp_path, many(100), [1, 2, 3, 4, 5]).write_all({"r3": 0.3})
    argv = [sys.executable, "-c", MEASURE, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    seconds, mebibytes, code = map(float, done.stdout.splitlines()[-1].split())
    size = (tmp_path / "studies/made/report.html").stat().st_size
    print(f"500 runs: {seconds:.1f} s of one processor, {mebibytes:.0f} MiB, {size:,} bytes")
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


@pytest.mark.parametrize("key", ["ppl", "bleu", "nll"])
def test_a_score_that_is_no_number_empties_its_cell_and_no_other(generator, key):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.3})
    for value in (float("nan"), float("inf"), float("-inf"), 1e999, "4.9", None, True, -1e308):
        made.write(made.study.rows[2], 3, 0.0, **{key: value})
        report = make("made", made.root)
        rows = {r.name: r for r in report.summary.rows}
        far = key == "ppl" and value in (float("inf"), 1e999)  # so far from any number that the seed counts as diverged
        assert rows["A-h4"].n == 2 + far and list(rows["A-h4"].missing) == ["3"] and rows["A-h1"].n == 3, value
        for kind in ("html", "markdown", "csv", "latex"):
            shown = re.sub(r"=-?(nan|inf)\b", "", report.render(kind))  # the reason says what it was
            assert not re.search(r"\b(nan|inf)\b", shown), value
        json.loads(report.render("json"), parse_constant=pytest.fail)


def test_a_row_whose_seeds_were_trained_on_different_devices_has_its_page(generator):
    made = generator(["base", "A-h1", own_row("also-base", {"model.h": 8})], [1, 2])
    made.write_all(skip=[("also-base", 1), ("also-base", 2)])
    path = made.folder(made.study.rows[1], 2).result
    record = json.loads(path.read_bytes())
    record["hardware"] |= {"gpus": ["NVIDIA H100", "NVIDIA H100"]}
    write_json(path, record | {"inexact": ["GPUs add in another order than CPUs"]})
    report = make("made", made.root)
    assert report.render("html").count("<bdi>GPUs add in another order than CPUs</bdi>") == 1
    assert "<p>PPL, 1 row:" in report.render("html")
    for kind in ("html", "markdown", "text"):
        said = " ".join(report.render(kind).split())
        assert "trained on several devices, 3 runs on CPU and 1 run on NVIDIA H100: their seconds do not" in said, kind


def test_a_row_that_is_another_adds_no_run(generator):
    made = generator(["base", "A-h1", own_row("also-h1", all_rows()["A-h1"].change)], [1, 2])
    made.write_all(skip=[("also-h1", 1), ("also-h1", 2)])
    write_lines(made.folder(made.study.rows[1], 1).metrics, diverging(9.0))
    words = visible(make("made", made.root).render("html"))
    assert "3 of 4 runs finished ; 1 diverged ; " in words and "whether 3 of them diverged is undefined" in words


def test_all_scores_are_no_numbers(generator):
    made = generator(["base", "A-h1"], [1, 2])
    for row in made.study.rows:
        for seed in made.study.seeds:
            made.write(row, seed, 0.0, ppl=float("nan"))
    assert "0 of 4 runs finished" in make("made", made.root).render("html")


def test_hostile_text_in_every_field_of_a_record_is_harmless(generator):
    mine = replace(own_row(f"mine {HOSTILE}", {"model.h": 2}, f"group {HOSTILE}"), where=f"{HOSTILE}:1")
    made = generator(["base", mine], [1, 2])
    pair = {"source": [HOSTILE], "target_in": [HOSTILE]}
    pair |= {kind: [[[[1000]]]] for kind in ("encoder", "decoder", "cross")}
    for row in made.study.rows:
        for seed in made.study.seeds:
            folder = made.write(row, seed, 0.0)
            record = json.loads(folder.result.read_bytes())
            record["hardware"] = {"cpu": HOSTILE, "gpus": [HOSTILE], "host": HOSTILE, "system": HOSTILE}
            record["versions"] = {HOSTILE: HOSTILE}
            record["git"] = {"commit": HOSTILE, "changed": True}
            record["data"] |= {key: HOSTILE for key in ("tokenizer", "dev")}
            record["inexact"] = [HOSTILE]
            write_json(folder.result, record)
            write_json(folder.path / "report/attention.json", {"sentences": [pair]})
    page = make("made", made.root).render("html")
    assert "4 of 4 runs finished" in page and 'id="attention-data"' in page
    parsed = Parser(page)
    assert parsed.open == [] and parsed.scripts == 2  # the page's own, and the data of the attention maps
    assert all(link.startswith(("#", "data:")) for link in parsed.links)
    found = page.find("<script>alert")
    assert found < 0, page[max(found - 200, 0) : found + 50]
    assert HOSTILE not in page


# --- colours of the pages as the colour-blind see them, in both schemes ---


LEAST = 20.0
SEEN_BY = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
"""of linear sRGB, D65"""
TEMPLATES = Path(lightning_tfm.report.__file__).parent / "templates"


def schemes() -> dict[str, dict[str, str]]:
    """light and dark: name -> #rrggbb."""
    light, dark = (TEMPLATES / "report.css").read_text().split("prefers-color-scheme: dark", 1)
    found = [dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{3,6})", css)) for css in (light, dark.split("* {")[0])]
    return {"light": found[0], "dark": found[0] | found[1]}


def linear(colour: str) -> np.ndarray:
    """RGB of #rrggbb or #rgb as light."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    srgb = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour through the eyes of `seen`."""
    ratio = XYZ @ np.clip(seen @ linear(colour), 0, 1) / XYZ.sum(axis=1)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: str, other: str, seen: np.ndarray) -> float:
    return float(np.linalg.norm(lab(one, seen) - lab(other, seen)))


def test_the_measure_knows_published_values():
    """sRGB's red and white in L*a*b*; red and green that only a deuteranope takes for alike."""
    assert lab("#ff0000", np.eye(3)) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert lab("#fff", np.eye(3)) == pytest.approx([100, 0, 0], abs=0.02)
    alike = "#a35c00", "#6f7a00"
    assert distance(*alike, SEEN_BY["deuteranopia"]) < LEAST < distance(*alike, np.eye(3))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eyes", SEEN_BY)
def test_colours_of_verdicts_and_of_trials_are_told_apart(scheme, eyes):
    """Each pair of them may lie side by side: in the bar of verdicts, the table, the pictures of a search."""
    css = (TEMPLATES / "report.css").read_text() + (TEMPLATES / "pictures.css").read_text()
    named = {
        style: name
        for names, name in re.findall(r"^\.([a-z, .]+) \{ color: var\(--([a-z]+)\) \}", css, re.M)
        for style in names.split(", .")
    }
    verdicts = {named[word.style] for word in Verdict}
    assert {"good", "bad", "found", "apart", "open"} == verdicts
    trials = {named[style] for style in ("best", "better", "rest")}
    palette = schemes()[scheme]
    near = {
        pair: round(distance(*(palette[name] for name in pair), SEEN_BY[eyes]), 1)
        for group in (verdicts, trials)
        for pair in combinations(sorted(group), 2)
    }
    assert {pair: apart for pair, apart in near.items() if apart < LEAST} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_verdicts_are_theirs_alone_and_can_be_read(scheme):
    """2.3 is just noticed in CIE76 (Mahy, Van Eycken and Oosterlinck 1994); WCAG 2 asks for a contrast of 4.5."""
    sheets, palette = [(TEMPLATES / name).read_text() for name in ("report.css", "pictures.css")], schemes()[scheme]
    assert (Verdict.BETTER.style, Verdict.WORSE.style) == ("found", "apart")
    coloured = {word.style for word in Verdict} - {"open", "untested"}
    for name in coloured:
        for ground in ("bg", "panel"):
            dim, bright = sorted(luminance(palette[colour]) for colour in (name, ground))
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (name, ground)
        others = {other: distance(palette[name], palette[other], np.eye(3)) for other in palette.keys() - coloured}
        assert min(others.values()) > 2.5 * 2.3, (name, others)
        assert sum(sheet.count(f"var(--{name})") for sheet in sheets) == 1, f"{name} is for verdicts"


def luminance(colour: str) -> float:
    return float(XYZ[1] @ linear(colour))
