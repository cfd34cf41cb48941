"""The view of a single run, which lives in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from lightning_tfm.cli.train.fit import _watching
from lightning_tfm.study.cell import Cell
from lightning_tfm.runs.process.forking import exit_on_signals
exit_on_signals()
for _ in range(int(sys.argv[2])):
    with _watching(Path(sys.argv[1]), Cell("base", 1, "0" * 64, 1.0)):
        pass
"""


@pytest.mark.parametrize("times", [30, pytest.param(200, marks=pytest.mark.long)])
def test_the_view_ends_with_a_run_that_ends_at_once(tmp_path: Path, times: int) -> None:
    """A signal that reaches a child before Python has set it up after the fork is forgotten."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
