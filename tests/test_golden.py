"""What people read of studies is what it was; a change on purpose is written anew and shows in the diff."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from lightning_tfm.report import archive
from lightning_tfm.report.study_report import make
from tests.golden import HERE, QUICK, STUDIES, comparison, plain, views
from tests.golden.synthetic import STUDIES as MADE
from tests.golden.synthetic import VIEWS


def compare(files: Iterable[tuple[str, str]], folder: Path) -> None:
    differing = [name for name, content in files if (folder / name).read_text() != content]
    assert differing == [], f"{folder}: where meant, python -m tests.golden, and see the diff"


@pytest.mark.parametrize("folder", [pytest.param(f, marks=() if f in QUICK else pytest.mark.long) for f in STUDIES])
def test_the_views_of_a_committed_study(folder, tmp_path):
    compare(views(folder, tmp_path), HERE / folder)


@pytest.mark.long
def test_two_committed_studies_side_by_side(tmp_path):
    compare(comparison(tmp_path), HERE)


def test_what_needs_no_study():
    compare(plain(), HERE)


@pytest.mark.usefixtures("counted_once")
@pytest.mark.parametrize("name", VIEWS)
def test_the_views_of_a_made_up_study(name, tmp_path):
    compare(VIEWS[name](tmp_path), HERE / "made" / name)
    if name in MADE:  # and its records say the same where there is no text and no refused record
        archive.pack(make("made", tmp_path).cells, tmp_path / "packed", tmp_path / "studies/made")
        archive.unpack(tmp_path / "packed", tmp_path / "there")
        travelled = make("made", tmp_path / "there").render("markdown")
        here, there = (
            [line for line in text.splitlines() if not re.match("- training:|.*, seed 2: ", line)]
            for text in ((HERE / "made" / name / "report.md").read_text(), travelled)
        )
        assert here == there


def test_no_text_of_a_made_up_study_is_wider_than_its_terminal():
    texts = [path for path in HERE.glob("made/*/*.txt") if "page" not in path.name]
    for path in texts:
        width = int(found[0]) if (found := re.findall(r"\d+", path.stem)) else 80
        assert max(map(len, path.read_text().splitlines())) <= width, path
    assert len(texts) > 30
