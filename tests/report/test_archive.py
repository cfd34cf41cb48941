"""A study's numbers travel without its text, and say the same where they arrive."""

import io
import json
import lzma
import shutil
import tarfile

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.queue.housekeeping import list_runs, remove
from lightning_tfm.report import archive
from lightning_tfm.report.build_summary import summarise
from lightning_tfm.report.records import read_cells, with_sentences
from lightning_tfm.report.study_report import make as build
from lightning_tfm.study.sequential import Course, Look, late
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as
from tests.golden.synthetic import diverging, write_looks
from tests.helpers.studies import Generator, own_row, write_json, write_lines


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = Generator(tmp_path_factory.mktemp("here"), ["base", "A-h1", "C-N2"], [1, 2, 3])
    made.write_all({"C-N2": 0.2}, skip=[("A-h1", 3)])
    return made


@pytest.fixture(scope="module")
def packed(made):
    """The study's archive."""
    file = made.root.parent / "good.xz"
    assert main(["records", "pack", "made", str(file), "--out", str(made.root)]) == 0
    return file


def cells_of(root):
    study = load_as(Ablation, root, "made")
    return with_sentences(read_cells(study, root))


def unpacked(file):
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(file.read_bytes()))) as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened}


def test_the_report_of_the_unpacked_records_is_the_same_without_any_text(made, tmp_path, capsys):
    file, there = tmp_path / "made.tar.xz", tmp_path / "there"
    assert main(["records", "pack", "made", str(file), "--out", str(made.root)]) == 0
    assert main(["records", "unpack", str(file), "--out", str(there)]) == 0
    assert "8 runs of made" in capsys.readouterr().out
    ours, theirs = (summarise(cells_of(root)) for root in (made.root, there))
    assert [r.missing for r in theirs.rows] == [{}, {"3": "not run yet"}, {}]
    for before, after in zip(ours.rows, theirs.rows, strict=True):
        for metric in ("ppl", "bleu"):
            assert after.metric(metric).by_seed == before.metric(metric).by_seed
            if before.metric(metric).difference and before.metric(metric).difference.evidence:
                p = [r.metric(metric).difference.p for r in (before, after)]
                assert p[1] == pytest.approx(p[0], rel=1e-5)
    words = set(" ".join(made.references).split())
    held = b" ".join(unpacked(file).values()).decode()
    assert len(words) > 50 and not [word for word in words if len(word) > 5 and word in held]
    assert not list(there.rglob("*.hyp.txt"))


def test_unpacking_again_changes_nothing_and_packing_again_gives_the_same_bytes(made, tmp_path):
    cells, first, second = cells_of(made.root), tmp_path / "1", tmp_path / "2"
    assert archive.pack(cells, first) == archive.pack(cells, second) == 8
    assert first.read_bytes() == second.read_bytes()
    assert archive.unpack(first, tmp_path / "there") == ("made", 8, 0)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "there/runs").rglob("*.json")}
    assert archive.unpack(first, tmp_path / "there") == ("made", 0, 8)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_unpacked_runs_belong_to_their_study(packed, tmp_path, capsys):
    assert main(["records", "unpack", str(packed), "--out", str(tmp_path)]) == 0
    found = list_runs(tmp_path)
    assert sorted(cell for one in found for cell in one["cells"]) == sorted(
        f"made/{row}/{seed}" for row in ("base", "A-h1", "C-N2") for seed in (1, 2, 3) if (row, seed) != ("A-h1", 3)
    )
    with pytest.raises(UserError, match="is used by made/"):
        remove(tmp_path, found[0]["run"])


def test_runs_that_two_rows_share_count_once_and_no_run_is_no_archive(tmp_path, capsys):
    twice = Generator(tmp_path, ["base", "A-h1", own_row("also", {"model.h": 8})], [1, 2])
    assert main(["records", "pack", "made", str(tmp_path / "a"), "--out", str(tmp_path)]) == 2
    assert "study 'made': none of its runs is finished" in capsys.readouterr().err and not (tmp_path / "a").exists()
    twice.write_all({}, skip=[("also", 1), ("also", 2)])
    cells = cells_of(tmp_path)
    assert len(cells.filled) == 6 and archive.pack(cells, tmp_path / "a") == 4
    assert archive.unpack(tmp_path / "a", tmp_path / "there") == ("made", 4, 0)


def test_without_the_references_there_are_no_counts_to_pack(made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy)
    shutil.rmtree(copy / "data")
    with pytest.raises(UserError, match="dev set"):
        archive.pack(cells_of(copy), tmp_path / "file")


def test_counts_that_were_cut_leave_the_cell_empty_with_the_reason(made, tmp_path):
    archive.pack(cells_of(made.root), tmp_path / "file")
    archive.unpack(tmp_path / "file", tmp_path / "there")
    counts = sorted((tmp_path / "there").rglob("*.counts.tsv"))[0]
    counts.write_text("1\t2\n")
    empty = [missing.reason for missing in cells_of(tmp_path / "there").empty.values()]
    assert sorted(empty)[0].startswith("its scores cannot be read")


def tarred(members):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as opened:
        for name, content in members:
            entry = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            entry.size = len(content) if entry.isreg() else 0
            opened.addfile(entry, io.BytesIO(content))
    return lzma.compress(raw.getvalue())


def of_kind(kind, name, target=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def a_run(members):
    """The folder of a run that is in the archive."""
    return next(name for name, _ in members if name.endswith("/result.json")).removesuffix("/result.json")


RUN = "runs/0123456789abcdef"
HOSTILE = {
    "an absolute path behind a run": lambda good, to: [*good, (f"{RUN}/{to}/owned", b"x")],
    "an absolute path": lambda good, to: [*good, (f"{to}/owned", b"x")],
    "a way up": lambda good, to: [*good, (f"{RUN}/../../owned", b"x")],
    "a run that is no hash": lambda good, to: [*good, ("runs/base/result.json", b"{}")],
    "a file that no run has": lambda good, to: [*good, (f"{RUN}/log.txt", b"x")],
    "a file that no run has, in one that is there": lambda good, to: [*good, (f"{a_run(good)}/log.txt", b"x")],
    "a way up from a run that is there": lambda good, to: [*good, (f"{a_run(good)}/../../owned", b"x")],
    "weights": lambda good, to: [*good, (f"{RUN}/checkpoints/last.ckpt", b"x")],
    "a hidden score": lambda good, to: [*good, (f"{RUN}/scores/{'a' * 16}/.x.json", b"{}")],
    "a run without its record": lambda good, to: [*good, (f"{RUN}/metrics.jsonl", b"")],
    "another's record": lambda good, to: [*good, (f"{RUN}/result.json", next(d for n, d in good if "result" in n))],
    "a record that is none": lambda good, to: [*good, (f"{RUN}/result.json", b"[1, 2]")],
    "a record nested without end": lambda good, to: [*good, (f"{RUN}/result.json", b"[" * 100_000)],
    "a member twice": lambda good, to: [*good, good[0]],
    "a second study": lambda good, to: [*good, ("studies/other/study.json", dict(good)["studies/made/study.json"])],
    "no study": lambda good, to: [one for one in good if not one[0].startswith("studies/")],
    "a study's file beside another study": lambda good, to: [*good, ("studies/other/tuning.json", b"{}")],
    "a study that is none": lambda good, to: [("studies/made/study.json", b"[]")],
    "a study that is no JSON": lambda good, to: [("studies/made/study.json", b"\xff\xfe{")],
    "a symbolic link": lambda good, to: [*good, (of_kind(tarfile.SYMTYPE, f"{RUN}/result.json", to), b"")],
    "a hard link": lambda good, to: [*good, (of_kind(tarfile.LNKTYPE, f"{RUN}/result.json", to), b"")],
    "a device": lambda good, to: [*good, (of_kind(tarfile.CHRTYPE, f"{RUN}/result.json"), b"")],
    "a pipe": lambda good, to: [*good, (of_kind(tarfile.FIFOTYPE, f"{RUN}/result.json"), b"")],
    "a name too long": lambda good, to: [*good, (f"{RUN}/scores/{'a' * 16}/{'b' * 300}.json", b"{}")],
    "a name with a line in it": lambda good, to: [*good, (f"{RUN}/scores/{'a' * 16}/b\nc.json", b"{}")],
}


NO_ARCHIVE = {
    "half of one": (lambda good: good[: len(good) // 2], "not an archive"),
    "nothing": (lambda good: b"", "not an archive"),
    "zeros": (lambda good: bytes(500), "not an archive"),
    "no tar": (lambda good: lzma.compress(b"no tar"), "not an archive"),
    # 156 kB became 1 GiB
    "a bomb": (lambda good: lzma.compress(bytes(200 << 20), preset=0), "it grows beyond"),
}


@pytest.mark.parametrize("what", [*HOSTILE, *NO_ARCHIVE, "a row without sizes"])
def test_an_archive_that_is_hostile_or_none_is_refused_in_a_line_and_leaves_nothing(packed, tmp_path, capsys, what):
    """A member `runs/<16 hex>//ABSOLUTE/PATH` wrote any file that the user could write; one without sizes left runs."""
    members, said = unpacked(packed), "bad.xz: not a"
    (tmp_path / "outside").mkdir()
    if what in HOSTILE:
        content = tarred(HOSTILE[what](list(members.items()), str(tmp_path / "outside")))
    elif what in NO_ARCHIVE:
        content, said = NO_ARCHIVE[what][0](packed.read_bytes()), NO_ARCHIVE[what][1]
    else:
        study = json.loads(members["studies/made/study.json"])
        study["base"]["model"]["d_v"] = 0
        content, said = (
            tarred((members | {"studies/made/study.json": json.dumps(study).encode()}).items()),
            "model.d_v=0",
        )
    (tmp_path / "bad.xz").write_bytes(content)
    assert len(content) < 100_000 or what != "a bomb"
    capsys.readouterr()
    assert main(["records", "unpack", str(tmp_path / "bad.xz"), "--out", str(tmp_path / "there")]) == 2
    told = capsys.readouterr().err
    assert said in told and (told.count("\n") == 1 or what == "a row without sizes"), told
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["bad.xz"]
    assert what in HOSTILE or not (tmp_path / "there").exists()


def test_an_archive_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["records", "unpack", str(tmp_path / "bad.xz"), "--out", str(tmp_path / "there")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_looks_and_diverged_runs_travel_too_so_that_nothing_is_tested_otherwise_where_they_arrive(tmp_path):
    """Without its looks a study would be tested at the whole level, and without a diverged run by its survivors."""
    made = Generator(tmp_path / "here", ["base", "A-h1", "A-h4", "C-N2"], [1, 2, 3, 4, 5])
    made.write_all({"A-h1": 0.05, "C-N2": 0.2}, skip=[("A-h4", 2)])
    _, _, h4, n2 = made.study.rows
    folder = made.folder(h4, 2)
    write_json(folder.identity, made.study.identity_of(h4, 2))
    write_json(folder.outcome, {"outcome": "nan_loss", "reason": "the loss was nan", "step": 9})
    write_lines(made.folder(n2, 3).metrics, diverging(9.0))
    seen = {row.name: made.study.seeds for row in made.study.rows}
    write_looks(made, Course(late(5, 8), [Look(seen)], seen))
    archive.pack(build("made", made.root).cells, tmp_path / "file", made.root / "studies/made")
    archive.unpack(tmp_path / "file", tmp_path / "there")
    ours, theirs = (build("made", root).summary for root in (made.root, tmp_path / "there"))
    assert theirs.looks is not None and theirs.interval_level == ours.interval_level == 0.995
    assert [row.diverged for row in theirs.rows] == [None, None, [2], [3]]
    assert [row.missing for row in theirs.rows] == [row.missing for row in ours.rows]
    p = [summary.rows[1].ppl.difference.p for summary in (ours, theirs)]
    assert p[1] == pytest.approx(p[0], rel=1e-5)
