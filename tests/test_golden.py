"""What people read of studies is what it was; a change on purpose is written anew and shows in the diff."""

import csv
import json
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


def kept(pattern: str) -> list[Path]:
    found = sorted(HERE.glob(f"**/{pattern}"))
    assert len(found) > 2
    return found


@pytest.mark.parametrize(("pattern", "bar"), [("*.md", r"(?<!\\)\|"), ("*.tex", r"(?<!\\)&")])
def test_every_table_has_as_many_cells_in_each_of_its_rows(pattern, bar):
    """Of Markdown a table ends at what is no row; of LaTeX heads that span columns are left out."""
    for path in kept(pattern):
        text = path.read_text()
        if pattern == "*.tex":
            tables = [
                [line for line in part.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
                for part in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text, re.DOTALL)
            ]
        else:
            tables = [part.splitlines() for part in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
        assert all(len({len(re.findall(bar, row)) for row in rows}) <= 1 for rows in tables), path


def test_csv_and_json_hold_the_same_numbers_of_a_study():
    """That they are the right ones: tests/report."""
    for path in [*kept("report.json"), *kept("made/*/reference.json")]:
        rows = {row["row"]: row for row in json.loads(path.read_bytes())["rows"]}
        lines = {line["row"]: line for line in csv.DictReader(path.with_suffix(".csv").read_text().splitlines())}
        assert lines.keys() == rows.keys(), path
        for name, row in rows.items():
            for metric in ("ppl", "bleu", "nll per word"):
                scores = row.get(metric) or {}
                known = {f"{metric} mean": scores.get("mean")}
                for part in ("estimate", "lower", "upper", "p", "holm", "verdict"):
                    known[f"{metric} difference {part}"] = (scores.get("difference") or {}).get(part)
                for head, value in known.items():
                    assert lines[name].get(head, "") == ("" if value is None else str(value)), (path, name, head)
