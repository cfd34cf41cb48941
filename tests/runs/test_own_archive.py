"""An archive of a study with a class of the user's own, packed by an earlier program, where the class is not."""

from pathlib import Path

import pytest

from lightning_tfm.cli.main import main

PACKED = Path(__file__).parents[1] / "archives" / "own.tar.xz"
EARLIER = (
    "own_ff.Reversed trained under an earlier version, which drew anew what a constructor had set; new runs need a "
    "study of another name"
)


@pytest.fixture
def root(tmp_path, capsys):
    assert main(["records", "unpack", str(PACKED), "--out", str(tmp_path)]) == 0
    assert "own: 2 runs unpacked" in capsys.readouterr().out
    return tmp_path


def test_it_reads_and_prints_with_a_line_of_the_version(root, capsys):
    assert main(["table", "own", "--out", str(root)]) == 0
    out, err = capsys.readouterr()
    assert err == f"own: {EARLIER}\n" and " 14.77 " in out and " 14.86 " in out
    assert main(["status", "own", "--out", str(root)]) == 0
    out, err = capsys.readouterr()
    assert err == f"own: {EARLIER}\n" and "own: 2 finished" in out


def test_its_pages_have_the_line(root, capsys):
    assert main(["report", "own", "--to", "-", "--out", str(root)]) == 0
    assert EARLIER in capsys.readouterr().out
