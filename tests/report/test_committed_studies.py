"""Committed studies: one number wherever it is shown, every view with a hidden row, and the page that quotes them."""

import csv
import io
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard import diff_page, study_page
from lightning_tfm.dashboard.board import Board
from lightning_tfm.metrics import BLEU, PPL
from lightning_tfm.queue.studies import hide
from lightning_tfm.report.across.long_table import long_table
from lightning_tfm.report.across.meta_analysis import pooled_rows
from lightning_tfm.report.archive import unpack
from lightning_tfm.report.study_report import make
from lightning_tfm.report.tables.main_table import table_lines as lines_of
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as
from tests.golden import HERE, QUICK, ROOT
from tests.helpers.studies import write_json

ROW = "norm=post, warmup=150, lr_factor=0.7"
"""its seeds lie so far apart that the arithmetic mean of its perplexities is 8.27, 288 % above base's"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("norm", tmp_path_factory.mktemp("committed"))


@pytest.fixture(scope="module")
def logs(root: Path) -> dict[str, list[float]]:
    """row -> log perplexities, by seed."""
    report = make("norm", root)
    return {row: [math.log(cell.ppl) for cell in report.cells.of(row)] for row in ("base", ROW)}


def view(name: str) -> str:
    """What test_golden.py compares with what is printed."""
    return (HERE / "norm" / name).read_text()


def line_of(lines: Iterable[Any]) -> Any:
    return next(line for line in lines if line["row"] == ROW)


def test_in_print(logs: dict[str, list[float]]) -> None:
    mean, spread = math.exp(fmean(logs[ROW])), 100 * stdev(logs[ROW])
    percent = 100 * math.expm1(fmean(logs[ROW]) - fmean(logs["base"]))
    assert (f"{mean:.2f}", f"{percent:.0f}") == ("8.18", "284")
    views = {name: view(name) for name in ("report.md", "report.tex", "page.txt", "table.txt", "table.md", "table.tex")}
    for kind, text in (views | {"reference": view("reference.txt")}).items():
        between = r"\,$\pm$\,{:.1f}" if "tabular" in text else " ± {:.1f} %"
        assert f"{mean:.2f}" + between.format(spread) in text, kind
        assert "8.27" not in text and "+288" not in text, kind
    assert all(f"{percent:+.1f}" in views[kind] for kind in ("report.md", "report.tex", "page.txt"))


def test_for_programs_and_on_the_dashboard(root: Path, logs: dict[str, list[float]]) -> None:
    mean, spread = math.exp(fmean(logs[ROW])), 100 * stdev(logs[ROW])
    log = fmean(logs[ROW]) - fmean(logs["base"])
    table, report = (line_of(csv.DictReader(io.StringIO(view(name)))) for name in ("table.csv", "report.csv"))
    plain, full = (line_of(json.loads(view(name))["rows"]) for name in ("table.json", "report.json"))
    sent = line_of(lines_of(make("norm", root).summary))
    page = study_page.page(Board(root), Board(root, every=0).look(), "norm")
    shown = next(row for row in page.data["rows"] if row["name"] == ROW)
    means = [float(table["ppl mean"]), float(report["ppl mean"]), plain["ppl"]["mean"], full["ppl"]["mean"]]
    assert [*means, sent["ppl mean"], shown["ppl"]["mean"]] == pytest.approx([mean] * 6, rel=1e-9)
    spreads = [float(table["ppl sd %"]), float(report["ppl sd %"]), plain["ppl"]["sd %"], full["ppl"]["sd %"]]
    assert spreads == pytest.approx([spread] * 4, rel=1e-9) and shown["ppl"]["spread"] == f"{spread:.1f} %"
    logged = [float(report["ppl difference estimate"]), full["ppl"]["difference"]["estimate"]]
    assert logged == pytest.approx([log] * 2, rel=1e-9)
    percent = [
        full["ppl"]["difference"]["percent"]["estimate"],
        sent["ppl difference percent estimate"],
        shown["against"],
    ]
    assert percent == pytest.approx([100 * math.expm1(log)] * 3, rel=1e-9)


def test_of_two_runs_on_the_dashboard(root: Path, logs: dict[str, list[float]]) -> None:
    board = Board(root, every=0)
    names = [make("norm", root).cells.of(row)[0].folder.name for row in ("base", ROW)]
    scores = dict(diff_page.page(board, board.look(), names).data["scores"])
    percent = 100 * math.expm1(logs[ROW][0] - logs["base"][0])
    assert scores["dev PPL"][1].endswith(f"({percent:+.1f} %)")


def test_a_mean_is_back_from_what_is_tested() -> None:
    assert PPL.mean([2.0, 8.0]) == pytest.approx(4.0) and BLEU.mean([20.0, 30.0]) == 25.0
    assert PPL.sd([2.0, 8.0]) == pytest.approx(100 * stdev([math.log(2), math.log(8)]))
    assert (PPL.sd([3.0]), PPL.sd([3.0, math.inf]), PPL.mean([math.inf])) == (None, None, math.inf)
    assert PPL.score(4.0, 1.234) == "4.00 ± 1.2 %" and BLEU.score(25.0, 1.234) == "25.0 ± 1.2"


# --- with a hidden row no analysis meets a row that it does not know ---


HIDDEN = {
    "extrapolation": "E-learned",
    "layers": "L-conv",
    "norm": "norm=pre, warmup=150, lr_factor=0.35",
    "heads-tuned": "A-h1",
}
"""study -> row: with lengths, with costs of layers, of two factors, tuned"""
HEADS = [[[[1000, 0], [400, 600]]]]
SENTENCE = {"source": ["a", "b"], "target_in": ["c", "d"], "encoder": HEADS, "decoder": HEADS, "cross": HEADS}
BINS = [{"count": 4, "confidence": 0.5, "accuracy": 0.5}]
COLLECTED = {"attention": {"sentences": [SENTENCE]}, "calibration": {"ece": 0.02, "bins": BINS}}


def unpacked(folder: str, to: Path) -> Path:
    unpack(ROOT / f"experiments/results/{folder}/records.tar.xz", to / folder)
    return to / folder


def collect(root: Path, name: str) -> None:
    """What `report --collect` would write, into every run."""
    for cell in load_as(Ablation, root, name).whole.cells():
        for what, record in COLLECTED.items():
            write_json(RunFolder(root, cell.training_hash).path / "report" / f"{what}.json", record)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.long) for n in HIDDEN])
def test_every_view_of_a_study_with_a_hidden_row(name, tmp_path, capsys):
    root = unpacked(name, tmp_path)
    collect(root, name)
    apart, out = hide(root, name, HIDDEN[name]), ("--out", str(root))
    last = [row.name for row in load_as(Ablation, root, name).rows][-1]
    studies = [str(at / "studies" / at.name) for at in (root, unpacked("relative", tmp_path))]
    compared = ["compare", *studies, "--to", "-"] if name == "extrapolation" else ["status", name, *out]
    for argv in (
        ["table", name, *out],
        ["table", name, "--plain", *out],
        ["table", name, "--reference", last, *out],
        *(["report", name, "--format", kind, "--to", "-", *out] for kind in ("html", "json", "latex")),
        ["report", name, "--figures", str(tmp_path / "figures"), *out],
        compared,
    ):
        capsys.readouterr()
        assert main(argv) == 0, argv
        printed = capsys.readouterr()
        assert "hidden" in (printed.err if argv[0] == "status" else printed.out) or "--figures" in argv, argv
    page = study_page.page(Board(root), Board(root).look(), name)
    assert [row["name"] for row in page.data["rows"]] == [row.name for row in load_as(Ablation, root, name).rows]
    assert apart not in [row["name"] for row in page.data["rows"]]


# --- docs/results/worth.md and its table say what the committed records say ---


STUDIES = {"miniature": "table3", "multi30k": "multi30k", "manpages": "manpages", "tatoeba": "tatoeba"}
STUDIES |= {"tatoeba-8-epochs": "tatoeba-8-epochs"}


def percent(log: float, digits: int = 0) -> str:
    return f"{100 * math.expm1(log):+.{digits}f}"


@pytest.mark.long
def test_the_table_of_all_studies(tmp_path):
    reports = [make(name, unpacked(folder, tmp_path)) for folder, name in STUDIES.items()]
    every = pooled_rows(long_table(reports)[0])
    over = {r["row"]: r for r in every[every.metric == "ppl"].to_dict("records")}
    lines, held = {}, []
    for name, here in over.items():
        found = [row.ppl.difference for r in reports for row in r.summary.rows if row.name == name]
        paper = found[0].paper
        held += [a.lower <= b.estimate <= a.upper for a in found for b in found if a is not b]
        unseen = f"[{percent(here['unseen lower'])}, {percent(here['unseen upper'])}]"
        side = sum((d.estimate > 0) == (paper > 0) for d in found) if paper else ""
        studies = [f"**{percent(d.estimate)}**" if d.lower * d.upper > 0 else percent(d.estimate) for d in found]
        unseen = unseen if here["word"] == "undecided" else f"**{unseen}**"
        lines[name] = [percent(paper, 1), *studies, str(side), unseen]
    table = (ROOT / "experiments" / "results" / "meta-analysis" / "table.md").read_text()
    printed = [re.split(r" *\| *", line.strip("|\n ")) for line in table.splitlines() if re.match(r"\| [A-Eb]", line)]
    assert {name: cells for name, _, *cells in printed} == lines
    page = (ROOT / "docs" / "results" / "worth.md").read_text()
    assert f"{sum(held)} of {len(held)} cases ({sum(held) / len(held):.0%})".replace("%", " %") in page
