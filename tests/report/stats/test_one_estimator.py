"""The mean of a row and its difference to base are the same numbers wherever they are shown."""

import csv
import io
import json
import math
from pathlib import Path
from statistics import fmean, stdev

import pytest

from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.diff_page import DiffPages
from lightning_tfm.dashboard.run_page import RunPages
from lightning_tfm.dashboard.study_page import StudyPages
from lightning_tfm.metrics import BLEU, PPL
from lightning_tfm.report.build import make
from lightning_tfm.report.tables.data_lines import lines as lines_of
from tests.golden import ROOT, printed, visible

ROW = "norm=post, warmup=150, lr_factor=0.7"
"""its seeds lie so far apart that the arithmetic mean of its perplexities is 8.27, 288 % above base's"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("norm")
    printed("records", "unpack", str(ROOT / "experiments/results/norm/records.tar.xz"), "--out", str(where))
    return where


@pytest.fixture(scope="module")
def logs(root: Path) -> dict[str, list[float]]:
    """row -> log perplexities, by seed."""
    report = make("norm", root)
    return {row: [math.log(cell.ppl) for cell in report.cells.of(row)] for row in ("base", ROW)}


def test_in_print(root: Path, logs: dict[str, list[float]]) -> None:
    mean, spread = math.exp(fmean(logs[ROW])), 100 * stdev(logs[ROW])
    percent = 100 * math.expm1(fmean(logs[ROW]) - fmean(logs["base"]))
    assert (f"{mean:.2f}", f"{percent:.0f}") == ("8.18", "284")
    out = ("--out", str(root))
    views = {kind: printed("report", "norm", "--format", kind, "--to", "-", *out) for kind in ("markdown", "latex")}
    views["html"] = visible(printed("report", "norm", "--to", "-", *out))
    for kind in ("text", "markdown", "latex"):
        views[f"table {kind}"] = printed("table", "norm", "--format", kind, *out)
    views["reference"] = printed("table", "norm", "--reference", "norm=pre, warmup=300, lr_factor=0.7", *out)
    for kind, text in views.items():
        between = r"\,$\pm$\,{:.1f}" if "tabular" in text else " ± {:.1f} %"
        assert f"{mean:.2f}" + between.format(spread) in text, kind
        assert "8.27" not in text and "+288" not in text, kind
    assert all(f"{percent:+.1f}" in views[kind] for kind in ("markdown", "latex", "html"))


def test_for_programs_and_on_the_dashboard(root: Path, logs: dict[str, list[float]]) -> None:
    mean, spread = math.exp(fmean(logs[ROW])), 100 * stdev(logs[ROW])
    log = fmean(logs[ROW]) - fmean(logs["base"])
    out = ("--out", str(root))

    def lines(*argv: str) -> dict[str, str]:
        return next(one for one in csv.DictReader(io.StringIO(printed(*argv, *out))) if one["row"] == ROW)

    def data(*argv: str) -> dict[str, dict]:
        return next(one for one in json.loads(printed(*argv, *out))["rows"] if one["row"] == ROW)

    table, report = lines("table", "norm", "--format", "csv"), lines("report", "norm", "--format", "csv", "--to", "-")
    plain, full = data("table", "norm", "--format", "json"), data("report", "norm", "--format", "json", "--to", "-")
    sent = next(one for one in lines_of(make("norm", root).summary) if one["row"] == ROW)
    page = StudyPages(root).page(Board(root, every=0).look(), "norm")
    shown = next(row for row in page.data["rows"] if row.name == ROW)
    means = [float(table["ppl mean"]), float(report["ppl mean"]), plain["ppl"]["mean"], full["ppl"]["mean"]]
    assert [*means, sent["ppl mean"], shown.ppl.mean] == pytest.approx([mean] * 6, rel=1e-9)
    spreads = [float(table["ppl sd %"]), float(report["ppl sd %"]), plain["ppl"]["sd %"], full["ppl"]["sd %"]]
    assert spreads == pytest.approx([spread] * 4, rel=1e-9) and shown.ppl.spread == f"{spread:.1f} %"
    logged = [float(report["ppl difference estimate"]), full["ppl"]["difference"]["estimate"]]
    assert logged == pytest.approx([log] * 2, rel=1e-9)
    percent = [full["ppl"]["difference"]["percent"]["estimate"], sent["ppl difference percent estimate"], shown.against]
    assert percent == pytest.approx([100 * math.expm1(log)] * 3, rel=1e-9)


def test_of_two_runs_on_the_dashboard(root: Path, logs: dict[str, list[float]]) -> None:
    board = Board(root, every=0)
    names = [make("norm", root).cells.of(row)[0].folder.name for row in ("base", ROW)]
    scores = dict(DiffPages(root, RunPages(board)).page(board.look(), names).data["scores"])
    percent = 100 * math.expm1(logs[ROW][0] - logs["base"][0])
    assert scores["dev PPL"][1].endswith(f"({percent:+.1f} %)")


def test_a_mean_is_back_from_what_is_tested() -> None:
    assert PPL.mean([2.0, 8.0]) == pytest.approx(4.0) and BLEU.mean([20.0, 30.0]) == 25.0
    assert PPL.sd([2.0, 8.0]) == pytest.approx(100 * stdev([math.log(2), math.log(8)]))
    assert (PPL.sd([3.0]), PPL.sd([3.0, math.inf]), PPL.mean([math.inf])) == (None, None, math.inf)
    assert PPL.score(4.0, 1.234) == "4.00 ± 1.2 %" and BLEU.score(25.0, 1.234) == "25.0 ± 1.2"
