"""An archive of a study with a class of the user's own, packed by the program of November 2026."""

from pathlib import Path

from lightning_tfm.cli.main import main

PACKED = Path(__file__).parents[1] / "archives" / "own-class.tar.xz"


def test_a_study_whose_own_class_is_not_here_reads_and_prints(tmp_path, capsys):
    assert main(["records", "unpack", str(PACKED), "--out", str(tmp_path)]) == 0
    assert main(["table", "own-gate", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "own-gate: my_gate.Gate trained under an earlier version, which drew anew what a constructor had set; new runs "
        "need a study of another name\n"
    )
    assert "own-gate: 4 runs unpacked" in out and "78.55 ± 3.5 %" in out and "74.07 ± 4.3 %" in out
