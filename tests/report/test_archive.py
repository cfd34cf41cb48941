"""A study's numbers travel without its text, and say the same where they arrive."""

import io
import json
import lzma
import shutil
import tarfile

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.report import archive
from lightning_tfm.report.records import collect, read_cells
from lightning_tfm.report.summarise import summarise
from lightning_tfm.study.rows import Paper, Row, all_rows
from lightning_tfm.study.study import Ablation, load_as
from tests.report.synthetic import Generator


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = Generator(tmp_path_factory.mktemp("here"), ["base", "A-h1", "C-N2"], [1, 2, 3])
    made.write_all({"C-N2": 0.2}, skip=[("A-h1", 3)])
    return made


def said(root):
    study = load_as(Ablation, root, "made")
    return summarise(read_cells(study, root, collect(study, root)))


def unpacked(file):
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(file.read_bytes()))) as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened}


def test_the_report_of_the_unpacked_records_is_the_same_without_any_text(made, tmp_path, capsys):
    file, there = tmp_path / "made.tar.xz", tmp_path / "there"
    assert main(["records", "pack", "made", str(file), "--out", str(made.root)]) == 0
    assert main(["records", "unpack", str(file), "--out", str(there)]) == 0
    assert "8 runs of made" in capsys.readouterr().out
    ours, theirs = said(made.root), said(there)
    assert [r.missing for r in theirs.rows] == [{}, {"3": "not run yet"}, {}]
    for before, after in zip(ours.rows, theirs.rows, strict=True):
        for metric in ("ppl", "bleu"):
            assert after.metric(metric).by_seed == before.metric(metric).by_seed
            if before.metric(metric).difference and before.metric(metric).difference.weighed:
                p = [r.metric(metric).difference.p for r in (before, after)]
                assert p[1] == pytest.approx(p[0], rel=1e-5)
    words = set(" ".join(made.references).split())
    held = b" ".join(unpacked(file).values()).decode()
    assert len(words) > 50 and not [word for word in words if len(word) > 5 and word in held]
    assert not list(there.rglob("*.hyp.txt"))


def test_unpacking_again_changes_nothing_and_packing_again_gives_the_same_bytes(made, tmp_path):
    study = load_as(Ablation, made.root, "made")
    cells = read_cells(study, made.root, collect(study, made.root))
    first, second = tmp_path / "1", tmp_path / "2"
    assert archive.pack(cells, first) == archive.pack(cells, second) == 8
    assert first.read_bytes() == second.read_bytes()
    assert archive.unpack(first, tmp_path / "there") == ("made", 8, 0)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "there").rglob("*.json")}
    assert archive.unpack(first, tmp_path / "there") == ("made", 0, 8)
    assert {p: p.stat().st_mtime_ns for p in before if p.name != "study.json"} == {
        p: t for p, t in before.items() if p.name != "study.json"
    }


def test_what_is_no_archive_is_refused(made, tmp_path):
    with pytest.raises(UserError, match="no such file"):
        archive.unpack(tmp_path / "none", tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UserError, match="not an archive"):
        archive.unpack(tmp_path / "text", tmp_path)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as opened:
        opened.addfile(tarfile.TarInfo("runs/../../escaped"), io.BytesIO(b""))
    (tmp_path / "evil").write_bytes(lzma.compress(raw.getvalue()))
    with pytest.raises(UserError, match="escaped"):
        archive.unpack(tmp_path / "evil", tmp_path)


def test_runs_that_two_rows_share_count_once_and_no_run_is_no_archive(tmp_path, capsys):
    same = Row("also", "X", {"model.h": 8}, Paper(None, None, None), "mine.yaml:1")
    twice = Generator(tmp_path, [all_rows()["base"], all_rows()["A-h1"], same], [1, 2])
    assert main(["records", "pack", "made", str(tmp_path / "a"), "--out", str(tmp_path)]) == 2
    assert "study 'made': none of its runs is finished" in capsys.readouterr().err and not (tmp_path / "a").exists()
    twice.write_all({}, skip=[("also", 1), ("also", 2)])
    cells = read_cells(twice.study, tmp_path, collect(twice.study, tmp_path))
    assert len(cells.filled) == 6 and archive.pack(cells, tmp_path / "a") == 4
    assert archive.unpack(tmp_path / "a", tmp_path / "there") == ("made", 4, 0)


def test_without_the_references_there_are_no_counts_to_pack(made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy)
    shutil.rmtree(copy / "data")
    study = load_as(Ablation, copy, "made")
    with pytest.raises(UserError, match="dev text"):
        archive.pack(read_cells(study, copy, collect(study, copy)), tmp_path / "file")


def test_counts_that_were_cut_leave_the_cell_empty_with_the_reason(made, tmp_path):
    study = load_as(Ablation, made.root, "made")
    archive.pack(read_cells(study, made.root, collect(study, made.root)), tmp_path / "file")
    archive.unpack(tmp_path / "file", tmp_path / "there")
    counts = sorted((tmp_path / "there").rglob("*.counts.tsv"))[0]
    counts.write_text("1\t2\n")
    empty = [why for row in said(tmp_path / "there").rows for why in row.missing.values()]
    assert sorted(empty)[0].startswith("its scores cannot be read") and json.dumps(empty)
