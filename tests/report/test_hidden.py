"""A study with a hidden row has every view: no analysis meets a row that it does not know."""

import json
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.study_page import StudyPages
from lightning_tfm.queue.rows import hide
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as

RESULTS = Path(__file__).parents[2] / "experiments/results"
HIDDEN = {
    "extrapolation": ("extrapolation", "E-learned"),
    "layers": ("layers", "L-conv"),
    "norm": ("norm", "norm=pre, warmup=150, lr_factor=0.35"),
    "heads-tuned": ("heads-tuned", "A-h1"),
}
"""folder -> study and row: with lengths, with costs of layers, of two factors, tuned"""
HEADS = [[[[1000, 0], [400, 600]]]]
SENTENCE = {"source": ["a", "b"], "target_in": ["c", "d"], "encoder": HEADS, "decoder": HEADS, "cross": HEADS}
BINS = [{"count": 4, "confidence": 0.5, "accuracy": 0.5}]
COLLECTED = {"attention": {"sentences": [SENTENCE]}, "calibration": {"ece": 0.02, "bins": BINS}}


def unpacked(folder: str, to: Path) -> Path:
    assert main(["records", "unpack", str(RESULTS / folder / "records.tar.xz"), "--out", str(to / folder)]) == 0
    return to / folder


def collect(root: Path, name: str) -> None:
    """What `report --collect` would write, into every run."""
    for cell in load_as(Ablation, root, name).whole.cells():
        folder = RunFolder(root, cell.training_hash).path / "report"
        folder.mkdir(exist_ok=True)
        for what, record in COLLECTED.items():
            (folder / f"{what}.json").write_text(json.dumps(record))


@pytest.mark.parametrize("folder", HIDDEN)
def test_every_view_of_a_study_with_a_hidden_row(folder, tmp_path, capsys):
    root, (name, row) = unpacked(folder, tmp_path), HIDDEN[folder]
    collect(root, name)
    apart, out = hide(root, name, row), ("--out", str(root))
    last = [row.name for row in load_as(Ablation, root, name).rows][-1]
    studies = [str(at / "studies" / at.name) for at in (root, unpacked("relative", tmp_path))]
    compared = ["compare", *studies, "--to", "-"] if folder == "extrapolation" else ["status", name, *out]
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
    page = StudyPages(root).page(Board(root).look(), name)
    assert [row.name for row in page.data["rows"]] == [row.name for row in load_as(Ablation, root, name).rows]
    assert apart not in [row.name for row in page.data["rows"]]
