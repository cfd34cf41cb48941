"""How often the process of `sweep` reads a file, or lays a row on base, its report included: once is enough to know."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.study import expressions
from tests.helpers.tiny import in_child, miniature

SWEEP = """name: traced
method: grid
parameters:
  row: {values: [base, A-h1, E-learned]}
command: [lightning-tfm, fit, "${args}"]
"""


def traced(sweep: Path, root: Path, *arguments: str) -> tuple[int, Counter, Counter]:
    """The exit code of `sweep`; how often its process read each file that was there, and laid each row on a base."""
    read, laid, launcher = Counter[str](), Counter[str](), [os.getpid()]
    with_numbers = expressions.with_numbers

    def listen(event: str, args: tuple) -> None:
        if event == "open" and [os.getpid()] == launcher and isinstance(args[0], (str, os.PathLike)):
            path = Path(args[0]).absolute()
            if path.is_file() and not args[2] & (os.O_WRONLY | os.O_RDWR):
                read[str(path.relative_to(root) if path.is_relative_to(root) else path.name)] += 1

    def counted(base, change, where):
        laid[where] += [os.getpid()] == launcher
        return with_numbers(base, change, where)

    expressions.with_numbers = counted
    sys.addaudithook(listen)
    return main(["sweep", str(sweep), *arguments]), read, laid


@pytest.mark.parametrize("again", [False, True])
def test_a_sweep_reads_its_file_once_and_a_record_twice_and_lays_each_row_on_base_once(tmp_path: Path, again) -> None:
    (sweep := tmp_path / "traced.yaml").write_text(SWEEP)
    steps = ["--training.steps=30", "--trainer.validate_every=10"]
    arguments = [*miniature(tmp_path), *steps, "--workers=2", f"--out={tmp_path / 'out'}"]
    if again:
        in_child(lambda: main(["sweep", str(sweep), *arguments]))
    code, read, laid = in_child(lambda: traced(sweep, tmp_path, *arguments))
    assert code == 0
    assert read["traced.yaml"] == read["table3.yaml"] == 1
    before = 2 * again  # which rows are hidden, and what the study is joined with
    assert read["out/studies/traced/study.json"] == before + 1, "for the rows that somebody else may have added"
    records = {path: times for path, times in read.items() if path.endswith("result.json")}
    assert len(records) == 3 and set(records.values()) == {2}, "the pool with its view, and the reports"
    assert [times for where, times in laid.items() if "'A-h1'" in where] == [1] and set(laid.values()) == {1}
